//! The hosts that may be reached.

use url::{Host, Url};

/// One host, and the port on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    host: Host,
    /// The port. `None` means the default port of the scheme.
    port: Option<u16>,
}

/// The hosts that may be reached, and no others.
///
/// The check compares the hosts that the URL parser returns, and the connection uses the same result of the parser. So
/// the check and the connection always mean the same host, even with text before an `@`, another spelling of an
/// address, or capital letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<AllowedHost>);

/// The reason why a text is not a host, and how to correct it.
type Reason = String;

impl Hosts {
    /// Parses the configured hosts. The error names the invalid text.
    pub fn parse(texts: &[String]) -> Result<Self, (String, Reason)> {
        let parsed = texts.iter().map(|text| AllowedHost::parse(text).map_err(|why| (text.clone(), why)));
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Whether this URL may be requested.
    pub fn allow(&self, url: &Url) -> bool {
        let Some(host) = url.host() else { return false };
        self.0.iter().any(|allowed| {
            let port_fits = match allowed.port {
                Some(port) => url.port_or_known_default() == Some(port),
                // The parser drops the port if it is the default port of the scheme.
                None => url.port().is_none(),
            };
            port_fits && allowed.host == host.to_owned()
        })
    }
}

impl AllowedHost {
    fn parse(text: &str) -> Result<Self, Reason> {
        if text.contains(['/', '@']) {
            return Err("write the host alone, without http:// before it or a path after it".to_owned());
        }
        if text.contains('*') {
            return Err("a pattern is not a host: name each host".to_owned());
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => {
                let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                let port = digits.then(|| port.parse().ok()).flatten().filter(|port| *port > 0);
                let port =
                    port.ok_or("a port is a number from 1 to 65535; write an IPv6 address in brackets")?;
                (host, Some(port))
            }
            _ => (text, None),
        };
        let host = Host::parse(host).map_err(|error| {
            format!("{error}; write a name or an address, such as wiki.example.org, 10.0.0.7:8080 or [::1]")
        })?;
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(texts: &[&str]) -> Hosts {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        Hosts::parse(&texts).unwrap()
    }

    #[track_caller]
    fn check(allowed: &str, url: &str, expected: bool) {
        let url = Url::parse(url).unwrap();
        assert_eq!(hosts(&[allowed]).allow(&url), expected, "{allowed}: {url}");
    }

    #[test]
    fn only_the_exact_host_is_allowed() {
        check("wiki.example", "http://wiki.example/a", true);
        check("wiki.example", "https://WIKI.example/a", true);
        check("wiki.example", "http://www.wiki.example/", false);
        check("wiki.example", "http://wiki.example.evil/", false);
        check("wiki.example", "http://wiki.example./", false);
        check("wiki.example", "http://evil/wiki.example", false);
        check("wiki.example", "http://evil/?wiki.example", false);
        check("bücher.example", "http://xn--bcher-kva.example/", true);
        assert!(!hosts(&[]).allow(&Url::parse("http://wiki.example/").unwrap()));
    }

    #[test]
    fn misleading_spellings_of_hosts_are_resolved() {
        check("wiki.example", "http://wiki.example@evil/", false);
        check("wiki.example", "http://wiki.example:80@evil/", false);
        check("wiki.example", "http://wiki.example%2F@evil/", false);
        check("wiki.example", r"http://evil\@wiki.example/", false);
        check("wiki.example", "http://evil#@wiki.example/", false);
        check("wiki.example", "http://evil?@wiki.example/", false);
        check("127.0.0.1", "http://2130706433/", true);
        check("127.0.0.1", "http://0x7f.1/", true);
        check("127.0.0.1", "http://localhost/", false);
        check("127.0.0.1", "http://[::ffff:127.0.0.1]/", false);
    }

    #[test]
    fn ports_are_compared() {
        check("wiki.example", "http://wiki.example:80/", true);
        check("wiki.example", "https://wiki.example:443/", true);
        check("wiki.example", "http://wiki.example:443/", false);
        check("wiki.example", "http://wiki.example:8080/", false);
        check("wiki.example:8080", "http://wiki.example:8080/", true);
        check("wiki.example:8080", "http://wiki.example/", false);
        check("wiki.example:80", "http://wiki.example/", true);
        check("wiki.example:80", "https://wiki.example/", false);
    }

    #[test]
    fn ipv6_addresses_are_in_brackets() {
        check("[::1]", "http://[::1]/", true);
        check("[::1]", "http://[0:0:0:0:0:0:0:1]/", true);
        check("[::1]:8080", "http://[::1]:8080/", true);
        check("[::1]:8080", "http://[::1]/", false);
        check("[::1]", "http://[::2]/", false);
    }

    #[test]
    fn invalid_hosts_are_refused_with_a_remedy() {
        for (text, cure) in [
            ("", "such as"),
            ("http://wiki.example", "without http://"),
            ("wiki.example/w", "without http://"),
            ("me@wiki.example", "without http://"),
            ("*.example", "name each host"),
            ("wiki.example:", "1 to 65535"),
            ("wiki.example:0", "1 to 65535"),
            ("wiki.example:+80", "1 to 65535"),
            ("wiki.example:99999", "1 to 65535"),
            ("::1", "such as"),
            ("fe80::a", "brackets"),
            ("a b", "such as"),
        ] {
            let (named, why) = Hosts::parse(&[text.to_owned()]).unwrap_err();
            assert!(named == text && why.contains(cure), "{text}: {why}");
        }
    }
}
