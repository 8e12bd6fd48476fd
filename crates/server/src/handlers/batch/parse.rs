//! Parses the body of a batch in two steps. The body is first split into elements, which remain JSON texts. Each
//! element is parsed into a request just before the request starts. So the required memory does not depend on the
//! number of small members in the body.

use std::{borrow::Cow, fmt};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, uri::PathAndQuery};
use percent_encoding::percent_decode_str;
use rashomon_pages::{DomainName, excerpt};
use serde::{
    Deserialize, Deserializer as _,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Deserializer, value::RawValue};

use crate::problem::{Kind, Problem, Result};

/// The maximum number of requests in a batch.
pub(crate) const MAX_REQUESTS: usize = 500;

/// The maximum number of headers of a request in a batch.
const MAX_HEADERS: usize = 100;

/// The maximum size of all headers of a request in a batch.
const MAX_HEADER_BYTES: usize = 128 << 10;

/// The longest URL that the HTTP library can represent.
const MAX_URI_BYTES: usize = u16::MAX as usize - 1;

/// The methods that a request in a batch may have.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];

/// The headers that a request in a batch must not have itself: credentials, the host, and the headers that browsers and
/// proxies add. The request takes some of them from its batch, and does not have the others.
const BATCH_HEADERS: [&str; 8] =
    ["authorization", "cookie", "forwarded", "host", "origin", "via", "x-real-ip", "x-request-id"];
const BATCH_HEADER_PREFIXES: [&str; 4] = ["access-control-", "proxy-", "sec-", "x-forwarded-"];

/// The headers about a connection or the length of a body. A request in a batch must not have them, either.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Splits the body of a batch into its elements.
///
/// # Errors
///
/// Returns 400 if the body is not a JSON array, or if it has too many elements.
pub(super) fn split(body: &[u8]) -> Result<Vec<&RawValue>> {
    let malformed = |error: serde_json::Error| {
        Problem::malformed(format!("the body is not a JSON array of requests: {}", excerpt(error)))
    };
    if !body.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::malformed(
            "the body is not a JSON array: send requests such as [{\"method\": \"GET\", \"path\": \
             \"/v1/enwiki/page/A?rev/\"}]",
        ));
    }
    let mut json = Deserializer::from_slice(body);
    let elements = json.deserialize_seq(Elements).map_err(malformed)?;
    json.end().map_err(malformed)?;
    if elements.len() > MAX_REQUESTS {
        return Err(Problem::malformed(format!(
            "the batch has more than {MAX_REQUESTS} requests: send several batches"
        )));
    }
    Ok(elements)
}

/// Reads the elements of an array: at most one more than a batch may have. Skips all further elements.
struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = array.next_element()? {
            elements.push(element);
            if elements.len() > MAX_REQUESTS {
                while array.next_element::<IgnoredAny>()?.is_some() {}
            }
        }
        Ok(elements)
    }
}

/// The members of an element.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    body_base64: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn of(element: &'a RawValue) -> Result<Self> {
        // serde would also accept an array of the values, in the order of the members.
        if !element.get().starts_with('{') {
            return Err(Problem::malformed(
                "an element of a batch must be an object with the members method and path",
            ));
        }
        serde_json::from_str(element.get()).map_err(|error| {
            Problem::malformed(format!("the element is not a valid request: {}", excerpt(error)))
        })
    }
}

/// Parses an element into a request without the headers that it takes from its batch.
///
/// # Errors
///
/// Returns 400 if the element is not a valid request, and 414 or 431 if a part of the request is too large.
pub(super) fn request(element: &RawValue) -> Result<Request<Body>> {
    let members = Members::of(element)?;
    let method = method(members.method)?;
    let uri = uri(&text("path", members.path)?)?;
    let mut headers = HeaderMap::new();
    if let Some(object) = members.headers {
        headers = parse_headers(object)?;
    }
    let body = match (members.body, members.body_base64) {
        (None, None) => None,
        (body @ Some(_), None) => Some(text("body", body)?.into_bytes()),
        (None, encoded) => {
            let encoded = text("body_base64", encoded)?;
            let decoded = STANDARD.decode(encoded).map_err(|error| {
                Problem::malformed(format!(
                    "body_base64 is not Base64 (RFC 4648, section 4, with padding): {error}"
                ))
            })?;
            Some(decoded)
        }
        (Some(_), Some(_)) => {
            return Err(Problem::malformed("the element has body and body_base64: send one of them"));
        }
    };
    if let Some(body) = &body {
        headers.insert(header::CONTENT_LENGTH, body.len().into());
    }
    let mut request = Request::new(body.map_or_else(Body::empty, |body| Body::from(Bytes::from(body))));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok(request)
}

