//! The address of the client, which may be behind proxies.

use std::net::IpAddr;

use crate::connections::PeerAddress;
use http::{Extensions, HeaderMap, HeaderName, header};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The address of the client that sent a request. `None` if the request came through no connection, as in tests.
///
/// A proxy appends the address of its own client to `X-Forwarded-For`. The client can send such a header itself,
/// so only addresses that a trusted proxy has appended count: the list is read from its end, and the first
/// address that is not one of `proxies` is the client. If there is none, the last address that was read counts.
pub(crate) fn client_address(
    extensions: &Extensions,
    headers: &HeaderMap,
    proxies: &[IpNet],
) -> Option<IpAddr> {
    let mut address = extensions.get::<PeerAddress>()?.ip();
    if !is_proxy(address, proxies) {
        return Some(address);
    }
    let forwarded = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let forwarded: Vec<&str> = forwarded.flat_map(|value| value.split(',')).collect();
    for text in forwarded.into_iter().rev() {
        // Nothing before an unreadable part can be trusted.
        let Some(named) = parse(text.trim()) else { break };
        address = named;
        if !is_proxy(address, proxies) {
            break;
        }
    }
    Some(address)
}

/// Whether a proxy has sent the request, by the headers that proxies add.
pub(crate) fn came_through_a_proxy(headers: &HeaderMap) -> bool {
    [FORWARDED_FOR, FORWARDED_PROTO, header::FORWARDED, header::VIA]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// Whether an address is that of one of the configured proxies.
pub(crate) fn is_proxy(address: IpAddr, proxies: &[IpNet]) -> bool {
    proxies.iter().any(|network| network.contains(&address))
}

/// Reads an address. Some proxies append the port, and write IPv6 in brackets.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(bare, _)| bare);
    let address: IpAddr = match bare.parse() {
        Ok(address) => address,
        Err(_) => text.parse::<std::net::SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, headers: &[&str]) -> String {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress::new(peer.parse().unwrap()));
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(FORWARDED_FOR, header.parse().unwrap());
        }
        let proxies = ["127.0.0.1/32", "10.0.0.0/8"].map(|network| network.parse().unwrap());
        client_address(&extensions, &map, &proxies).unwrap().to_string()
    }

    #[test]
    fn client_of_a_trusted_proxy_is_the_address_that_it_appended() {
        assert_eq!(client("127.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(client("127.0.0.1", &["198.51.100.1, 192.0.2.7, 10.1.2.3"]), "192.0.2.7");
        assert_eq!(client("127.0.0.1", &["198.51.100.1", "192.0.2.7,10.1.2.3"]), "192.0.2.7");
        for (text, address) in [
            ("192.0.2.7:1234", "192.0.2.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(client("10.0.0.1", &[text]), address, "{text}");
        }
    }

    #[test]
    fn header_of_another_client_is_ignored() {
        assert_eq!(client("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
    }

    #[test]
    fn unreadable_or_missing_parts_end_the_list() {
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["unknown"]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["198.51.100.1, secret, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(client("127.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
    }
}
