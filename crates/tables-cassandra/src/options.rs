//! The options with which a store connects to its cluster.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use rashomon_tables::{Error, Result};

use crate::names;

/// The options with which a store connects to its cluster. The defaults suit one data centre with three replicas.
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
    /// The number of replicas that have to answer a read or a write. Default: [`Consistency::LocalQuorum`].
    pub consistency: Consistency,
    /// The replicas that decide swaps. Default: [`SerialConsistency::Serial`].
    pub serial_consistency: SerialConsistency,
    /// The data centre whose nodes get all requests. `None`: the nodes of all data centres get requests.
    pub local_datacenter: Option<String>,
    /// The user and the password. `None`: the cluster does not require a password.
    pub credentials: Option<Credentials>,
    /// A PEM file with the certificates of the authorities that sign the certificates of the nodes. The certificate
    /// of a node has to contain the address of the node. `None`: connections are not encrypted.
    pub tls: Option<PathBuf>,
    /// The compression of the traffic with the nodes. `None`, the default, means no compression.
    pub compression: Option<Compression>,
    /// How long a request waits for a node before it is sent to another node, too. This is only for idempotent
    /// requests. Default: 700 ms.
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
    /// Checks the options. `Invalid` if an option has an impossible value.
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

/// Omits the password, so that it is in no log.
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
    /// The name of the role.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// The number of copies of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// The number of copies, on any nodes. This is for one data centre.
    Simple(u32),
    /// The number of copies in each data centre, by the name of the data centre.
    ByDatacenter(BTreeMap<String, u32>),
}

/// The number of replicas that have to answer a read or a write. No level is below a quorum: with a single answer, a
/// read could miss an acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// A majority of the replicas of the local data centre.
    LocalQuorum,
    /// A majority of all replicas.
    Quorum,
    /// All replicas.
    All,
}

/// The replicas that decide swaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialConsistency {
    /// The replicas of all data centres. This is correct for swaps from any data centre.
    Serial,
    /// The replicas of the local data centre. This is faster, and correct only if all swaps come from this data
    /// centre.
    LocalSerial,
}

/// The compression of the traffic with the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Snappy, which compresses about as well as LZ4, but is slower.
    Snappy,
}
