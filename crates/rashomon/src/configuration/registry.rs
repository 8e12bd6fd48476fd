//! The registry: `[registry."/PREFIX"]` maps the paths below a prefix to other servers, or to another store.

use std::{collections::BTreeMap, num::NonZeroU32, path::PathBuf};

use rashomon_pages::{BucketName, DomainName};
use rashomon_server::registry::{Destination, Entry, Prefix, ServerList};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    ConfigError, File, Problem, Settings,
    store::{RawStore, StoreSettings},
    values::Span,
};

/// The table `[registry]`, by prefix.
pub(crate) type RawRegistry = BTreeMap<String, Spanned<RawBackend>>;

/// The table `[registry."/PREFIX"]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBackend {
    servers: Option<Vec<String>>,
    store: Option<Spanned<RawStore>>,
    forward_authorization: Option<bool>,
    token_file: Option<PathBuf>,
    allow_token_without_tls: Option<bool>,
    ca_file: Option<PathBuf>,
    public: Option<bool>,
    connect_timeout: Option<Span>,
    idle_timeout: Option<Span>,
    exclusion: Option<Span>,
    attempts: Option<NonZeroU32>,
}

/// The location of a bucket, according to the registry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BucketLocation<'a> {
    /// In the main store of the server.
    MainStore,
    /// In another store of the server.
    OtherStore(&'a StoreSettings),
    /// Behind other servers, which the registry names under this prefix.
    Servers { prefix: &'a str },
}

/// The registry in effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct RegistrySettings(BTreeMap<String, BackendSettings>);

/// The settings of a backend: another store, or a list of servers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum BackendSettings {
    Store { store: StoreSettings },
    Servers(ServersSettings),
}

/// The settings of a list of servers.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ServersSettings {
    servers: Vec<String>,
    forward_authorization: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    allow_token_without_tls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    public: bool,
    connect_timeout: Span,
    idle_timeout: Span,
    exclusion: Span,
    attempts: NonZeroU32,
}

impl RegistrySettings {
    /// Returns the registry in effect, and reports errors in it. `main` is the main store of the server.
    pub(super) fn merge(
        raw: Option<RawRegistry>,
        main: &StoreSettings,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let mut seen: Vec<Prefix> = Vec::new();
        let mut all = BTreeMap::new();
        for (text, backend) in raw? {
            let span = backend.span();
            let mut problem = |message: String| {
                problems.push(file.problem(span.clone(), format!("[registry.\"{text}\"]: {message}")));
            };
            match text.parse::<Prefix>() {
                Ok(prefix) if seen.iter().any(|other| other.is_same(&prefix)) => {
                    problem("the prefix has a backend already: remove one of the two tables".to_owned());
                }
                Ok(prefix) => seen.push(prefix),
                Err(error) => problem(error.to_string()),
            }
            let raw = backend.into_inner();
            let settings = match (raw.servers.is_some(), raw.store.is_some()) {
                (true, false) => raw.into_servers(),
                (false, true) if raw.is_store_alone() => {
                    let store = StoreSettings::merge(None, raw.store, file, problems);
                    if store == *main {
                        problems.push(file.problem(
                            span,
                            format!(
                                "[registry.\"{text}\"]: {store} is the main store of the server, which has all paths \
                                 without a table: remove the table"
                            ),
                        ));
                    }
                    all.insert(text, BackendSettings::Store { store });
                    continue;
                }
                (false, true) => {
                    problem(
                        "a store takes no other setting: remove the others, which are for servers".to_owned(),
                    );
                    continue;
                }
                _ => {
                    problem(
                        "name either servers = [\"http://HOST:PORT\"] or store = \"sqlite:DIRECTORY\""
                            .to_owned(),
                    );
                    continue;
                }
            };
            if let Err(error) = settings.list().check_settings() {
                problem(error.to_string());
            }
            all.insert(text, BackendSettings::Servers(settings));
        }
        Some(Self(all))
    }

    /// The stores, each once.
    fn stores(&self) -> Vec<&StoreSettings> {
        let mut stores = Vec::new();
        for backend in self.0.values() {
            if let BackendSettings::Store { store } = backend
                && !stores.contains(&store)
            {
                stores.push(store);
            }
        }
        stores
    }

    /// Whether one of the stores is a cluster.
    pub(super) fn has_cluster(&self) -> bool {
        self.stores().iter().any(|store| matches!(store, StoreSettings::Cassandra(_)))
    }
}

impl RawBackend {
    fn is_store_alone(&self) -> bool {
        let Self {
            servers,
            store: _,
            forward_authorization,
            token_file,
            allow_token_without_tls,
            ca_file,
            public,
            connect_timeout,
            idle_timeout,
            exclusion,
            attempts,
        } = self;
        servers.is_none()
            && [forward_authorization, allow_token_without_tls, public].iter().all(|flag| flag.is_none())
            && [token_file, ca_file].iter().all(|path| path.is_none())
            && [connect_timeout, idle_timeout, exclusion].iter().all(|span| span.is_none())
            && attempts.is_none()
    }

