//! The address of a server.

use std::{fmt, net::IpAddr, str::FromStr};

use rashomon_records::excerpt;

/// The address of a server: `http://HOST:PORT` or `https://HOST:PORT`, and perhaps the path that a proxy adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    is_https: bool,
    /// The host. An IPv6 address is in brackets.
    host: String,
    /// `HOST:PORT`.
    authority: String,
    /// The prefix of the API's path, if a proxy adds one.
    prefix: String,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: http::Uri = text.parse().map_err(|_| wrong(text))?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong(text)),
        };
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(|| wrong(text))?;
        if uri.query().is_some() {
            return Err(wrong(text));
        }
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let host = authority.host().to_owned();
        Ok(Self { is_https, authority: format!("{host}:{port}"), host, prefix })
    }
}

impl ServerUrl {
    /// Whether the server uses TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The host without its port. An IPv6 address is without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let address = self.host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        address.unwrap_or(&self.host)
    }

    /// Whether the host is named as one of this machine: `localhost`, or a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The part of the path before `/v1/`: empty, or without a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn wrong(text: &str) -> String {
    format!("'{}' is not the address of a server; write it as in http://127.0.0.1:7231", excerpt(text))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<ServerUrl>().map(|url| url.to_string())
    }

    #[test]
    fn address_has_a_host_and_optional_port_and_prefix() {
        assert_eq!(parsed("http://127.0.0.1:7231"), Ok("http://127.0.0.1:7231".to_owned()));
        assert_eq!(parsed("http://[::1]:7231/"), Ok("http://[::1]:7231".to_owned()));
        assert_eq!(
            parsed("http://wiki.example.org/store/"),
            Ok("http://wiki.example.org:80/store".to_owned())
        );
        assert_eq!(parsed("https://wiki.example.org"), Ok("https://wiki.example.org:443".to_owned()));
        assert_eq!("https://[::1]:7231".parse::<ServerUrl>().unwrap().host(), "::1");
    }

    #[test]
    fn loopback_is_distinguished_from_other_hosts() {
        for (text, is_loopback) in [
            ("http://localhost:7231", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:7231", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://localhost.example.org", false),
            ("http://192.0.2.1", false),
        ] {
            assert_eq!(text.parse::<ServerUrl>().unwrap().is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn invalid_address_is_refused_with_an_example() {
        for text in ["127.0.0.1:7231", "ftp://x", "http://", "http://a/?b", "http://user@host/", "x y"] {
            assert!(parsed(text).unwrap_err().contains("http://127.0.0.1:7231"), "{text}");
        }
    }
}