/// The value of a member that is a text.
fn text(name: &str, value: Option<&RawValue>) -> Result<String> {
    let value = value.ok_or_else(|| Problem::malformed(format!("the element has no {name}")))?;
    // The error of the parser is not shown, since it could quote the value.
    serde_json::from_str(value.get())
        .map_err(|_| Problem::malformed(format!("the member {name} is not a text in valid JSON")))
}

fn method(value: Option<&RawValue>) -> Result<Method> {
    let name = text("method", value)?;
    let known = METHODS.into_iter().find(|known| known.as_str() == name);
    known.ok_or_else(|| {
        let all = METHODS.map(|method| method.to_string()).join(", ");
        Problem::malformed(format!("a batch takes the methods {all}, not '{}'", excerpt(name)))
    })
}

/// Returns the URL of an element, even if another member is invalid. `None` if the URL itself is invalid.
pub(super) fn url(element: &RawValue) -> Option<Uri> {
    /// An element of which only the path is read.
    #[derive(Deserialize)]
    struct Path<'a> {
        #[serde(borrow)]
        path: Option<&'a RawValue>,
    }

    let Path { path } =
        serde_json::from_str(element.get()).ok().filter(|_| element.get().starts_with('{'))?;
    parse_uri(&text("path", path).ok()?).ok()
}

fn uri(path: &str) -> Result<Uri> {
    let parsed = parse_uri(path)?;
    if is_batch(parsed.path()) { Err(nested()) } else { Ok(parsed) }
}

fn parse_uri(path: &str) -> Result<Uri> {
    if path.len() > MAX_URI_BYTES {
        let detail = format!("a URL must have at most {MAX_URI_BYTES} bytes, not {}", path.len());
        return Err(Problem::new(Kind::UriTooLong, detail));
    }
    if !path.starts_with('/') || path.contains('#') {
        return Err(Problem::malformed(
            "a path must begin with '/', has no host and no '#', and may have a query: /v1/enwiki/page/Main_Page?rev/",
        ));
    }
    let parsed: PathAndQuery = path.parse().map_err(|_| {
        Problem::malformed(
            "the path is not valid: all characters except visible ASCII must be percent-encoded, and so must <, > \
             and `",
        )
    })?;
    Ok(parsed.into())
}

/// Checks that a path is below `/v1/{domain}/` or `/wiki/`.
pub(super) fn check_path(path: &str) -> Result<()> {
    const RULE: &str =
        "a batch reaches only paths below /v1/{domain}/ and /wiki/: send this request by itself";
    if path.starts_with("/wiki/") {
        return Ok(());
    }
    let domain = path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')).map(|(domain, _)| domain);
    let Some(domain) = domain.filter(|domain| !domain.is_empty()) else {
        return Err(Problem::not_found(RULE));
    };
    match DomainName::new(&decoded(domain)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Problem::malformed(format!("{error}; {RULE}"))),
    }
}

/// Whether a path is that of a batch, in any spelling, or a path below it.
fn is_batch(path: &str) -> bool {
    let decoded = decoded(path);
    let mut segments = decoded.split('/').filter(|segment| !["", "."].contains(segment));
    segments.next() == Some("v1")
        && segments.next().is_some_and(|segment| segment.eq_ignore_ascii_case("batch"))
}

/// The problem for a batch in a batch.
pub(super) fn nested() -> Problem {
    Problem::malformed("a batch must not contain a batch: send the requests of the inner batch themselves")
}

fn parse_headers(given: &RawValue) -> Result<HeaderMap> {
    if !given.get().starts_with('{') {
        return Err(Problem::malformed("the member headers is not an object of names and values"));
    }
    let mut json = Deserializer::from_str(given.get());
    let list = json
        .deserialize_map(HeaderList)
        .map_err(|_| Problem::malformed("the member headers has a name that is not valid JSON"))?;
    let too_large = || {
        let detail = format!(
            "a request in a batch must have at most {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes together"
        );
        Problem::new(Kind::HeadTooLarge, detail)
    };
    let list = list.ok_or_else(too_large)?;
    let mut headers = HeaderMap::with_capacity(list.len());
    for (name, value) in list {
        let shown = excerpt(&name);
        let invalid = || Problem::malformed(format!("the header '{shown}' is not valid"));
        let value: String = serde_json::from_str(value.get())
            .map_err(|_| Problem::malformed(format!("the value of the header '{shown}' is not a text")))?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        check_header(&name)?;
        let value =
            HeaderValue::from_bytes(value.trim_matches([' ', '\t']).as_bytes()).map_err(|_| invalid())?;
        if headers.insert(name, value).is_some() {
            return Err(Problem::malformed(format!("the header '{shown}' is given twice: send it once")));
        }
    }
    Ok(headers)
}

