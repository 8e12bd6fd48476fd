//! The store as a URL, as in `--store` and `RASHOMON_STORE`.

use std::{fmt, path::PathBuf, str::FromStr};

use rashomon_pages::excerpt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    super::values::{as_text, host_and_port},
    replication::Replication,
};

/// The supported stores, for error messages.
const STORE_KINDS: &str =
    "sqlite:DIRECTORY, memory: and cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]";

/// The default port of CQL.
const CQL_PORT: u16 = 9042;

/// The URL of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// `sqlite:DIRECTORY`.
    Sqlite(PathBuf),
    /// `memory:`. The data is lost when the process ends.
    Memory,
    /// `cassandra://...`.
    Cassandra(ClusterUrl),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", "")) => Err("sqlite: needs a directory, as in sqlite:./rashomon-data".to_owned()),
            Some(("sqlite", directory)) => Ok(Self::Sqlite(directory.into())),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => Err("memory: takes nothing after the colon".to_owned()),
            Some(("cassandra", cluster)) => cluster.parse().map(Self::Cassandra),
            Some((scheme, _)) => {
                Err(format!("'{}:' is not a kind of store; a store is one of {STORE_KINDS}", excerpt(scheme)))
            }
            None => {
                let text = excerpt(text);
                Err(format!(
                    "a store is one of {STORE_KINDS}; for this directory write sqlite:{text}, or --data {text}"
                ))
            }
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(directory) => write!(f, "sqlite:{}", directory.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Cassandra(cluster) => fmt::Display::fmt(cluster, f),
        }
    }
}
as_text!(StoreUrl, "a store, such as \"sqlite:./rashomon-data\"");

/// A keyspace of a cluster: `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterUrl {
    pub(super) contact_points: Vec<ContactPoint>,
    pub(super) keyspace: Keyspace,
    pub(super) replication: Option<Replication>,
}

impl FromStr for ClusterUrl {
    type Err = String;

    /// Parses the text after `cassandra:`.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "a cluster is cassandra://HOST[:PORT][,HOST...]/KEYSPACE, as in cassandra://127.0.0.1/rashomon";
        let rest = text.strip_prefix("//").ok_or(FORM)?;
        if rest.contains('@') {
            return Err("a URL must not contain a password, since other users can read command lines: set \
                        user and password_file in [store] of a configuration file"
                .to_owned());
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (hosts, keyspace) = rest.split_once('/').ok_or(FORM)?;
        let contact_points = hosts.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let replication = match query.map(|query| query.split_once('=').unwrap_or((query, ""))) {
            None => None,
            Some(("replication", copies)) => Some(copies.parse()?),
            Some((other, _)) => {
                return Err(format!(
                    "cassandra://...?{} is not supported, only ?replication=N: set the other settings of a \
                     cluster in [store] of a configuration file",
                    excerpt(other)
                ));
            }
        };
        Ok(Self { contact_points, keyspace: keyspace.parse()?, replication })
    }
}

impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cassandra://{}/{}", join_contact_points(&self.contact_points), self.keyspace)?;
        self.replication.as_ref().map_or(Ok(()), |copies| write!(f, "?replication={copies}"))
    }
}

/// Returns the contact points, separated by commas.
pub(super) fn join_contact_points(contact_points: &[ContactPoint]) -> String {
    contact_points.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A node of a cluster that the driver contacts first: a host and the port of CQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContactPoint {
    host: String,
    port: u16,
}

impl ContactPoint {
    /// The host with its port, even if the port is the default.
    pub(super) fn with_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl FromStr for ContactPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = host_and_port(text).ok_or_else(|| {
            format!(
                "'{}' is not a node; write HOST or HOST:PORT, and an IPv6 address as in [::1]:9042",
                excerpt(text)
            )
        })?;
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(CQL_PORT) })
    }
}

impl fmt::Display for ContactPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.port == CQL_PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}
as_text!(ContactPoint, "a node, such as \"10.0.0.1:9042\"");

/// The name of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keyspace(String);

impl Keyspace {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Keyspace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if rashomon_tables_cassandra::is_keyspace(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "'{}' is not a keyspace; write a lower-case letter, then lower-case letters, digits and _, \
                 at most 48 characters",
                excerpt(text)
            ))
        }
    }
}

impl fmt::Display for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
as_text!(Keyspace, "the name of a keyspace, such as \"rashomon\"");
