//! Rewrites the headers of forwarded requests and of their answers.

use super::backend::Sender;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, uri::Authority};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The headers that hold for one connection only (RFC 9110, section 7.6.1).
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Further headers of a request that are not forwarded. This server answers `Expect` itself, computes the length of the
/// body, and has already checked which web page sent the request. Cookies are secrets between a browser and the host
/// that the browser knows.
const NOT_FORWARDED_HEADERS: [&str; 8] = [
    "expect",
    "content-length",
    "cookie",
    "origin",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
    "sec-fetch-user",
];

/// Headers that reach the last server even if `Connection` names them: all those by which a server of this service, or a
/// cache in front of it, decides something. RFC 9110, section 7.6.1, forbids senders to name such headers. If one was
/// removed here, this server would have decided by other headers than the backend.
const END_TO_END_HEADERS: [&str; 28] = [
    "age",
    "allow",
    "authorization",
    "cache-control",
    "date",
    "etag",
    "expires",
    "forwarded",
    "from",
    "host",
    "idempotency-key",
    "last-event-id",
    "last-modified",
    "link",
    "location",
    "memento-datetime",
    "origin",
    "pragma",
    "range",
    "rashomon-rights",
    "referer",
    "retry-after",
    "set-cookie",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
    "x-request-id",
];

/// The beginnings of the names of further such headers.
const END_TO_END_PREFIXES: [&str; 6] =
    ["accept", "access-control-", "content-", "if-", "sec-", "x-forwarded-"];

fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    END_TO_END_HEADERS.contains(&name) || END_TO_END_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes the headers that hold for one connection only, and those that `Connection` names, unless they are for the
/// last server.
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = (headers.get_all(header::CONNECTION).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}

/// Whether this server has already forwarded the request: `Via` has the name of this server.
pub(crate) fn has_visited(headers: &HeaderMap, name: &str) -> bool {
    (headers.get_all(header::VIA).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|hop| hop.split_whitespace().nth(1) == Some(name))
}

/// Changes the headers of a client's request to those that the backend gets.
pub(crate) fn rewrite_for_backend(
    headers: &mut HeaderMap,
    uri: &Uri,
    version: Version,
    sender: &Sender,
    name: &str,
    forward_authorization: bool,
) {
    remove_connection_headers(headers);
    let is_empty = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length == "0");
    for name in NOT_FORWARDED_HEADERS {
        headers.remove(name);
    }
    if is_empty {
        // Some servers refuse a write with an empty body unless it has `Content-Length: 0`.
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if !forward_authorization {
        headers.remove(header::AUTHORIZATION);
    }
    let host = match uri.authority() {
        Some(authority) => {
            authority.as_str().rsplit('@').next().and_then(|host| HeaderValue::from_str(host).ok())
        }
        None => headers.get(header::HOST).cloned(),
    };
    headers.remove(header::HOST);
    add_forwarded(headers, host.as_ref(), sender);
    // The host selects the domain of these paths.
    if uri.path().starts_with("/wiki/")
        && let Some(host) = host
    {
        headers.insert(header::HOST, host);
    }
    add_via(headers, version, name);
}

