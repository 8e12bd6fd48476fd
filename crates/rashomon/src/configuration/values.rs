//! The values of settings, parsed from the text of a file, an environment variable or a flag.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use clap::ValueEnum;
use rashomon_clock::length;
use rashomon_pages::excerpt;
use rashomon_server::audit_log::Target;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Implements deserialisation from a TOML string, and serialisation to a TOML string. `expected` describes
/// the value in errors.
macro_rules! as_text {
    ($name:ty, $expected:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}
pub(super) use as_text;

/// The address that the server listens on: an IP address or `localhost`, and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse().map(Self).map_err(|_| {
            "an address to listen on is an IP address and a port, such as 127.0.0.1:7231, [::1]:7231, \
             or 0.0.0.0:7231 for all addresses"
                .to_owned()
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
as_text!(Listen, "an address and a port, such as \"127.0.0.1:7231\"");

/// A number of bytes: `256 MiB`, `64 MB`, or just a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<bytesize::ByteSize>().map(|size| Self(size.as_u64())).map_err(|_| {
            format!("'{}' is not a size; write 256 MiB, 64 MB, or a number of bytes", excerpt(text))
        })
    }
}

impl fmt::Display for ByteSize {
    /// Uses the largest unit that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"256 MiB\", or a number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A length of time: `30s`, `5m`, `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        length::parse(text).map(Self).ok_or_else(|| {
            format!("'{}' is not a length of time; write 250ms, 30s, 5m, 1h 30m or 30d", excerpt(text))
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::SignedDuration::try_from(self.0) {
            Ok(duration) => write!(f, "{duration:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}
as_text!(Span, "a length of time, such as \"30s\"");

/// A name under which clients reach the server, as in the `Host` header. Without a port, it applies to every
/// port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host(String);

impl Host {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if host_and_port(text).is_some() {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(format!(
                "'{}' is not a host; write a name as in en.example.org, without https://",
                excerpt(text)
            ))
        }
    }
}

/// A host that requests may name, or `*` for any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerName {
    /// Any host.
    Any,
    /// This host.
    Host(Host),
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "*" => Ok(Self::Any),
            host => host.parse().map(Self::Host).map_err(|error| format!("{error}; * is any host")),
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Host(host) => host.fmt(f),
        }
    }
}
as_text!(ServerName, "a host, such as \"en.example.org\", or \"*\"");

/// An origin as browsers send it: in lower case, without the default port of its scheme.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin(String);

impl Origin {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "'{}' is not an origin; write the scheme, the host, and the port unless it is the default \
                 one, as in https://en.example.org, without a slash at the end",
                excerpt(text)
            )
        };
        let lower = text.to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://").ok_or_else(refused)?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(refused()),
        };
        let (host, port) = host_and_port(authority).ok_or_else(refused)?;
        Ok(Self(match port.filter(|port| *port != usual) {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(Origin, "an origin, such as \"https://en.example.org\"");

/// An address, or a network of addresses as in `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) ipnet::IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address =
            || text.parse::<std::net::IpAddr>().map(|address| ipnet::IpNet::from(address.to_canonical()));
        text.parse().or_else(|_| address()).map(Self).map_err(|_| {
            format!(
                "'{}' is neither an IP address, such as 127.0.0.1, nor a network, such as 10.0.0.0/8",
                excerpt(text)
            )
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
as_text!(Network, "an IP address or a network, such as \"10.0.0.0/8\"");

/// Splits `HOST[:PORT]`. `None` if the text has another form. An IPv6 address is in brackets.
pub(super) fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
    let fits = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() <= 253 && host.bytes().all(name),
    };
    fits.then_some((host, port))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(Host, "a host, such as \"en.example.org\"");

/// A media type, as in a `Content-Type` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentType(String);

impl ContentType {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ContentType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, subtype) =
            text.split(';').next().unwrap_or_default().trim().split_once('/').unwrap_or(("", ""));
        let token = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
        };
        let visible = text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if token(kind) && token(subtype) && visible {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("'{}' is not a content type; write it as in text/html; charset=utf-8", excerpt(text)))
        }
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(ContentType, "a content type, such as \"text/html; charset=utf-8\"");

/// The header in which answers carry their surrogate keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SurrogateKeyHeader(String);

impl SurrogateKeyHeader {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SurrogateKeyHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if ["xkey", "surrogate-key", "cache-tag"].contains(&lower.as_str()) || lower.starts_with("x-") {
            http::HeaderName::from_bytes(lower.as_bytes())
                .map(|name| Self(name.as_str().to_owned()))
                .map_err(|_| format!("'{}' is not the name of a header", excerpt(text)))
        } else {
            Err(format!(
                "'{}' cannot carry surrogate keys: use xkey, Surrogate-Key, Cache-Tag, or a name that begins with X-",
                excerpt(text)
            ))
        }
    }
}

impl fmt::Display for SurrogateKeyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(SurrogateKeyHeader, "the name of a header, such as \"xkey\"");

/// Access rights as a single word. The only word permits everything to every client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    /// Every client that can connect may do everything
    Open,
}

