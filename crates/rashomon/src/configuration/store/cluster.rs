//! The settings of a cluster.

use std::{fs::File, path::PathBuf, time::Duration};

use rashomon_tables_cassandra::{self as cassandra, Credentials, Options};
use serde::{Deserialize, Serialize};

use super::{
    super::{errors::ConfigError, values::Span},
    password::Password,
    replication::Replication,
    url::{ClusterUrl, ContactPoint, Keyspace, StoreUrl, join_contact_points},
};

/// The table `[store]` of a file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCluster {
    pub(super) url: Option<StoreUrl>,
    pub(super) contact_points: Option<Vec<ContactPoint>>,
    pub(super) keyspace: Option<Keyspace>,
    pub(super) replication: Option<Replication>,
    consistency: Option<Consistency>,
    serial_consistency: Option<SerialConsistency>,
    local_datacenter: Option<String>,
    tls_ca_file: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    compression: Option<Compression>,
    attempt_timeout: Option<Span>,
    request_timeout: Option<Span>,
    connect_timeout: Option<Span>,
}

/// How to reach a cluster, and the keyspace to use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClusterSettings {
    contact_points: Vec<ContactPoint>,
    keyspace: Keyspace,
    replication: Replication,
    consistency: Consistency,
    serial_consistency: SerialConsistency,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_datacenter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<Compression>,
    attempt_timeout: Span,
    request_timeout: Span,
    connect_timeout: Span,
}

impl RawCluster {
    /// Returns the settings in effect, with the defaults of the store. Adds errors in their combination to `errors`.
    pub(super) fn into_settings(self, errors: &mut Vec<String>) -> ClusterSettings {
        if self.contact_points.as_ref().is_none_or(Vec::is_empty) {
            errors.push("a cluster needs contact_points, as in contact_points = [\"10.0.0.1\"]".to_owned());
        }
        if self.user.is_some() != self.password_file.is_some() {
            errors.push("user and password_file belong together: set both or neither".to_owned());
        }
        for (name, timeout) in [
            ("attempt_timeout", self.attempt_timeout),
            ("request_timeout", self.request_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if timeout == Some(Span(Duration::ZERO)) {
                errors.push(format!(
                    "{name} is 0s, which leaves no time for anything: write a time such as 2s"
                ));
            }
        }
        let default = ClusterSettings::default();
        ClusterSettings {
            contact_points: self.contact_points.unwrap_or(default.contact_points),
            keyspace: self.keyspace.unwrap_or(default.keyspace),
            replication: self.replication.unwrap_or(default.replication),
            consistency: self.consistency.unwrap_or(default.consistency),
            serial_consistency: self.serial_consistency.unwrap_or(default.serial_consistency),
            local_datacenter: self.local_datacenter,
            tls_ca_file: self.tls_ca_file,
            user: self.user,
            password_file: self.password_file,
            compression: self.compression,
            attempt_timeout: self.attempt_timeout.unwrap_or(default.attempt_timeout),
            request_timeout: self.request_timeout.unwrap_or(default.request_timeout),
            connect_timeout: self.connect_timeout.unwrap_or(default.connect_timeout),
        }
    }

    /// Applies the parts of a URL.
    pub(super) fn with_url(self, url: ClusterUrl) -> Self {
        let ClusterUrl { contact_points, keyspace, replication } = url;
        Self {
            contact_points: Some(contact_points),
            keyspace: Some(keyspace),
            replication: replication.or(self.replication),
            ..self
        }
    }
}

impl Default for ClusterSettings {
    /// The defaults of the store.
    fn default() -> Self {
        let known = Options::default();
        Self {
            contact_points: (known.contact_points.iter())
                .map(|point| point.parse().expect("built-in contact points are nodes"))
                .collect(),
            keyspace: known.keyspace.parse().expect("the built-in name is a keyspace"),
            replication: known.replication.into(),
            consistency: known.consistency.into(),
            serial_consistency: known.serial_consistency.into(),
            local_datacenter: None,
            tls_ca_file: None,
            user: None,
            password_file: None,
            compression: None,
            attempt_timeout: Span(known.attempt_timeout),
            request_timeout: Span(known.request_timeout),
            connect_timeout: Span(known.connect_timeout),
        }
    }
}

impl ClusterSettings {
    /// The cluster in one line, without the replication.
    pub(crate) fn url(&self) -> String {
        format!("cassandra://{}/{}", join_contact_points(&self.contact_points), self.keyspace)
    }

    /// Returns the settings with another replication.
    pub(crate) fn with_replication(self, replication: Replication) -> Self {
        Self { replication, ..self }
    }

    /// The options of the store, without user and password.
    pub(crate) fn options(&self) -> Options {
        Options {
            contact_points: self.contact_points.iter().map(ContactPoint::with_port).collect(),
            keyspace: self.keyspace.as_str().to_owned(),
            replication: (&self.replication).into(),
            consistency: self.consistency.into(),
            serial_consistency: self.serial_consistency.into(),
            local_datacenter: self.local_datacenter.clone(),
            credentials: None,
            tls: self.tls_ca_file.clone(),
            compression: self.compression.map(Into::into),
            attempt_timeout: self.attempt_timeout.0,
            request_timeout: self.request_timeout.0,
            connect_timeout: self.connect_timeout.0,
            ..Options::default()
        }
    }

    /// Returns the options of the store. Reads the files that the settings name, and passes warnings about them to
    /// `warn`.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or if the password in it cannot be used.
    pub(crate) fn read_options(&self, warn: impl FnOnce(String)) -> Result<Options, ConfigError> {
        if let Some(path) = &self.tls_ca_file {
            File::open(path).map_err(|source| ConfigError::unreadable("tls_ca_file", path, source))?;
        }
        let mut options = self.options();
        if let (Some(user), Some(path)) = (&self.user, &self.password_file) {
            let password = Password::read(path)?;
            options.credentials = Some(Credentials { user: user.clone(), password: password.text });
            if let Some(warning) = password.warning {
                warn(warning);
            }
        }
        Ok(options)
    }
}

/// Defines an enumeration for the words of a setting, and converts it to the type of the store.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name { $($word),* }

        impl From<$name> for cassandra::$name {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word),* }
            }
        }

        impl From<cassandra::$name> for $name {
            fn from(word: cassandra::$name) -> Self {
                match word { $(cassandra::$name::$word => Self::$word),* }
            }
        }
    };
}

words! {
    /// How many replicas must answer before a read or a write is answered.
    Consistency { LocalQuorum, Quorum, All }
}
words! {
    /// The replicas that decide swaps.
    SerialConsistency { Serial, LocalSerial }
}
words! {
    /// The compression of the connection.
    Compression { Lz4, Snappy }
}
