//! The address of the server that receives dumps.

use std::{fmt, str::FromStr};

use rashomon_buckets::excerpt;

/// The server that receives dumps: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    authority: String,
    /// The prefix of the API's path, if a proxy adds one.
    prefix: String,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: http::Uri = text.parse().map_err(|_| wrong(text))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(
                    "https is not supported: use the server's own http address, or a tunnel, as in ssh -L \
                     7231:127.0.0.1:7231 HOST"
                        .to_owned(),
                );
            }
            _ => return Err(wrong(text)),
        }
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(|| wrong(text))?;
        if uri.query().is_some() {
            return Err(wrong(text));
        }
        let port = authority.port_u16().unwrap_or(80);
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { authority: format!("{}:{port}", authority.host()), prefix })
    }
}

impl ServerUrl {
    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The part of the path before `/v1/`: empty, or without a slash at its end.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn wrong(text: &str) -> String {
    format!("'{}' is not the address of a server; write it as in http://127.0.0.1:7231", excerpt(text))
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
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
    }

    #[test]
    fn invalid_address_is_refused_with_an_example() {
        for text in ["127.0.0.1:7231", "ftp://x", "http://", "http://a/?b", "http://user@host/", "x y"] {
            assert!(parsed(text).unwrap_err().contains("http://127.0.0.1:7231"), "{text}");
        }
        assert!(parsed("https://127.0.0.1").unwrap_err().contains("https is not supported"));
    }
}