/// Which requests are logged at level `info` or higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessLog {
    /// All requests
    All,
    /// Requests with a status of 400 or more
    Failures,
    /// Only failures of the server (500 or more)
    Off,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// The log level: one level for all modules, or levels by module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLevel(String);

impl LogLevel {
    /// The filter of log lines. The Cassandra driver reports problems in terms of its internals, and the
    /// server itself reports their consequences. So lines of the driver are shown only if the setting names
    /// the driver.
    pub(crate) fn targets(&self) -> Targets {
        const DRIVER: &str = "scylla";
        let targets: Targets = self.0.parse().unwrap_or_default();
        if self.0.contains(DRIVER) { targets } else { targets.with_target(DRIVER, LevelFilter::OFF) }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        // `Targets` treats an unknown word as a module, so a single word must be checked to be a level.
        let known = text.split(',').all(|part| part.contains('=') || levels.contains(&part));
        match text.parse::<Targets>() {
            Ok(_) if known => Ok(Self(text.to_owned())),
            _ => Err(format!(
                "'{}' is not a level; write {}, or levels by module as in info,rashomon_server=debug",
                excerpt(text),
                levels.join(", ")
            )),
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(LogLevel, "a level, such as \"info\"");

/// Where the lines of the audit log go: a file, or `stderr` for standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditLogTarget(pub Target);

impl AuditLogTarget {
    const STANDARD_ERROR: &str = "stderr";
}

impl FromStr for AuditLogTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => {
                Err("the audit log is a file, or stderr for standard error; leave the setting out for none"
                    .to_owned())
            }
            Self::STANDARD_ERROR => Ok(Self(Target::StandardError)),
            path => Ok(Self(Target::File(path.into()))),
        }
    }
}

impl fmt::Display for AuditLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Target::StandardError => f.write_str(Self::STANDARD_ERROR),
            Target::File(path) => path.display().fmt(f),
        }
    }
}
as_text!(AuditLogTarget, "a file, such as \"/var/log/rashomon/audit.log\", or \"stderr\"");

#[cfg(test)]
mod tests {
    use super::*;

    fn same<T: FromStr<Err = String> + fmt::Display>(text: &str) {
        assert_eq!(text.parse::<T>().map(|value| value.to_string()), Ok(text.to_owned()));
    }

    fn refused<T: FromStr<Err = String> + fmt::Debug>(text: &str, because: &str) {
        let error = text.parse::<T>().expect_err(text);
        assert!(error.contains(because), "{text}: {error}");
    }

    #[test]
    fn values_are_printed_as_they_are_read() {
        same::<Listen>("[::1]:7231");
        same::<ByteSize>("256 MiB");
        same::<ByteSize>("1000001 B");
        same::<ByteSize>("0 B");
        same::<Span>("1h 30m");
        same::<Span>("250ms");
        same::<Host>("en.example.org");
        same::<Host>("en.example.org:8080");
        same::<Host>("[::1]");
        same::<Host>("[::1]:7231");
        same::<ServerName>("*");
        same::<ServerName>("en.example.org:8080");
        same::<Origin>("https://en.example.org");
        same::<Origin>("http://[::1]:8080");
        same::<ContentType>("text/html; charset=utf-8");
        same::<LogLevel>("info,rashomon_server=debug");
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!("64MB".parse(), Ok(ByteSize(64_000_000)));
        assert_eq!("5 min".parse(), Ok(Span(Duration::from_secs(300))));
        assert_eq!("30d".parse(), Ok(Span(Duration::from_secs(30 * 24 * 3600))));
        assert_eq!(
            "localhost:80".parse::<Listen>().map(|listen| listen.to_string()),
            Ok("127.0.0.1:80".to_owned())
        );
        assert_eq!(
            "EN.Example.org".parse::<Host>().map(|host| host.to_string()),
            Ok("en.example.org".to_owned())
        );
        assert_eq!(
            "HTTPS://EN.Example.org:443".parse::<Origin>().map(|origin| origin.to_string()),
            Ok("https://en.example.org".to_owned())
        );
    }

    #[test]
    fn wrong_value_is_refused_with_advice() {
        refused::<Listen>("7231", "127.0.0.1:7231");
        refused::<ByteSize>("-1", "256 MiB");
        refused::<Span>("30", "30s");
        refused::<Span>("-5s", "30s");
        refused::<Host>("https://en.example.org", "without https://");
        refused::<Host>("en.example.org:http", "is not a host");
        refused::<Host>("::1", "is not a host");
        refused::<ServerName>("*.example.org", "* is any host");
        for origin in ["en.example.org", "https://en.example.org/", "null", "*", "file://x", "https://a/b"] {
            refused::<Origin>(origin, "as in https://en.example.org");
        }
        refused::<ContentType>("html", "text/html");
        refused::<ContentType>("text/html\r\nx: y", "text/html");
        refused::<LogLevel>("loud", "info");
    }
}
