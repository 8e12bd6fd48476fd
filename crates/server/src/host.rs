//! The host that a request is for.

use http::{HeaderMap, Uri, header};

/// Returns the host that a request names, with its port. `None` if the request names no host; browsers always name one.
pub(crate) fn authority_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        // A client may put a user before the host.
        Some(authority) => authority.as_str().rsplit('@').next(),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()),
    }
}

/// Splits a host from its port, if it has one. An IPv6 address is in brackets.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(port).filter(|port| !port.is_empty()))
        }
        _ => (authority, None),
    }
}

/// Returns the names, in lower case, under which a host may be configured: the host alone, and the host with its port
/// if it has one.
pub(crate) fn configured_names(authority: &str) -> (String, Option<String>) {
    let authority = authority.to_ascii_lowercase();
    let (host, port) = split_port(&authority);
    // A name with a final dot is the same name, in its absolute form (RFC 1034, section 3.1).
    let host = host.strip_suffix('.').unwrap_or(host);
    (host.to_owned(), port.map(|port| format!("{host}:{port}")))
}
