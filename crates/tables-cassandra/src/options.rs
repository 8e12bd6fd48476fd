//! The options of a store.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use rashomon_tables::{Error, Result};

use crate::names;

/// How to connect to a store. The defaults suit one data centre with three replicas.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The nodes to contact first, as `HOST` or `HOST:PORT`. These nodes name the other nodes. Default:
    /// `127.0.0.1`.
    pub contact_points: Vec<String>,
    /// The keyspace, `[a-z][a-z0-9_]*` and at most 48 characters. Default: `rashomon`.
    pub keyspace: String,
    /// Whether to create the keyspace and its tables if they are missing. Default: yes.
    pub create: bool,
    /// The replication of a new keyspace. An existing keyspace keeps its replication. Default: three copies.
    pub replication: Replication,
    /// How many replicas must answer before a read or a write is answered. Default:
    /// [`Consistency::LocalQuorum`].
    pub consistency: Consistency,
    /// The replicas that decide swaps. Default: [`SerialConsistency::Serial`].
    pub serial_consistency: SerialConsistency,
    /// The data centre whose nodes get all requests. `None`: the nodes of all data centres get requests.
    pub local_datacenter: Option<String>,
    /// User and password. `None`: the cluster does not ask for a password.
    pub credentials: Option<Credentials>,
    /// A PEM file with the certificates of the authorities that vouch for the nodes. The certificate of a
    /// node has to name the address of the node. `None`: connections are not encrypted.
    pub tls: Option<PathBuf>,
    /// How the traffic with the nodes is compressed. Default: not at all.
    pub compression: Option<Compression>,
    /// How long to wait for a node before another node is asked as well. Only for requests that are
    /// idempotent. Default: 700 ms.
    pub attempt_timeout: Duration,
    /// The timeout of a request, including all its attempts. Default: two seconds.
    pub request_timeout: Duration,
    /// The timeout for finding the cluster. Default: four seconds.
    pub connect_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            contact_points: vec!["127.0.0.1".to_owned()],
            keyspace: "rashomon".to_owned(),
            create: true,
            replication: Replication::Simple(3),
            consistency: Consistency::LocalQuorum,
            serial_consistency: SerialConsistency::Serial,
            local_datacenter: None,
            credentials: None,
            tls: None,
            compression: None,
            attempt_timeout: Duration::from_millis(700),
            request_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(4),
        }
    }
}

impl Options {
    /// `Invalid` if an option has an impossible value.
    pub(crate) fn check(&self) -> Result<()> {
        names::check_keyspace(&self.keyspace)?;
        if self.contact_points.is_empty() {
            return Err(Error::Invalid(
                "the cluster has no contact point: name at least one host".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Written by hand to keep the password out of logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("contact_points", &self.contact_points)
            .field("keyspace", &self.keyspace)
            .field("create", &self.create)
            .field("replication", &self.replication)
            .field("consistency", &self.consistency)
            .field("serial_consistency", &self.serial_consistency)
            .field("local_datacenter", &self.local_datacenter)
            .field("user", &self.credentials.as_ref().map(|credentials| &credentials.user))
            .field("tls", &self.tls)
            .field("compression", &self.compression)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// The role that connects, and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// The number of copies of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// This many copies, on any nodes: for one data centre.
    Simple(u32),
    /// This many copies in each data centre, by its name.
    ByDatacenter(BTreeMap<String, u32>),
}

/// How many replicas must answer before a read or a write is answered. No level is below a quorum: with a
/// single answer, a read could miss an acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Most replicas of the local data centre.
    LocalQuorum,
    /// Most of all replicas.
    Quorum,
    /// All replicas.
    All,
}

/// The replicas that decide swaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialConsistency {
    /// The replicas of all data centres: correct wherever swaps come from.
    Serial,
    /// The replicas of the local data centre: faster, and correct only if all swaps come from there.
    LocalSerial,
}

/// How the traffic with the nodes is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Snappy, which compresses better, but is slower.
    Snappy,
}
