//! The headers of a write that are stored with a property or an entry. Headers that proxies add are ignored.

use std::collections::BTreeMap;

use crate::forms::{MediaType, is_disposition};
use http::{HeaderMap, HeaderName, header};
use rashomon_pages::{HeaderError, Headers, IgnoredHeaders, RequestHeaders, StoredHeaders};
use rashomon_protocol::cache_control::Directives;

use crate::{
    Api,
    problem::{Problem, Result},
};

/// The configured rules for the headers of writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderRules<'a> {
    ignored: &'a IgnoredHeaders,
    stored: &'a StoredHeaders,
}

impl<'a> HeaderRules<'a> {
    pub(crate) fn of(api: &'a Api) -> Self {
        Self { ignored: &api.settings.ignored_headers, stored: api.stored_headers() }
    }
}

/// Parses headers, except ignored ones. Refuses headers that are not stored or are too long (422), and malformed ones
/// (400).
pub(crate) fn parse<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    HeaderRules { ignored, stored }: HeaderRules<'_>,
) -> Result<RequestHeaders> {
    let given = RequestHeaders::parse(headers, ignored, stored).map_err(|error| match error {
        HeaderError::NotKept(_) | HeaderError::TooLong => Problem::invalid(error.to_string()),
        _ => Problem::malformed(error.to_string()),
    })?;
    match &given.content_type {
        Some(content_type) if MediaType::parse(content_type).is_none() => {
            Err(Problem::malformed(HeaderError::NoType.to_string()))
        }
        _ => Ok(given),
    }
}

/// Returns the headers of a request that are stored with an entry. `default_type` is the content type if the request
/// has none. Ignores headers that are not stored. Refuses headers that are too long (422), and malformed ones (400).
pub(crate) fn of_entry(
    headers: &HeaderMap,
    default_type: &str,
    HeaderRules { ignored, stored }: HeaderRules<'_>,
) -> Result<Headers> {
    let mut content_type = None;
    let mut other = BTreeMap::new();
    let mut bytes = 0;
    for name in headers.keys() {
        let is_type = *name == header::CONTENT_TYPE;
        let is_kept = || stored.keep_with_entry(name.as_str()) && !ignored.contains(name.as_str());
        if !is_type && !is_kept() {
            continue;
        }
        let value = value_of(headers, name)?;
        bytes += name.as_str().len() + value.len();
        if bytes > Headers::MAX_BYTES {
            return Err(Problem::invalid(format!(
                "the headers that are stored with an entry must have at most {} bytes together, names and values: send \
                 fewer or shorter ones",
                Headers::MAX_BYTES
            )));
        }
        if !is_well_formed(name, &value) {
            return Err(Problem::malformed(format!(
                "the value of the header {name}, which is stored with the entry, is malformed: correct it, or leave \
                 it out"
            )));
        }
        if is_type {
            content_type = Some(value);
        } else {
            other.insert(name.as_str().to_owned(), value);
        }
    }
    Ok(Headers { content_type: content_type.unwrap_or_else(|| default_type.to_owned()), other })
}

/// Returns the value of a header. Only headers whose values are lists may occur several times.
fn value_of(headers: &HeaderMap, name: &HeaderName) -> Result<String> {
    let is_list = [header::CACHE_CONTROL, header::CONTENT_LANGUAGE].contains(name);
    let mut joined = String::new();
    for (number, value) in headers.get_all(name).iter().enumerate() {
        let value = value.to_str().map_err(|_| {
            Problem::malformed(format!(
                "the value of the header {name}, which is stored with the entry, is not visible ASCII: correct it, or \
                 leave it out"
            ))
        })?;
        if number > 0 && !is_list {
            let cure = match name.as_str().starts_with("x-") {
                true => "; if a proxy adds it, name it in the setting 'ignored_headers'",
                false => "",
            };
            return Err(Problem::malformed(format!("the header {name} occurs twice: send it once{cure}")));
        }
        if number > 0 {
            joined.push_str(", ");
        }
        joined.push_str(value.trim());
    }
    Ok(joined)
}

