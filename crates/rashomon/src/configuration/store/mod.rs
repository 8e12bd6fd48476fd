//! The store: a URL, or, in a file, a table with all settings of a cluster.

mod cluster;
mod password;
mod replication;
mod url;

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::Spanned;

use self::cluster::RawCluster;
pub(crate) use self::{cluster::ClusterSettings, replication::Replication, url::StoreUrl};
use super::{DEFAULT_DIRECTORY, File, Problem, Span};

/// The store in a file: `store = "URL"`, or `[store]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawStore {
    /// A URL.
    Url(StoreUrl),
    /// A table.
    Table(Box<RawCluster>),
}

impl<'de> Deserialize<'de> for RawStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawStore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a store such as \"sqlite:DIRECTORY\", or a table with the settings of a cluster")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawStore, E> {
                text.parse().map(RawStore::Url).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawStore, A::Error> {
                let table = RawCluster::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RawStore::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The store with all its settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreSettings {
    /// In a directory.
    Sqlite(PathBuf),
    /// In memory, and lost when the process ends.
    Memory,
    /// In a keyspace of a cluster.
    Cassandra(Box<ClusterSettings>),
}

impl StoreSettings {
    /// Returns the store in effect: from flags and environment, otherwise from the file, otherwise the default. If
    /// flags or the environment name a cluster, the other settings of a cluster in the file apply to that cluster.
    pub(super) fn merge(
        flag: Option<StoreUrl>,
        from_file: Option<Spanned<RawStore>>,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let span = from_file.as_ref().map(Spanned::span);
        let (mut url, mut table) = match from_file.map(Spanned::into_inner) {
            None => (None, None),
            Some(RawStore::Url(url)) => (Some(url), None),
            Some(RawStore::Table(mut table)) => (table.url.take(), Some(*table)),
        };
        let mut errors = Vec::new();
        if let (Some(url), Some(table)) = (&url, &table) {
            errors.extend(find_contradiction(url, table));
        }
        url = flag.or(url);
        let settings = match url {
            Some(StoreUrl::Sqlite(directory)) => Self::Sqlite(directory),
            Some(StoreUrl::Memory) => Self::Memory,
            Some(StoreUrl::Cassandra(url)) => {
                Self::cluster(table.take().unwrap_or_default().with_url(url), &mut errors)
            }
            None => match table {
                Some(table) => Self::cluster(table, &mut errors),
                None => Self::Sqlite(DEFAULT_DIRECTORY.into()),
            },
        };
        let problem = |message: String| match &span {
            Some(span) => file.problem(span.clone(), message),
            None => Problem { message, position: None },
        };
        problems.extend(errors.into_iter().map(problem));
        settings
    }

    /// How much too early the time of a row may be, if clocks differ by at most `skew`. `None` if no other
    /// process writes to the store.
    pub(super) fn max_clock_error(&self, skew: Span) -> Option<Span> {
        matches!(self, Self::Cassandra(_)).then_some(skew)
    }

    fn cluster(raw: RawCluster, errors: &mut Vec<String>) -> Self {
        Self::Cassandra(Box::new(raw.into_settings(errors)))
    }
}

/// Describes a setting that contradicts the `url` of the table.
fn find_contradiction(url: &StoreUrl, table: &RawCluster) -> Option<String> {
    let StoreUrl::Cassandra(cluster) = url else {
        return (*table != RawCluster::default())
            .then(|| format!("url is {url}, but the other keys of [store] are for a cluster: remove them"));
    };
    let twice = [
        ("contact_points", table.contact_points.is_some()),
        ("keyspace", table.keyspace.is_some()),
        ("replication", table.replication.is_some() && cluster.replication.is_some()),
    ];
    let (name, _) = twice.into_iter().find(|(_, twice)| *twice)?;
    Some(format!("url already contains the {name}: remove one of them"))
}

impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(directory) => write!(f, "sqlite:{}", directory.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Cassandra(cluster) => f.write_str(&cluster.url()),
        }
    }
}

impl Serialize for StoreSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Cassandra(cluster) => cluster.serialize(serializer),
            other => serializer.collect_str(other),
        }
    }
}

#[cfg(test)]
mod tests;