    fn into_servers(self) -> ServersSettings {
        let default_attempts = NonZeroU32::new(ServerList::ATTEMPTS).unwrap_or(NonZeroU32::MIN);
        ServersSettings {
            servers: self.servers.unwrap_or_default(),
            forward_authorization: self.forward_authorization.unwrap_or(false),
            token_file: self.token_file,
            allow_token_without_tls: self.allow_token_without_tls.unwrap_or(false),
            ca_file: self.ca_file,
            public: self.public.unwrap_or(false),
            connect_timeout: self.connect_timeout.unwrap_or(Span(ServerList::CONNECT_TIMEOUT)),
            idle_timeout: self.idle_timeout.unwrap_or(Span(ServerList::IDLE_TIMEOUT)),
            exclusion: self.exclusion.unwrap_or(Span(ServerList::EXCLUSION)),
            attempts: self.attempts.unwrap_or(default_attempts),
        }
    }
}

impl ServersSettings {
    fn list(&self) -> ServerList {
        ServerList {
            servers: self.servers.clone(),
            forward_authorization: self.forward_authorization,
            token_file: self.token_file.clone(),
            allow_token_without_tls: self.allow_token_without_tls,
            ca_file: self.ca_file.clone(),
            public: self.public,
            connect_timeout: self.connect_timeout.0,
            idle_timeout: self.idle_timeout.0,
            exclusion: self.exclusion.0,
            attempts: self.attempts.get(),
        }
    }
}

impl Settings {
    /// Whether there is a registry, perhaps an empty one.
    pub(crate) fn has_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// The stores of the registry, each once. [`Self::registry_entries`] takes them in any order.
    pub(crate) fn registry_stores(&self) -> Vec<StoreSettings> {
        self.registry.iter().flat_map(RegistrySettings::stores).cloned().collect()
    }

    /// The memory for bodies of forwarded requests that may be sent again, in bytes.
    pub(crate) fn replay_bytes(&self) -> usize {
        usize::try_from(self.merged.replay_memory.0).unwrap_or(usize::MAX)
    }

    /// The same settings for another store.
    #[must_use]
    pub(crate) fn for_store(&self, store: StoreSettings) -> Self {
        Self { store, ..self.clone() }
    }

