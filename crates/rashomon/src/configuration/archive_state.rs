//! Whether the archive of a store is on.
//!
//! A new SQLite store records this when it is made, see [`Settings::records_archive`]. So the same configuration
//! has the same effect at every later start. A table `[archive]`, `archive = true` and `archive = false` take
//! precedence over the record. See decision 0028.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::Settings;

/// The name of the property in which a SQLite store records whether its archive is on.
const PROPERTY: &str = "archive";
const ON: &str = "on";
const OFF: &str = "off";

/// Whether the archive of an open store is on, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ArchiveState {
    /// Whether the archive is on.
    #[serde(rename = "on")]
    pub is_on: bool,
    pub(crate) because: Reason,
}

/// Why an archive is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// The configuration, or a flag of the command.
    Configuration,
    /// The record of the store, written when the store was made.
    Store,
    /// Neither the configuration nor the store says anything.
    Default,
}

impl fmt::Display for ArchiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on { "on" } else { "off" })?;
        f.write_str(match self.because {
            Reason::Configuration => ", by the configuration or a flag",
            Reason::Store => ", as recorded in the store when it was made",
            Reason::Default => ", since neither the store nor the configuration turns it on",
        })
    }
}

/// Returns whether the archive of a store is on, as the store has recorded in its properties. `None`: the store has
/// recorded nothing, such as a store of an earlier version.
///
/// # Errors
///
/// Returns a description of a record that this program does not know.
pub(crate) fn recorded_archive(properties: &BTreeMap<String, String>) -> Result<Option<bool>, String> {
    for (name, value) in properties {
        match (name.as_str(), value.as_str()) {
            (PROPERTY, ON | OFF) => {}
            _ => {
                return Err(format!(
                    "the store records {}={}, which this program does not know: the record is damaged, or a \
                     later version made the store; restore a backup, or use the version that made the store",
                    name.escape_debug(),
                    value.escape_debug()
                ));
            }
        }
    }
    Ok(properties.get(PROPERTY).map(|value| value == ON))
}

impl Settings {
    /// Whether the configuration has a table of retention, for all buckets or for a single bucket.
    fn has_retention(&self) -> bool {
        let mut buckets = self.domains.values().flat_map(|domain| domain.buckets.values());
        !self.retention.is_absent() || buckets.any(|bucket| bucket.retention.is_some())
    }

    /// Whether a new SQLite store records that its archive is on. The archive is on unless the configuration turns it
    /// off, or has a table of retention and does not turn the archive on.
    pub(super) fn records_archive(&self) -> bool {
        self.new_store_archive.unwrap_or_else(|| self.archive.enabled.unwrap_or(!self.has_retention()))
    }

    /// The properties of a new SQLite store.
    pub(crate) fn new_store_properties(&self) -> BTreeMap<String, String> {
        let value = if self.records_archive() { ON } else { OFF };
        BTreeMap::from([(PROPERTY.to_owned(), value.to_owned())])
    }

    /// Decides whether the archive of an open store is on, and changes the settings accordingly. `recorded`: what
    /// the store has recorded, see [`recorded_archive`].
    ///
    /// # Errors
    ///
    /// Returns an error if retention was added to a store whose archive is on. The error says what to do.
    pub(crate) fn decide_archive(&mut self, recorded: Option<bool>) -> Result<ArchiveState, String> {
        if recorded == Some(true) && self.has_retention() && !self.archive.is_on() {
            return Err(
                "the archive of this store is on, as recorded when the store was made, but the configuration \
                 has a table of retention and does not turn the archive on: add [archive], so that superseded \
                 revisions are sealed instead of deleted; or export the store without this configuration (`rashomon \
                 export --history --format jsonl`), and import the export with this configuration into a new \
                 store, where retention deletes"
                    .to_owned(),
            );
        }
        Ok(match self.archive.enabled {
            Some(is_on) => ArchiveState { is_on, because: Reason::Configuration },
            None => {
                let is_on = recorded.unwrap_or(false);
                self.archive.enabled = Some(is_on);
                let because = if recorded.is_some() { Reason::Store } else { Reason::Default };
                ArchiveState { is_on, because }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::RawSettings;

    fn load(text: &str) -> Settings {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Settings::load(RawSettings::default(), Some(file.path())).unwrap()
    }

    /// Printed settings have the same effect when they are loaded again.
    #[test]
    fn printed_settings_decide_the_same() {
        for configuration in
            ["", "[archive]\n", "archive = false\n", "[retention]\n", "[retention]\n[archive]\n"]
        {
            let settings = load(configuration);
            let again = load(&toml::to_string(&settings).unwrap());
            assert_eq!(again, settings, "{configuration}");
            assert_eq!(again.new_store_properties(), settings.new_store_properties(), "{configuration}");
        }
    }

    #[test]
    fn unknown_record_is_refused() {
        let with = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(recorded_archive(&BTreeMap::new()), Ok(None));
        for (name, value) in [("archive", "oo"), ("archhve", "on")] {
            let error = recorded_archive(&with(name, value)).unwrap_err();
            assert!(error.contains(&format!("{name}={value}")), "{error}");
        }
    }
}