fn is_well_formed(name: &HeaderName, value: &str) -> bool {
    match *name {
        header::CONTENT_TYPE => MediaType::parse(value).is_some(),
        header::CONTENT_DISPOSITION => is_disposition(value),
        header::CACHE_CONTROL => Directives::parse(value).is_some(),
        header::CONTENT_LANGUAGE => value.split(',').map(str::trim).all(|tag| {
            !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
        // The tab is the only control character that the value can still have.
        _ => !value.contains('\t'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;

    fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<RequestHeaders> {
        let (ignored, stored) = (&IgnoredHeaders::default(), &StoredHeaders::default());
        super::parse(headers, HeaderRules { ignored, stored })
    }

    #[test]
    fn malformed_headers_are_400_and_long_or_unstored_headers_are_422() {
        for (name, value, expected) in [
            ("content-type", "text/html; charset=utf-8", None),
            ("x-review", "done", None),
            ("x y", "z", Some(Kind::Malformed)),
            ("x-y", "a\nb", Some(Kind::Malformed)),
            ("content-type", "html", Some(Kind::Malformed)),
            ("content-type", "", Some(Kind::Malformed)),
            ("Set-Cookie", "x", Some(Kind::InvalidValue)),
            ("X-Frame-Options", "x", Some(Kind::InvalidValue)),
            ("x-long", &"a".repeat(9000), Some(Kind::InvalidValue)),
        ] {
            let kind = parse([(name, value)]).err().map(|problem| problem.kind());
            assert_eq!(kind, expected, "{name}: {value}");
        }
        let twice = parse([("x-y", "1"), ("X-Y", "1")]).unwrap_err();
        assert_eq!(twice.kind(), Kind::Malformed);
    }

    fn of_entry(headers: &HeaderMap, default_type: &str) -> Result<Headers> {
        let (ignored, stored) = (&IgnoredHeaders::default(), &StoredHeaders::default());
        super::of_entry(headers, default_type, HeaderRules { ignored, stored })
    }

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                name.parse::<HeaderName>().unwrap(),
                http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        map
    }

    #[test]
    fn entry_keeps_some_headers_and_ignores_others() {
        let headers = map(&[
            ("content-type", "image/png"),
            ("content-language", "de"),
            ("content-language", "en-GB"),
            ("content-disposition", "attachment; filename=\"a b.png\"; filename*=UTF-8''a"),
            ("cache-control", "public"),
            ("cache-control", "max-age=60"),
            ("x-review", "done"),
            ("accept", "*/*"),
            ("etag", "\"x\""),
            ("set-cookie", "a=b"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-real-ip", "192.0.2.1"),
            ("x-request-id", "7"),
            ("x-amzn-trace-id", "7"),
            ("x-envoy-attempt-count", "1"),
            ("x-accel-redirect", "/etc/passwd"),
            ("x-sendfile", "/etc/passwd"),
            ("x-litespeed-location", "/etc/passwd"),
            ("x-frame-options", "ALLOWALL"),
            ("x-rev", "7"),
            ("x-content-type-options", "nosniff"),
        ]);
        let stored = of_entry(&headers, "a/b").unwrap();
        assert_eq!(stored.content_type, "image/png");
        let expected = [
            ("cache-control", "public, max-age=60"),
            ("content-disposition", "attachment; filename=\"a b.png\"; filename*=UTF-8''a"),
            ("content-language", "de, en-GB"),
            ("x-review", "done"),
        ];
        assert_eq!(stored.other, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(of_entry(&HeaderMap::new(), "a/b").unwrap().content_type, "a/b");
    }

    #[test]
    fn malformed_headers_of_an_entry_are_refused() {
        for (name, value) in [
            ("content-type", "png"),
            ("content-type", ""),
            ("content-type", "text/html; x"),
            ("content-type", "text/é"),
            ("content-language", "de,"),
            ("content-language", "<de>"),
            ("content-disposition", ""),
            ("content-disposition", "attachment; filename=\"a"),
            ("content-disposition", "; filename=a"),
            ("cache-control", ""),
            ("cache-control", "max-age="),
            ("x-review", "a\tb"),
            ("x-review", "é"),
        ] {
            let problem = of_entry(&map(&[(name, value)]), "a/b").unwrap_err();
            assert_eq!(problem.kind(), Kind::Malformed, "{name}: {value}");
            assert!(problem.detail().contains(name), "{}", problem.detail());
        }
        for (name, value, cure) in
            [("x-review", "1", "'ignored_headers'"), ("content-type", "a/b", "send it once")]
        {
            let twice = of_entry(&map(&[(name, value), (name, value)]), "a/b").unwrap_err();
            assert_eq!(twice.kind(), Kind::Malformed);
            assert!(twice.detail().contains(cure), "{}", twice.detail());
        }
        let long = map(&[("x-a", &"a".repeat(5000)), ("x-b", &"a".repeat(5000))]);
        assert_eq!(of_entry(&long, "a/b").unwrap_err().kind(), Kind::InvalidValue);
    }
}
