//! What can be set about a store.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use rashomon_tables::{Error, Result};

use crate::names;

/// How a store is reached. The defaults are those of one data centre with three replicas.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the cluster is asked for first, as `HOST` or `HOST:PORT`; the other nodes are learnt from it.
    /// `127.0.0.1`.
    pub contact_points: Vec<String>,
    /// The keyspace, `[a-z][a-z0-9_]*` and at most 48 letters. `rashomon`.
    pub keyspace: String,
    /// Whether the keyspace and its tables are made where they are not there, and columns added that they lack.
    /// Yes.
    pub create: bool,
    /// How the keyspace is replicated, if it has to be made. One that stands keeps what it has. Three copies.
    pub replication: Replication,
    /// How many replicas answer before a read or a write is answered. [`Consistency::LocalQuorum`].
    pub consistency: Consistency,
    /// Among which replicas swaps are decided. [`SerialConsistency::Serial`].
    pub serial_consistency: SerialConsistency,
    /// The data centre whose nodes are asked; the others are left alone. `None`: all nodes are near.
    pub local_datacenter: Option<String>,
    /// User and password. `None`: the cluster asks for none.
    pub credentials: Option<Credentials>,
    /// A PEM file with the certificates of those who may vouch for the nodes, whose certificates have to name
    /// their addresses. `None`: connections are not encrypted.
    pub tls: Option<PathBuf>,
    /// Whether what is sent is compressed. No.
    pub compression: Option<Compression>,
    /// How long a node may take until the next one is asked beside it, where asking twice does no harm.
    /// 700 ms.
    pub attempt_timeout: Duration,
    /// How long a request may take with all its attempts. Two seconds.
    pub request_timeout: Duration,
    /// How long finding the cluster may take. Four seconds.
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
    /// `Invalid` unless they can be meant.
    pub(crate) fn check(&self) -> Result<()> {
        names::check_keyspace(&self.keyspace)?;
        if self.contact_points.is_empty() {
            return Err(Error::Invalid("a cluster without a contact point".to_owned()));
        }
        Ok(())
    }
}

/// Passwords are not for logs.
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

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// How many copies there are of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// So many, wherever the nodes are: for one data centre.
    Simple(u32),
    /// So many in each data centre, by its name.
    ByDatacenter(BTreeMap<String, u32>),
}

/// How many replicas answer before a read or a write is answered. There is none below a quorum: with one
/// answer alone, what was acknowledged need not be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Most of those in the local data centre.
    LocalQuorum,
    /// Most of all.
    Quorum,
    /// All of them.
    All,
}

/// Among which replicas swaps are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialConsistency {
    /// Among all: right wherever swaps come from.
    Serial,
    /// Among those of the local data centre: sooner, and right only where all swaps come from there.
    LocalSerial,
}

/// How what is sent is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Snappy, which is smaller and slower.
    Snappy,
}