/// Checks that a request in a batch may have a header.
fn check_header(name: &HeaderName) -> Result<()> {
    let text = name.as_str();
    let is_prefixed = || BATCH_HEADER_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    let reason = if BATCH_HEADERS.contains(&text) || is_prefixed() {
        "a request in a batch takes this header from its batch, or does not have it"
    } else if CONNECTION_HEADERS.contains(&text) {
        "in a batch, headers about the connection or the length of the body are not allowed"
    } else {
        return Ok(());
    };
    Err(Problem::malformed(format!("leave out the header '{}': {reason}", excerpt(text))))
}

/// Reads the names and values of an object. The result is `None` if there are too many, or if they are too large.
struct HeaderList;

impl<'de> Visitor<'de> for HeaderList {
    type Value = Option<Vec<(String, &'de RawValue)>>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let (mut list, mut bytes) = (Vec::new(), 0);
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            bytes += name.len() + value.get().len();
            if list.len() < MAX_HEADERS && bytes <= MAX_HEADER_BYTES {
                list.push((name, value));
            } else {
                // The rest is skipped, so that the parser does not report it.
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
        }
        Ok(Some(list))
    }
}

/// Returns the key of an element. Requests with the same key run in the order of the batch. The key is the path without
/// its query, decoded, with `_` for spaces. All URLs of a page or an entry, below `/v1/` and `/wiki/`, have the same
/// key. `domain` is the domain of the batch's host, to which `/wiki/` belongs. `None` for an element from which no path
/// can be read.
pub(super) fn order_key(element: &RawValue, domain: Option<&DomainName>) -> Option<String> {
    let url = text("path", Members::of(element).ok()?.path).ok()?;
    let (path, query) = url.split_once(['?', '#']).unwrap_or((&url, ""));
    if let (Some(entry), "/wiki/", Some(domain)) = (query.strip_prefix("blob/"), path, domain) {
        return Some(format!("/v1/{domain}/{}", decoded(entry).replace(' ', "_")));
    }
    let path = decoded(path).replace(' ', "_");
    match (path.strip_prefix("/wiki/"), domain) {
        (Some(title), Some(domain)) => Some(format!("/v1/{domain}/page/{title}")),
        _ => Some(path),
    }
}

fn decoded(path: &str) -> Cow<'_, str> {
    percent_decode_str(path).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_batch_is_recognized() {
        for path in [
            "/v1/batch",
            "/v1/batch/",
            "//v1//batch",
            "/v1/./batch",
            "/v1/%62atch",
            "/%761/b%61tch",
            "/v1%2Fbatch",
            "/v1/batch/page/A",
            "/v1/BATCH",
        ] {
            assert!(is_batch(path), "{path}");
        }
        for path in ["/", "/v1/batches", "/v1/enwiki/page/batch", "/wiki/v1/batch", "/batch", "/v1"] {
            assert!(!is_batch(path), "{path}");
        }
    }

    #[test]
    fn only_paths_of_a_domain_are_taken() {
        for path in
            ["/v1/enwiki/", "/v1/enwiki/page/A", "/v1/en.wiki/b/k", "/v1/%65nwiki/b/k", "/wiki/", "/wiki/A"]
        {
            assert!(check_path(path).is_ok(), "{path}");
        }
        for path in [
            "/",
            "/v1",
            "/v1/",
            "/v1//a",
            "/v1/enwiki",
            "/v1/tokens",
            "/v1/tokens/a",
            "/v1/token%73/a",
            "/wiki",
            "/metrics",
            "/%6detrics",
            "//metrics",
            "/healthz",
            "/readyz",
            "/docs",
            "/openapi.json",
            "/pages/enwiki/A",
            "/buckets/enwiki/b/",
            "/assets/style.css",
        ] {
            let problem = check_path(path).unwrap_err();
            let is_name = path.starts_with("/v1/token") && path.len() > "/v1/tokens".len();
            assert_eq!(problem.kind(), if is_name { Kind::Malformed } else { Kind::NotFound }, "{path}");
            assert!(problem.detail().contains("send this request by itself"), "{path}: {}", problem.detail());
        }
    }

    #[test]
    fn urls_of_one_page_have_the_same_key() {
        let key = |path: &str| {
            let element = RawValue::from_string(format!("{{\"path\": \"{path}\"}}")).unwrap();
            order_key(&element, Some(&DomainName::new("enwiki").unwrap())).unwrap()
        };
        for path in [
            "/v1/enwiki/page/A_B/C?rev/",
            "/v1/enwiki/page/A%20B%2FC?rev/latest/html",
            "/v1/enwiki/page/%41_B/C",
            "/wiki/A_B/C?rev/1/html",
        ] {
            assert_eq!(key(path), "/v1/enwiki/page/A_B/C", "{path}");
        }
        assert_ne!(key("/v1/dewiki/page/A"), key("/v1/enwiki/page/A"));
    }
}