    /// Returns the location of a bucket: the main store, unless the registry has another backend for its paths.
    pub(super) fn locate_bucket(&self, domain: &DomainName, bucket: &BucketName) -> BucketLocation<'_> {
        let prefixes = [format!("/{domain}/{bucket}"), format!("/{domain}"), "/".to_owned()];
        let longest_first = prefixes.iter().filter_map(|text| text.parse::<Prefix>().ok());
        let backends = || self.registry.iter().flat_map(|registry| &registry.0);
        let found = longest_first.into_iter().find_map(|prefix| {
            backends().find(|(text, _)| text.parse::<Prefix>().is_ok_and(|other| other.is_same(&prefix)))
        });
        match found {
            None => BucketLocation::MainStore,
            Some((_, BackendSettings::Store { store })) => BucketLocation::OtherStore(store),
            Some((prefix, BackendSettings::Servers(_))) => BucketLocation::Servers { prefix },
        }
    }

    /// The entries of the registry. `stores` are the open stores of the registry.
    ///
    /// # Errors
    ///
    /// Returns an error if an entry needs a store that is not open.
    pub(crate) fn registry_entries(&self, stores: &[StoreSettings]) -> Result<Vec<Entry>, ConfigError> {
        let all = self.registry.iter().flat_map(|registry| &registry.0);
        all.map(|(text, backend)| {
            let invalid = |message: String| ConfigError::Invalid(vec![Problem { message, position: None }]);
            let prefix = text.parse().map_err(|error: rashomon_server::registry::PrefixError| invalid(error.to_string()))?;
            let destination = match backend {
                BackendSettings::Servers(servers) => Destination::Servers(servers.list()),
                BackendSettings::Store { store } => {
                    let index = stores.iter().position(|open| open == store).ok_or_else(|| {
                        invalid(format!(
                            "[registry.\"{text}\"]: the store {store} is not open: start the server again to add it"
                        ))
                    })?;
                    Destination::Store(index)
                }
            };
            Ok(Entry { prefix, destination })
        })
        .collect()
    }

    /// Checks the files that the registry names.
    pub(super) fn check_registry(&self) -> Vec<Problem> {
        let all = self.registry.iter().flat_map(|registry| &registry.0);
        all.filter_map(|(prefix, backend)| {
            let BackendSettings::Servers(servers) = backend else { return None };
            // `RegistrySettings::merge` reports errors of the settings themselves, with their position in the file.
            servers.list().check_settings().ok()?;
            let error = servers.list().check().err()?;
            Some(Problem { message: format!("[registry.\"{prefix}\"]: {error}"), position: None })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::RawSettings;

    fn load(text: &str) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.toml");
        std::fs::write(&path, text).unwrap();
        let place = format!("{}/", directory.path().display());
        Settings::load(RawSettings::default(), Some(&path))
            .map_err(|error| error.to_string().replace(&place, ""))
    }

    #[test]
    fn registry_is_read_printed_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("token");
        std::fs::write(&token, "abc").unwrap();
        let file = format!(
            "store = 'memory:'\n[registry.'/']\nservers = ['http://10.0.0.3:7231']\n\
             [registry.'/enwiki/math-png']\nservers = ['http://127.0.0.1:1', 'http://localhost:2']\ntoken_file = '{}'\n\
             public = true\nconnect_timeout = '1s'\nidle_timeout = '2s'\nexclusion = '3s'\nattempts = 4\n\
             [registry.'/dewiki']\nstore = 'sqlite:./dewiki'\n[registry.'/frwiki']\nstore = 'sqlite:./dewiki'\n",
            token.display()
        );
        let settings = load(&file).unwrap();
        let printed = toml::to_string(&settings).unwrap();
        assert_eq!(load(&printed).unwrap(), settings, "{printed}");
        let stores = settings.registry_stores();
        assert_eq!(stores, [StoreSettings::Sqlite("./dewiki".into())]);
        let entries = settings.registry_entries(&stores).unwrap();
        let of =
            |prefix: &str| &entries.iter().find(|entry| entry.prefix.as_str() == prefix).unwrap().destination;
        assert_eq!(*of("/dewiki"), Destination::Store(0));
        assert_eq!(*of("/frwiki"), Destination::Store(0));
        let expected = ServerList::new(vec!["http://10.0.0.3:7231".to_owned()]);
        assert_eq!(*of("/"), Destination::Servers(expected));
        let Destination::Servers(list) = of("/enwiki/math-png") else { panic!("these are servers") };
        assert_eq!((list.public, list.attempts, list.exclusion.as_secs()), (true, 4, 3));
        let error = settings.registry_entries(&[]).unwrap_err().to_string();
        assert!(error.contains("start the server again"), "{error}");
        assert!(!load("").unwrap().has_registry() && load("[registry]").unwrap().has_registry());
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        for (text, expected) in [
            (
                "\n[registry.'/']\nserver = []",
                "r.toml:3:1: there is no setting 'server'; did you mean 'servers'?",
            ),
            ("\n[registry.'/']\n", "r.toml:2:"),
            ("[registry.'/']\n", "name either servers"),
            ("[registry.'/']\nservers = ['http://a']\nstore = 'memory:'", "name either servers"),
            ("[registry.'/']\nservers = []", "a list of servers is empty"),
            ("[registry.'/']\nservers = ['a:1']", "'a:1' is not the address of a server"),
            ("[registry.'enwiki']\nservers = ['http://a']", "'enwiki' is not a prefix"),
            ("[registry.'/a']\nservers = ['http://a']\n[registry.'/a/']\nservers = ['http://b']", "already"),
            ("[registry.'/a']\nstore = 'sqlite:./x'\npublic = true", "a store takes no other setting"),
            ("[registry.'/a']\nstore = 'redis:x'", "is not a kind of store"),
            ("store = 'memory:'\n[registry.'/a']\nstore = 'memory:'", "is the main store"),
            (
                "[registry.'/a']\nservers = ['http://a']\nattempts = 0",
                "3:12: integer '0' is not allowed here",
            ),
            (
                "[registry.'/a']\nservers = ['http://10.0.0.1']\nforward_authorization = true",
                "allow_token_without_tls = true",
            ),
            (
                "[registry.'/a']\nservers = ['http://10.0.0.1']\ntoken_file = '/x'",
                "allow_token_without_tls = true",
            ),
            ("[registry.'/a']\nservers = ['http://127.0.0.1']\ntoken_file = '/nonexistent'", "/nonexistent"),
            ("[registry.'/a']\nservers = ['https://a']\nca_file = '/nonexistent'", "/nonexistent"),
            (
                "[registry.'/a']\nservers = ['http://[::1]']\ntoken_file = '/x'\nforward_authorization = true",
                "remove one of them",
            ),
        ] {
            let error = load(text).expect_err(text);
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }

    #[test]
    fn every_key_is_in_the_reference_with_its_default() {
        let error = load("[registry.'/a']\nx = 1").unwrap_err();
        let (_, known) = error.split_once("expected one of ").unwrap();
        let known: Vec<&str> = known.lines().next().unwrap().split(", ").collect();
        let page = include_str!("../../../../docs/configuration.md");
        let (_, table) = page.split_once("| key of `[registry.\"/PREFIX\"]` | default | meaning |").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows.iter().map(|row| row[1].trim_matches('`')).collect::<Vec<_>>(), known);
        let settings = load("[registry.'/a']\nservers = ['http://a']").unwrap();
        let printed = toml::Table::try_from(&settings).unwrap();
        for row in rows.iter().filter(|row| !matches!(row[1], "`servers`" | "`store`")) {
            let printed = printed["registry"]["/a"].get(row[1].trim_matches('`'));
            let default = printed.map(|value| value.to_string().replace('"', ""));
            assert_eq!(
                row[2],
                default.as_deref().unwrap_or(if row[1] == "`ca_file`" { "those of the system" } else { "" })
            );
        }
    }
}
