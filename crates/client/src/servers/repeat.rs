//! The rule that says which requests may be repeated.

use http::{HeaderMap, Method, Uri};

/// Whether a request may be repeated after bytes of it were sent: GET, HEAD, `POST ?rev/` (the server recognizes a
/// repeated write), and POST with an `Idempotency-Key`.
///
/// A PUT or DELETE is not repeated. The first server may carry it out later than the second one, and would then undo a
/// newer write that was acknowledged in between. A deadline in the request would not help: the clocks of two machines
/// differ, and a write is not committed at the moment of the last look at the clock.
pub(crate) fn is_repeatable(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    match method.as_str() {
        "GET" | "HEAD" => true,
        "POST" => uri.query() == Some("rev/") || headers.contains_key("idempotency-key"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_may_run_twice_are_repeated() {
        let page = "/v1/enwiki/page/Main_Page";
        for (method, query, header, expected) in [
            ("GET", "?rev/latest/html", None, true),
            ("GET", "?rev/latest/html", Some("if-none-match"), true),
            ("HEAD", "?rev/latest/html", None, true),
            ("PUT", "?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/html", None, false),
            ("PUT", "?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/html", Some("if-match"), false),
            ("PUT", "", None, false),
            ("PUT", "", Some("idempotency-key"), false),
            ("DELETE", "", None, false),
            ("DELETE", "", Some("if-match"), false),
            ("POST", "?rev/", None, true),
            ("POST", "?rev/12345/", None, false),
            ("POST", "?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/", None, false),
            ("POST", "", None, false),
            ("POST", "", Some("idempotency-key"), true),
            ("PATCH", "", None, false),
            ("OPTIONS", "", None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(name) = header {
                headers.insert(name, "x".parse().unwrap());
            }
            let (method, uri) = (method.parse().unwrap(), format!("{page}{query}").parse().unwrap());
            assert_eq!(is_repeatable(&method, &uri, &headers), expected, "{method} {query} {header:?}");
        }
    }
}