/// Adds the headers of a proxy. If the client is not a trusted proxy, its own `X-Forwarded-Proto` and
/// `X-Forwarded-Host` are replaced, and its `X-Forwarded-Prefix` and `Forwarded` are removed. The list of addresses always stays: readers of the
/// list trust only the addresses that trusted proxies have appended.
fn add_forwarded(headers: &mut HeaderMap, host: Option<&HeaderValue>, sender: &Sender) {
    if !sender.is_trusted_proxy {
        for name in [FORWARDED_PROTO, FORWARDED_HOST, FORWARDED_PREFIX, header::FORWARDED] {
            headers.remove(name);
        }
    }
    if let Some(address) = sender.address {
        let mut list: Vec<String> = (headers.get_all(&FORWARDED_FOR).iter())
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect();
        list.push(address.to_string());
        if let Ok(value) = HeaderValue::from_str(&list.join(", ")) {
            headers.insert(FORWARDED_FOR, value);
        }
    }
    if !headers.contains_key(&FORWARDED_PROTO) {
        let scheme = if sender.is_encrypted { "https" } else { "http" };
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if let Some(host) = host.filter(|_| !headers.contains_key(&FORWARDED_HOST)) {
        headers.insert(FORWARDED_HOST, host.clone());
    }
}

/// Changes the headers of a backend's answer to those that the client gets.
pub(crate) fn rewrite_for_client(headers: &mut HeaderMap, version: Version, name: &str) {
    remove_connection_headers(headers);
    // This server sets the request id on each answer itself (`observe`), so the backend's copy is dropped.
    headers.remove(REQUEST_ID);
    add_via(headers, version, name);
}

/// Makes a path of a `Location` with the scheme and the host of one of the servers of the backend, which the client may
/// not reach: the path leads to the backend through this server.
pub(crate) fn make_location_local(headers: &mut HeaderMap, servers: &[String]) {
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let path = location.and_then(|location| servers.iter().find_map(|server| path_at(server, location)));
    if let Some(path) = path.and_then(|path| HeaderValue::from_str(&path).ok()) {
        headers.insert(header::LOCATION, path);
    }
}

/// Returns the path, the query and the fragment of a URL at this server.
fn path_at(server: &str, url: &str) -> Option<String> {
    let server: Uri = server.parse().ok()?;
    let (scheme, rest) = url.split_once("//")?;
    let scheme = scheme.strip_suffix(':').or(scheme.is_empty().then_some(server.scheme_str()?))?;
    let (host, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    let host: Authority = host.parse().ok()?;
    let default = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let is_same = scheme.eq_ignore_ascii_case(server.scheme_str()?)
        && !host.as_str().contains('@')
        && host.host().eq_ignore_ascii_case(server.host()?)
        && host.port_u16().unwrap_or(default) == server.port_u16().unwrap_or(default);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // Two slashes at the beginning would name another host.
    let is_path = !path[1..].starts_with(['/', '\\']);
    (is_same && is_path).then_some(path)
}

fn add_via(headers: &mut HeaderMap, version: Version, name: &str) {
    let version = if version == Version::HTTP_10 { "1.0" } else { "1.1" };
    if let Ok(via) = HeaderValue::from_str(&format!("{version} {name}")) {
        headers.append(header::VIA, via);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(is_trusted_proxy: bool) -> Sender {
        Sender { address: Some([192, 0, 2, 7].into()), is_trusted_proxy, is_encrypted: true }
    }

    fn forwarded(uri: &str, lines: &[(&str, &str)], sender: Sender, authorization: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        rewrite_for_backend(
            &mut headers,
            &uri.parse().unwrap(),
            Version::HTTP_11,
            &sender,
            "us",
            authorization,
        );
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn location_at_a_server_of_the_backend_becomes_a_path() {
        let servers =
            ["http://10.0.0.1:8080", "https://Store.example.org", "http://[::1]"].map(str::to_owned);
        for (location, expected) in [
            ("http://10.0.0.1:8080/v1/enwiki/page/A?rev/7/#x", "/v1/enwiki/page/A?rev/7/#x"),
            ("HTTPS://store.EXAMPLE.org:443/wiki/A%20//b", "/wiki/A%20//b"),
            ("//10.0.0.1:8080/a", "/a"),
            ("http://[::1]:80?a", "/?a"),
            ("http://10.0.0.1:8080", "/"),
            // Other servers, other schemes, and paths that name another server.
            ("http://10.0.0.1/a", "http://10.0.0.1/a"),
            ("http://10.0.0.1:8080@evil.org/a", "http://10.0.0.1:8080@evil.org/a"),
            ("http://a@10.0.0.1:8080/a", "http://a@10.0.0.1:8080/a"),
            ("https://10.0.0.1:8080/a", "https://10.0.0.1:8080/a"),
            ("https://store.example.org.evil/a", "https://store.example.org.evil/a"),
            ("http://10.0.0.1:8080//evil.org/a", "http://10.0.0.1:8080//evil.org/a"),
            ("http://10.0.0.1:8080/\\evil.org", "http://10.0.0.1:8080/\\evil.org"),
            ("http://10.0.0.1:8080\\evil.org", "http://10.0.0.1:8080\\evil.org"),
            ("/a//b", "/a//b"),
            ("?a", "?a"),
            ("mailto:a", "mailto:a"),
        ] {
            let mut headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
            make_location_local(&mut headers, &servers);
            assert_eq!(headers[header::LOCATION], expected, "{location}");
        }
    }

    #[test]
    fn connection_headers_and_private_headers_are_not_forwarded() {
        let lines = [
            ("host", "en.example.org"),
            ("connection", "close, x-own"),
            ("x-own", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic eA=="),
            ("expect", "100-continue"),
            ("cookie", "session=1"),
            ("origin", "https://en.example.org"),
            ("sec-fetch-site", "same-site"),
            ("authorization", "Bearer secret"),
            ("if-none-match", "\"1\""),
            ("accept-encoding", "gzip"),
            ("x-request-id", "7"),
        ];
        let kept = [
            "accept-encoding: gzip",
            "if-none-match: \"1\"",
            "via: 1.1 us",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: en.example.org",
            "x-forwarded-proto: https",
            "x-request-id: 7",
        ];
        assert_eq!(forwarded("/v1/enwiki/page/A", &lines, sender(false), false), kept);
        let with_token = forwarded("/v1/enwiki/page/A", &lines, sender(false), true);
        assert!(with_token.contains(&"authorization: Bearer secret".to_owned()));
    }

    #[test]
    fn connection_cannot_remove_headers_by_which_servers_decide() {
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("if-match", "\"1\""),
            ("if-none-match", "*"),
            ("if-modified-since", "Thu, 01 Jan 2099 00:00:00 GMT"),
            ("if-unmodified-since", "Thu, 01 Jan 2099 00:00:00 GMT"),
            ("if-range", "\"1\""),
            ("range", "bytes=0-0"),
            ("content-type", "text/html"),
            ("content-range", "bytes 0-0/2"),
            ("content-disposition", "inline"),
            ("cache-control", "no-store"),
            ("accept", "text/html"),
            ("accept-datetime", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("idempotency-key", "1"),
            ("rashomon-rights", "write"),
            ("forwarded", "for=192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x-request-id", "7"),
        ] {
            let title = name.to_uppercase();
            for named in [name, &title, &format!("close , {name},"), &format!("x-a,{name}")] {
                let lines = [("host", "inner"), ("connection", named), (name, value)];
                let found = forwarded("/v1/enwiki/page/A", &lines, sender(true), true);
                assert!(found.contains(&format!("{name}: {value}")), "{named}: {found:?}");
            }
        }
        let lines = [("host", "en.example.org"), ("connection", "host"), ("via", "1.1 first")];
        let found = forwarded("/wiki/A?rev/", &lines, sender(false), false);
        assert!(found.contains(&"host: en.example.org".to_owned()), "{found:?}");
        assert!(found.contains(&"x-forwarded-host: en.example.org".to_owned()), "{found:?}");
        let mut answer = HeaderMap::new();
        for (name, value) in [
            ("connection", "cache-control, etag, content-security-policy, vary, location"),
            ("cache-control", "private"),
            ("etag", "\"1\""),
            ("content-security-policy", "sandbox"),
            ("vary", "accept"),
            ("location", "/v1/"),
        ] {
            answer.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        rewrite_for_client(&mut answer, Version::HTTP_11, "us");
        assert_eq!(answer.len(), 6, "{answer:?}");
    }

    #[test]
    fn host_is_kept_where_it_selects_the_domain() {
        let host = |uri: &str| {
            let lines = forwarded(uri, &[("host", "en.example.org")], sender(false), false);
            lines.into_iter().find_map(|line| Some(line.strip_prefix("host: ")?.to_owned()))
        };
        assert_eq!(host("/wiki/A?rev/").as_deref(), Some("en.example.org"));
        assert_eq!(host("/v1/enwiki/page/A?rev/"), None);
        assert_eq!(host("http://de.example.org/wiki/A").as_deref(), Some("de.example.org"));
    }

    #[test]
    fn only_a_trusted_proxy_describes_its_client() {
        let lines = [
            ("host", "inner"),
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-proto", "ftp"),
            ("x-forwarded-host", "outer"),
            ("x-forwarded-prefix", "/store"),
            ("forwarded", "for=198.51.100.1"),
            ("via", "1.1 first"),
        ];
        let common = ["via: 1.1 first", "via: 1.1 us", "x-forwarded-for: 198.51.100.1, 192.0.2.7"];
        let trusted = forwarded("/v1/enwiki/page/A", &lines, sender(true), false);
        let mut expected: Vec<_> = common.to_vec();
        expected.extend(["forwarded: for=198.51.100.1", "x-forwarded-host: outer"]);
        expected.extend(["x-forwarded-prefix: /store", "x-forwarded-proto: ftp"]);
        expected.sort_unstable();
        assert_eq!(trusted, expected);
        let untrusted = forwarded("/v1/enwiki/page/A", &lines, sender(false), false);
        assert!(untrusted.contains(&"x-forwarded-proto: https".to_owned()), "{untrusted:?}");
        assert!(untrusted.contains(&"x-forwarded-host: inner".to_owned()), "{untrusted:?}");
        for name in ["forwarded:", "x-forwarded-prefix:"] {
            assert!(!untrusted.iter().any(|line| line.starts_with(name)), "{untrusted:?}");
        }
    }

    #[test]
    fn answer_loses_request_id_and_connection_headers_of_the_backend() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-request-id", "7"),
            ("connection", "x-own"),
            ("x-own", "1"),
            ("keep-alive", "1"),
            ("etag", "\"1\""),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        rewrite_for_client(&mut headers, Version::HTTP_10, "us");
        let mut lines: Vec<_> = headers.iter().collect();
        lines.sort_by_key(|(name, _)| name.as_str());
        let shown: Vec<_> =
            lines.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        assert_eq!(shown, ["etag: \"1\"", "via: 1.0 us"]);
    }

    #[test]
    fn loop_is_found_by_the_name_alone() {
        let mut headers = HeaderMap::new();
        headers.append("via", "1.0 fred, 1.1 rashomon-1 (proxy)".parse().unwrap());
        headers.append("via", "1.1 other".parse().unwrap());
        assert!(has_visited(&headers, "rashomon-1") && has_visited(&headers, "other"));
        assert!(!has_visited(&headers, "rashomon") && !has_visited(&headers, "1.1"));
    }
}
