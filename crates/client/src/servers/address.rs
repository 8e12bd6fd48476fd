//! The address of a server.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::{ConfigError, error::excerpt};

/// The address of a server: `http://HOST:PORT` or `https://HOST:PORT`, and perhaps the path that a proxy adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    is_https: bool,
    authority: String,
    host: String,
    /// The path before `/v1/`: empty, or without a slash at its end.
    prefix: String,
}

impl FromStr for Address {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refused = || ConfigError::Address(excerpt(text));
        let uri: http::Uri = text.parse().map_err(|_| refused())?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused()),
        };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(refused)?;
        if uri.query().is_some() || text.contains('#') || authority.host().is_empty() {
            return Err(refused());
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { is_https, authority: authority.to_string(), host: authority.host().to_owned(), prefix })
    }
}

impl Address {
    /// Whether nobody can read a token on its way to the server: by TLS, or because the server is on this machine.
    pub(crate) fn protects_token(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        self.is_https
            || host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
    }

    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_host_and_optional_port_and_prefix() {
        for (text, shown) in [
            ("http://127.0.0.1:7231", "http://127.0.0.1:7231"),
            ("http://[::1]:7231/", "http://[::1]:7231"),
            ("https://wiki.example.org/store/", "https://wiki.example.org/store"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        for text in
            ["", "127.0.0.1:7231", "ftp://x", "http://", "http://:80", "http://a/?b", "http://u@host/", "x y"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn token_is_protected_by_tls_and_on_this_machine() {
        for (text, expected) in [
            ("https://example.org", true),
            ("http://localhost:7231", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:1", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://localhost.example.org", false),
            ("http://192.0.2.1", false),
            ("http://example.org", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().protects_token(), expected, "{text}");
        }
    }
}
