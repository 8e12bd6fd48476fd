//! Access rights, and the browser origins that may write.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use super::values::{Access, Origin};

/// The setting `access` in a file: a word, or a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawAccess {
    /// `access = "open"`
    Word(Access),
    /// `[access]`
    Table(RawAccessTable),
}

/// The table `[access]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAccessTable {
    /// The same as `access = "open"`.
    #[serde(default)]
    open: bool,
    #[serde(default)]
    origins: Vec<Origin>,
}

impl<'de> Deserialize<'de> for RawAccess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawAccess;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"open\", or a table with 'open' and 'origins'")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<RawAccess, E> {
                Access::deserialize(de::value::StrDeserializer::new(word)).map(RawAccess::Word)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawAccess, A::Error> {
                let table = RawAccessTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RawAccess::Table(table))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The access rights in effect.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AccessSettings {
    /// Whether the configuration allows everything to every client.
    pub(crate) open: bool,
    /// The origins whose pages may send requests that change data.
    pub(crate) origins: BTreeSet<Origin>,
}

impl AccessSettings {
    /// Combines the flags and the environment with the file.
    pub(super) fn merge(flag: Option<Access>, file: Option<RawAccess>) -> Self {
        let table = match file {
            None => RawAccessTable::default(),
            Some(RawAccess::Word(Access::Open)) => RawAccessTable { open: true, origins: Vec::new() },
            Some(RawAccess::Table(table)) => table,
        };
        let open = table.open || flag == Some(Access::Open);
        Self { open, origins: table.origins.into_iter().collect() }
    }

    /// Whether nothing was configured.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for AccessSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.origins.is_empty() {
            return Access::Open.serialize(serializer);
        }
        let mut table = serializer.serialize_map(None)?;
        if self.open {
            table.serialize_entry("open", &true)?;
        }
        table.serialize_entry("origins", &self.origins)?;
        table.end()
    }
}
