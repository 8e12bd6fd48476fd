//! The header `Idempotency-Key`. Only the increment of a counter may have this header. Any other request with this
//! header, and with one of the API's methods, is answered with 400.
//!
//! The middleware (`observe`) refuses the header by method and path, with [`check_route`]. However,
//! `/v1/{domain}/{bucket}/{key}` is also the URL of entries and of pages. For these URLs, [`refuse`] is called when the
//! type of the bucket is known.

use crate::access::Caller;
use http::{HeaderMap, HeaderName, Method, Uri};
use rashomon_entries::IdempotencyKey;

use super::bucket_and_key_of_v1;
use crate::problem::{Problem, Result, header_value};

/// The header of requests that take effect once, however often they are sent.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Parses the header, if the request has it.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed("the header Idempotency-Key is given twice: send it once"));
    }
    let key = IdempotencyKey::new(value.to_str().unwrap_or_default());
    key.map(Some)
        .map_err(|error| Problem::malformed(format!("the header Idempotency-Key is malformed: {error}")))
}

/// Replaces the key in a request that another server gets with the token of this server. That server sees one caller,
/// and a caller of this server must not use up the keys of others.
pub(crate) fn bind_to_caller(headers: &mut HeaderMap, caller: &Caller) -> Result<()> {
    if let Some(key) = idempotency_key(headers)? {
        let key = key.of_caller(caller.digest()).digest();
        headers.insert(IDEMPOTENCY_KEY, header_value(key.as_str()));
    }
    Ok(())
}

/// The methods of the API. A request with another method is answered with 405, whatever headers it has.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::DELETE];

/// Refuses the header for every request that cannot be the increment of a counter, by its method and path.
pub(crate) fn check_route(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<()> {
    let is_checked = headers.contains_key(IDEMPOTENCY_KEY) && METHODS.contains(method);
    if !is_checked || (*method == Method::POST && may_be_counter(uri.path())) {
        return Ok(());
    }
    Err(refusal())
}

/// Refuses the header for a bucket whose type is not `counter`.
pub(crate) fn refuse(headers: &HeaderMap) -> Result<()> {
    if headers.contains_key(IDEMPOTENCY_KEY) { Err(refusal()) } else { Ok(()) }
}

/// Whether a path is `/v1/{domain}/{bucket}/{key}`, in a bucket other than `page`.
fn may_be_counter(path: &str) -> bool {
    path.starts_with("/v1/")
        && bucket_and_key_of_v1(path).is_ok_and(|(of, key)| of.bucket.as_str() != "page" && !key.is_empty())
}

fn refusal() -> Problem {
    Problem::malformed(
        "only the POST that increments a counter takes the header Idempotency-Key: leave it out; GET, PUT and DELETE can \
         be repeated anyway, and so can the POST of a revision",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_refused_except_on_post_to_a_key() {
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, http::HeaderValue::from_static("1"))]);
        for (method, path, passes) in [
            ("POST", "/v1/enwiki/clicks/a", true),
            ("POST", "/v1/enwiki/clicks/a/b%20c?x", true),
            ("PUT", "/v1/enwiki/clicks/a", false),
            ("OPTIONS", "/v1/enwiki/clicks/a", false),
            ("POST", "/v1/enwiki/clicks/", false),
            ("POST", "/v1/enwiki/clicks", false),
            ("POST", "/v1/enwiki/page/a?rev/", false),
            ("POST", "/v1/enwiki/import", false),
            ("POST", "/v1/enwiki/changes/a", false),
            ("POST", "/v1/tokens/clicks/a", false),
            ("POST", "/v2/enwiki/clicks/a", false),
            ("POST", "/v1/batch", false),
            ("GET", "/healthz", false),
            ("OPTIONS", "*", false),
            // These requests pass here, and are answered with 405 later.
            ("TRACE", "/v1/enwiki/clicks/a", true),
            ("PATCH", "/healthz", true),
        ] {
            let (method, uri) = (method.parse().unwrap(), path.parse().unwrap());
            assert_eq!(check_route(&method, &uri, &headers).is_ok(), passes, "{method} {path}");
            assert!(check_route(&method, &uri, &HeaderMap::new()).is_ok());
        }
    }
}
