//! The headers that are kept with a property and returned with it.

use std::collections::BTreeMap;

use http::HeaderName;

use crate::{
    encoding::MediaType,
    problem::{Problem, Result},
};

/// The most bytes of all headers of one property.
const MAX_BYTES: usize = 8 << 10;

/// Beginnings of `X-` headers that steer the servers in front of us.
const STEERING: [&str; 3] = ["x-accel-", "x-sendfile", "x-lighttpd-"];

/// `X-` headers that are ours.
const OURS: [&str; 4] = ["x-rev", "x-parent", "x-request-id", "x-content-type-options"];

/// Headers of a property, as far as they are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredHeaders {
    /// `Content-Type`.
    pub(crate) content_type: Option<String>,
    /// The others, their names in lower case.
    pub(crate) other: BTreeMap<String, String>,
}

impl StoredHeaders {
    /// Takes headers; refuses those that are not kept (422), and what is no header at all (400).
    pub(crate) fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut parsed = Self::default();
        let mut bytes = 0;
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Problem::malformed("the name of a header is malformed"))?;
            if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(Problem::malformed(format!("the value of {name} is not visible ASCII")));
            }
            bytes += name.as_str().len() + value.len();
            if bytes > MAX_BYTES {
                return Err(Problem::invalid(format!(
                    "the headers of a property have at most {MAX_BYTES} bytes"
                )));
            }
            parsed.add(name.as_str(), value.trim())?;
        }
        Ok(parsed)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<()> {
        let twice = if name == "content-type" {
            if MediaType::parse(value).is_none() {
                return Err(Problem::malformed(
                    "a Content-Type is a media type, such as text/html; charset=utf-8",
                ));
            }
            self.content_type.replace(value.to_owned()).is_some()
        } else if is_kept(name) {
            self.other.insert(name.to_owned(), value.to_owned()).is_some()
        } else {
            return Err(Problem::invalid(format!(
                "the header {name} cannot be kept: Content-Type, Content-Language and X-... are, except those that \
                 steer servers or are ours"
            )));
        };
        if twice { Err(Problem::malformed(format!("the header {name} is given twice"))) } else { Ok(()) }
    }

    /// These, and what only `others` has.
    pub(crate) fn or(mut self, others: Self) -> Self {
        self.content_type = self.content_type.or(others.content_type);
        for (name, value) in others.other {
            self.other.entry(name).or_insert(value);
        }
        self
    }
}

/// Whether a header, its name in lower case, is one that is kept beside `Content-Type`.
pub(crate) fn is_kept(name: &str) -> bool {
    let steers = STEERING.iter().any(|beginning| name.starts_with(beginning));
    name == "content-language" || (name.starts_with("x-") && !steers && !OURS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;

    fn parse(headers: &[(&str, &str)]) -> std::result::Result<StoredHeaders, Kind> {
        StoredHeaders::parse(headers.iter().copied()).map_err(|problem| problem.kind())
    }

    #[test]
    fn some_headers_are_kept() {
        let kept = parse(&[
            ("Content-Type", "text/html; charset=utf-8"),
            ("CONTENT-LANGUAGE", "de"),
            ("X-Spec-Version", " 2.8 "),
            ("x-review", "done"),
        ])
        .unwrap();
        assert_eq!(kept.content_type.as_deref(), Some("text/html; charset=utf-8"));
        let other: Vec<_> = kept.other.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(other, [("content-language", "de"), ("x-review", "done"), ("x-spec-version", "2.8")]);
    }

    #[test]
    fn others_are_refused() {
        for name in [
            "Set-Cookie",
            "Location",
            "Content-Length",
            "Cache-Control",
            "ETag",
            "Content-Security-Policy",
            "X-Accel-Redirect",
            "x-accel-buffering",
            "X-Sendfile",
            "X-SENDFILE-Type",
            "X-LIGHTTPD-send-file",
            "x-rev",
            "X-Parent",
            "X-Request-Id",
            "X-Content-Type-Options",
            "Content-Encoding",
        ] {
            assert_eq!(parse(&[(name, "1")]), Err(Kind::InvalidValue), "{name}");
        }
        assert_eq!(parse(&[("x-long", &"a".repeat(9000))]), Err(Kind::InvalidValue));
    }

    #[test]
    fn what_is_no_header_is_malformed() {
        for (name, value) in [
            ("", "x"),
            ("x y", "z"),
            ("x-é", "z"),
            ("x-y", "a\nb"),
            ("x-y", "é"),
            ("x-y", "\u{7f}"),
            ("content-type", "html"),
            ("content-type", ""),
        ] {
            assert_eq!(parse(&[(name, value)]), Err(Kind::Malformed), "{name}: {value}");
        }
        assert_eq!(parse(&[("x-y", "1"), ("X-Y", "1")]), Err(Kind::Malformed));
        assert_eq!(parse(&[("content-type", "a/b"), ("Content-Type", "a/b")]), Err(Kind::Malformed));
    }

    #[test]
    fn the_first_to_speak_is_heard() {
        let part = parse(&[("content-type", "a/b"), ("x-y", "1")]).unwrap();
        let field = parse(&[("content-type", "c/d"), ("x-y", "2"), ("x-z", "3")]).unwrap();
        let both = parse(&[("content-type", "a/b"), ("x-y", "1"), ("x-z", "3")]).unwrap();
        assert_eq!(part.or(field.clone()), both);
        assert_eq!(StoredHeaders::default().or(field.clone()), field);
    }
}
