//! The URLs of this server as the client knows them, which may be behind proxies.

use crate::connections::{Encrypted, PeerAddress};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Uri, header};
use ipnet::IpNet;

use crate::{client_address::is_proxy, host::authority_of, problem::header_value};

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// The maximum size of the prefix of a proxy. A longer one is ignored.
const MAX_PREFIX_BYTES: usize = 512;

/// Returns the scheme, the host and the prefix with which a client began its URL: `https://en.example.org/store`. `None`
/// if the request names no host that can be a part of a link or of a shell command.
///
/// The scheme is the one that a proxy names in `X-Forwarded-Proto`, or else the scheme of the connection. The host is
/// that of the request, unless one of `proxies` names another one in `X-Forwarded-Host`.
pub(crate) fn base_url(
    uri: &Uri,
    headers: &HeaderMap,
    extensions: &Extensions,
    proxies: &[IpNet],
) -> Option<String> {
    let is_encrypted = match first(headers, &FORWARDED_PROTO) {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
        _ => extensions.get::<Encrypted>().is_some(),
    };
    let forwarded = first(headers, &FORWARDED_HOST).filter(|_| is_from_proxy(extensions, proxies));
    let mut hosts = forwarded.into_iter().chain(authority_of(uri, headers));
    let host = hosts.find(|host| is_plain(host))?;
    let scheme = if is_encrypted { "https" } else { "http" };
    let prefix = prefix(headers, extensions, proxies).unwrap_or_default();
    Some(format!("{scheme}://{host}{prefix}"))
}

/// Returns the prefix that a proxy removes from the paths of its clients: `/store`, without a slash at the end. Only
/// one of `proxies` can name it, in `X-Forwarded-Prefix`. Several prefixes are those of several proxies, the first of
/// which is the nearest to the client. If one of them is not the beginning of a path, all are ignored.
pub(crate) fn prefix(headers: &HeaderMap, extensions: &Extensions, proxies: &[IpNet]) -> Option<String> {
    if !headers.contains_key(&FORWARDED_PREFIX) || !is_from_proxy(extensions, proxies) {
        return None;
    }
    let mut whole = String::new();
    for value in headers.get_all(&FORWARDED_PREFIX) {
        for part in value.to_str().ok()?.split(',') {
            let part = part.trim().trim_end_matches('/');
            if !part.is_empty() && !is_path(part) {
                return None;
            }
            whole.push_str(part);
        }
    }
    Some(whole).filter(|whole| !whole.is_empty() && whole.len() <= MAX_PREFIX_BYTES)
}

/// Makes the `Location` of an answer an absolute path. Some clients resolve a reference that is only a query wrongly.
/// `path` is the path of the request.
pub(crate) fn make_location_absolute(headers: &mut HeaderMap, path: &str, prefix: Option<&str>) {
    let Some(location) = headers.get(header::LOCATION).and_then(|location| location.to_str().ok()) else {
        return;
    };
    let prefix = prefix.unwrap_or_default();
    let absolute = match location.as_bytes() {
        [b'?', ..] => format!("{prefix}{path}{location}"),
        [b'/', b'/', ..] => return,
        [b'/', ..] if !prefix.is_empty() => format!("{prefix}{location}"),
        _ => return,
    };
    headers.insert(header::LOCATION, header_value(&absolute));
}

/// Removes a prefix that another server has put before the `Location` of its answer, so that it does not get there
/// twice. `path` is the path of the request, which begins like that of the `Location`.
pub(crate) fn remove_prefix(headers: &mut HeaderMap, path: &str, prefix: &str) {
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let first = path.split_inclusive('/').take(2).map(str::len).sum();
    let rest = location
        .and_then(|location| location.strip_prefix(prefix))
        .filter(|rest| path.get(..first).is_some_and(|first| rest.starts_with(first)));
    if let Some(rest) = rest.and_then(|rest| HeaderValue::from_str(rest).ok()) {
        headers.insert(header::LOCATION, rest);
    }
}

/// Returns the first member of a header that is a list: that of the proxy which is the nearest to the client.
fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?;
    value.split(',').next().map(str::trim)
}

fn is_from_proxy(extensions: &Extensions, proxies: &[IpNet]) -> bool {
    extensions.get::<PeerAddress>().is_some_and(|address| is_proxy(address.ip(), proxies))
}

/// Whether a host is a name or an address, with or without a port, and has no character with a meaning in a shell or in
/// a header.
fn is_plain(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain)
}

/// Whether a text is a path that leads to the same host in a `Location`, and to one place.
fn is_path(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+=:@/".contains(&byte);
    let mut parts = text.split('/');
    parts.next() == Some("")
        && parts.all(|part| !["", ".", ".."].contains(&part))
        && text.bytes().all(is_allowed)
}
