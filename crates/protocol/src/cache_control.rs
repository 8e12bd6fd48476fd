//! The `Cache-Control` that a client stores with an entry, and the header that is sent instead with the entry.

use std::time::Duration;

use http::HeaderValue;

/// The directives of a `Cache-Control` (RFC 9111, section 5.2). Names are in lower case, and arguments are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directives(Vec<(String, Option<String>)>);

/// Directives that let a cache use an answer after its `max-age`.
const STALE_DIRECTIVES: [&str; 2] = ["stale-while-revalidate", "stale-if-error"];

impl Directives {
    /// Parses a value. `None` if the value is malformed, or has no directive.
    pub fn parse(text: &str) -> Option<Self> {
        let mut directives = Vec::new();
        for directive in split_list(text)? {
            let (name, argument) = match directive.split_once('=') {
                Some((name, argument)) => (name, Some(argument)),
                None => (directive, None),
            };
            let is_argument = |text: &str| is_token(text) || is_quoted(text);
            if !is_token(name) || !argument.is_none_or(is_argument) {
                return None;
            }
            directives.push((name.to_ascii_lowercase(), argument.map(str::to_owned)));
        }
        (!directives.is_empty()).then_some(Self(directives))
    }

    /// Makes the header of an answer with the entry. `is_public`: whether everybody may read the entry. `left` is the
    /// time until the entry expires (`None`: never). No cache may use the answer after this time.
    pub fn header(&self, is_public: bool, left: Option<Duration>) -> HeaderValue {
        let mut sent: Vec<String> = Vec::with_capacity(self.0.len() + 1);
        let mut add = |name: &str, argument: Option<&str>| {
            sent.push(argument.map_or_else(|| name.to_owned(), |argument| format!("{name}={argument}")));
        };
        let is_stored = !self.has("no-store");
        if !is_public && is_stored {
            add("private", None);
        }
        for (name, argument) in &self.0 {
            match (name.as_str(), left) {
                ("public" | "s-maxage" | "private", _) if !is_public => {}
                ("max-age" | "s-maxage", Some(left)) => {
                    let seconds = argument.as_deref().and_then(seconds).unwrap_or(0);
                    add(name, Some(&seconds.min(left.as_secs()).to_string()));
                }
                (name, Some(_)) if STALE_DIRECTIVES.contains(&name) => {}
                (name, _) => add(name, argument.as_deref()),
            }
        }
        if let Some(left) = left.filter(|_| is_stored && !self.has("max-age")) {
            add("max-age", Some(&left.as_secs().to_string()));
        }
        HeaderValue::from_str(&sent.join(", ")).unwrap_or(HeaderValue::from_static("no-store"))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

/// Parses the argument of `max-age` or `s-maxage`. A number that is too large becomes `u64::MAX`.
fn seconds(argument: &str) -> Option<u64> {
    let digits = argument.trim_matches('"');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Splits a list at the commas outside of quoted strings. Leaves out empty elements. `None` if a quoted string does not
/// end.
fn split_list(text: &str) -> Option<Vec<&str>> {
    let (mut elements, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                elements.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    elements.push(text[begin..].trim());
    elements.retain(|element| !element.is_empty());
    (!quoted).then_some(elements)
}

fn is_quoted(text: &str) -> bool {
    text.len() >= 2 && text.starts_with('"') && text.ends_with('"')
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(stored: &str, is_public: bool, left: Option<u64>) -> String {
        let header = Directives::parse(stored).unwrap().header(is_public, left.map(Duration::from_secs));
        header.to_str().unwrap().to_owned()
    }

    #[test]
    fn public_directives_are_sent_only_with_public_entries() {
        for (stored, public, private) in [
            ("max-age=60", "max-age=60", "private, max-age=60"),
            ("Public, Max-Age=60 ,s-maxage=99", "public, max-age=60, s-maxage=99", "private, max-age=60"),
            (
                "no-cache=\"a, b\", must-revalidate",
                "no-cache=\"a, b\", must-revalidate",
                "private, no-cache=\"a, b\", must-revalidate",
            ),
            ("private=\"x\", max-age=1", "private=\"x\", max-age=1", "private, max-age=1"),
            ("private", "private", "private"),
            ("no-store", "no-store", "no-store"),
        ] {
            assert_eq!(sent(stored, true, None), public, "{stored}");
            assert_eq!(sent(stored, false, None), private, "{stored}");
        }
    }

    #[test]
    fn no_cache_uses_an_answer_after_its_entry_has_expired() {
        for (stored, limited) in [
            ("max-age=60", "max-age=10"),
            ("max-age=5, s-maxage=\"3600\"", "max-age=5, s-maxage=10"),
            ("max-age=99999999999999999999999, immutable", "max-age=10, immutable"),
            ("max-age=x", "max-age=0"),
            ("public", "public, max-age=10"),
            ("max-age=60, stale-while-revalidate=600, Stale-If-Error=5", "max-age=10"),
            ("no-store", "no-store"),
        ] {
            assert_eq!(sent(stored, true, Some(10)), limited, "{stored}");
        }
        assert_eq!(sent("public, max-age=60", false, Some(0)), "private, max-age=0");
    }

    #[test]
    fn malformed_values_are_recognized() {
        for malformed in ["", ",", "max age", "max-age=", "=1", "a=\"b", "a=b c", "a=\"b\"c", "é"] {
            assert_eq!(Directives::parse(malformed), None, "{malformed}");
        }
    }
}
