//! Media types and other headers with parameters (RFC 9110, section 5.6.6), as far as bodies need them.

/// A media type: `multipart/form-data; boundary=x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType {
    /// `type/subtype` in lower case.
    pub essence: String,
    parameters: Vec<(String, String)>,
}

impl MediaType {
    /// Parses a media type. `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (essence, parameters) = parse_parameters(text)?;
        let (kind, subtype) = essence.split_once('/')?;
        (is_token(kind) && is_token(subtype)).then_some(Self { essence, parameters })
    }

    /// Whether the media type is JSON: `application/json`, or a name such as `application/problem+json`.
    #[must_use]
    pub fn is_json(&self) -> bool {
        let subtype = self.essence.strip_prefix("application/");
        subtype.is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
    }

    /// The value of a parameter. `name` must be in lower case; its case in the media type does not matter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Whether a text is a value of `Content-Disposition` (RFC 6266): a token, perhaps with parameters.
#[must_use]
pub fn is_disposition(text: &str) -> bool {
    parse_parameters(text).is_some_and(|(value, _)| is_token(&value))
}

/// Parses a header into its value, in lower case, and its parameters, whose names are in lower case.
pub(crate) fn parse_parameters(text: &str) -> Option<(String, Vec<(String, String)>)> {
    let (value, mut rest) = text.split_once(';').unwrap_or((text, ""));
    let mut parameters = Vec::new();
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, next) = parse_value(after.trim_start())?;
        let name = name.trim();
        if !is_token(name) {
            return None;
        }
        parameters.push((name.to_ascii_lowercase(), value));
        rest = match next.trim_start().strip_prefix(';') {
            Some(rest) => rest,
            None if next.trim().is_empty() => "",
            None => return None,
        };
    }
    Some((value.trim().to_ascii_lowercase(), parameters))
}

/// Parses a token or a quoted string. Also returns the rest.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((text[..end].trim_end().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disposition_is_a_token_with_parameters() {
        for valid in ["inline", "Attachment; filename=\"a;b.png\"; filename*=UTF-8''%c3%bc"] {
            assert!(is_disposition(valid), "{valid}");
        }
        for malformed in ["", ";", "a b", "attachment; filename", "attachment; filename=\"a", "a/b"] {
            assert!(!is_disposition(malformed), "{malformed}");
        }
    }

    #[test]
    fn media_types_are_read_with_their_parameters() {
        let parse = |text| MediaType::parse(text).unwrap();
        assert_eq!(parse("Text/HTML").essence, "text/html");
        assert_eq!(parse("text/html; Charset=utf-8").parameter("charset"), Some("utf-8"));
        let quoted = parse("multipart/form-data ; boundary=\"a \\\"b\\\";c\" ; x=y;");
        assert_eq!(quoted.parameter("boundary"), Some("a \"b\";c"));
        assert_eq!(quoted.parameter("x"), Some("y"));
        assert_eq!(quoted.parameter("z"), None);
        for malformed in
            ["", "text", "text/", "/html", "te xt/html", "text/html; x", "text/html; x=\"y", "a/b; \u{e9}=x"]
        {
            assert_eq!(MediaType::parse(malformed), None, "{malformed}");
        }
    }
}
