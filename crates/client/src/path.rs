//! Paths that the registry and [`Store::run`](crate::Store::run) take.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::{InputError, error::excerpt};
use rashomon_protocol::DomainName;

/// The maximum length of a URL.
const MAX_URL_BYTES: usize = 16 << 10;

/// The ASCII characters that are percent-encoded in a path, because no URL has them. Characters outside of ASCII are
/// encoded, too.
const ENCODED: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Expands a path inside a domain (`/page/Main_Page?rev/`), or with its domain (`//enwiki/page/Main_Page?rev/`), to the
/// path of the HTTP API: `/v1/enwiki/page/Main_Page?rev/`.
pub(crate) fn expand(path: &str, default: Option<&DomainName>) -> Result<String, InputError> {
    let refuse = |reason| InputError::Path { path: excerpt(path), reason };
    let (domain, rest) = match path.strip_prefix("//") {
        Some(named) => {
            let end = named.find(['/', '?']).unwrap_or(named.len());
            (DomainName::new(&named[..end])?, &named[end..])
        }
        None if path.starts_with('/') => {
            let default = default.ok_or_else(|| {
                refuse("the store has no default domain: name one, as in //enwiki/page/Main_Page")
            })?;
            (default.clone(), path)
        }
        None => return Err(refuse("a path begins with a slash")),
    };
    if rest.chars().any(char::is_control) {
        return Err(refuse("a path has no control characters"));
    }
    if rest.contains('#') {
        return Err(refuse("a path has no fragment: write # as %23"));
    }
    let (before_query, _) = rest.split_once('?').unwrap_or((rest, ""));
    let decoded = decode(before_query).ok_or_else(|| refuse("a path is percent-encoded UTF-8"))?;
    if decoded.chars().any(char::is_control) {
        return Err(refuse("a path has no control characters"));
    }
    if has_dot_segment(&decoded) {
        return Err(refuse("no part of a path between slashes is '.' or '..'"));
    }
    let expanded = format!("/v1/{}{}", domain.as_str(), utf8_percent_encode(rest, &ENCODED));
    if expanded.len() > MAX_URL_BYTES {
        return Err(refuse("a URL has at most 16 KiB"));
    }
    Ok(expanded)
}

/// The parts of a path of the HTTP API after `/v1/`: domain, bucket, and the parts of the title or key.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = path.strip_prefix("/v1/").unwrap_or(path);
    let decoded = decode(path).unwrap_or(Cow::Borrowed(path));
    let mut segments: Vec<String> = decoded.split('/').map(str::to_owned).collect();
    if segments.get(1).is_some_and(|bucket| bucket == "page") || is_page_query(query) {
        // In titles, spaces and underscores are the same letter. The type of a bucket other than `page` is not known,
        // but only pages have queries such as `rev/`.
        segments.iter_mut().for_each(|segment| *segment = segment.replace(' ', "_"));
    }
    segments
}

/// Whether a part of the path between slashes is `.` or `..`.
fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| segment == "." || segment == "..")
}

/// Whether a query names a resource of a page, such as its revisions.
fn is_page_query(query: &str) -> bool {
    query == "rev" || ["rev/", "timegate/", "timemap/"].iter().any(|name| query.starts_with(name))
}

/// Decodes every `%XX`. `None` if a `%` is not followed by two hex digits, or if the result is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_inside_the_default_domain_or_names_one() {
        let domain = DomainName::new("enwiki").unwrap();
        for (path, expanded) in [
            ("/page/Main_Page?rev/latest/html", "/v1/enwiki/page/Main_Page?rev/latest/html"),
            ("//dewiki/page/A?rev/", "/v1/dewiki/page/A?rev/"),
            ("//dewiki", "/v1/dewiki"),
            ("/", "/v1/enwiki/"),
            ("/page/Über uns", "/v1/enwiki/page/%C3%9Cber%20uns"),
            ("/page/a%2Fb%3F", "/v1/enwiki/page/a%2Fb%3F"),
            ("/page/A?rev/../x", "/v1/enwiki/page/A?rev/../x"),
        ] {
            assert_eq!(expand(path, Some(&domain)).unwrap(), expanded);
        }
        assert!(expand("/page/A", None).unwrap_err().to_string().contains("default domain"));
        assert!(expand("//dewiki/page/A", None).is_ok());
    }

    #[test]
    fn invalid_path_is_refused() {
        let domain = DomainName::new("enwiki").unwrap();
        let long = format!("/page/{}", "a".repeat(16 << 10));
        for path in [
            "",
            "page/A",
            "///page/A",
            "//En/page/A",
            "//batch",
            "/page/../A",
            "/page/%2e%2E/A",
            "/page/a%2F..",
            "/page/a\r\nX: y",
            "/page/a%0Ab",
            "/page/%zz",
            "/page/%ff",
            "/page/a#b",
            "/page/a?b\n",
            &long,
        ] {
            assert!(expand(path, Some(&domain)).is_err(), "{path:?}");
        }
    }

    #[test]
    fn segments_are_decoded() {
        assert_eq!(segments("/v1/enwiki/page/a%2Fb%20c?rev/"), ["enwiki", "page", "a", "b_c"]);
        assert_eq!(segments("/v1/enwiki/math-png/b%20c"), ["enwiki", "math-png", "b c"]);
        assert_eq!(segments("/v1/enwiki/docs/b%20c?rev/"), ["enwiki", "docs", "b_c"]);
        assert_eq!(segments("/v1/enwiki/docs/b%20c?reverse"), ["enwiki", "docs", "b c"]);
    }
}
