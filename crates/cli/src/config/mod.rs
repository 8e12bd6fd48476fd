//! The settings: given by a file, by the environment and by flags, each above the one before.
//!
//! A setting has one name: `body_limit` in the file is `RASHOMON_BODY_LIMIT` in the environment and
//! `--body-limit` on the command line. Tables of settings, [`GivenSettings::properties`] and
//! [`GivenSettings::domains`], are in the file only.

mod errors;
mod values;

use std::{collections::BTreeMap, ops::Range, path::Path, time::Duration};

use rashomon_buckets::{Definition, Definitions, DomainName, PropertyName, Versions};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::errors::{Place, explain, nearest};
pub(crate) use self::{
    errors::{ConfigError, Problem},
    values::{Access, ByteSize, ContentType, Host, Listen, LogFormat, LogLevel, Span, StoreUrl},
};

/// What every variable of the environment begins with.
pub(crate) const ENVIRONMENT_PREFIX: &str = "RASHOMON_";

/// Where a store is unless something else is said.
pub(crate) const DEFAULT_DIRECTORY: &str = "./rashomon-data";

/// The settings that one source gives.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Settings (in the file: the same names with '_')")]
pub(crate) struct GivenSettings {
    /// Where the revisions are kept: sqlite:DIRECTORY, or memory: (gone at the end) [default:
    /// sqlite:./rashomon-data]
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// Bytes of the newest bodies that are kept in memory, to answer reads from [default: 256 MiB]
    #[arg(long, env = "RASHOMON_CACHE_SIZE", value_name = "SIZE")]
    pub(crate) cache_size: Option<ByteSize>,

    /// How often the pieces of large bodies whose upload was never finished are collected; 0s for never
    /// [default: 1h]
    #[arg(long, env = "RASHOMON_COLLECT_EVERY", value_name = "TIME")]
    pub(crate) collect_every: Option<Span>,

    /// The address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7231]
    #[arg(long, env = "RASHOMON_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,

    /// Who may do what; must be said before the server listens on an address that others can reach
    /// [default: open on loopback]
    #[arg(long, env = "RASHOMON_ACCESS", value_enum)]
    pub(crate) access: Option<Access>,

    /// How long requests may go on once the server was told to stop [default: 30s]
    #[arg(long, env = "RASHOMON_SHUTDOWN_GRACE", value_name = "TIME")]
    pub(crate) shutdown_grace: Option<Span>,

    /// How far in the future the _timestamp of a write may lie, since clocks differ [default: 5m]
    #[arg(long, env = "RASHOMON_SKEW", value_name = "TIME")]
    pub(crate) skew: Option<Span>,

    /// The most bytes of a request's body; an import has no such limit [default: 256 MiB]
    #[arg(long, env = "RASHOMON_BODY_LIMIT", value_name = "SIZE")]
    pub(crate) body_limit: Option<ByteSize>,

    /// How log lines look [default: text]
    #[arg(long, env = "RASHOMON_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,

    /// What is logged: off, error, warn, info, debug, trace, or levels by module as in
    /// info,rashomon_api=debug [default: info]
    #[arg(long, env = "RASHOMON_LOG_LEVEL", value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// Whether every request is logged when it is answered [default: true]
    #[arg(long, env = "RASHOMON_ACCESS_LOG", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) access_log: Option<bool>,

    /// What is known of properties beforehand, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) properties: BTreeMap<PropertyName, Spanned<GivenProperty>>,

    /// The domains, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) domains: BTreeMap<DomainName, GivenDomain>,
}

/// What a file says of a property; the rest is as it was known before.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenProperty {
    content_type: Option<ContentType>,
    versions: Option<Versions>,
    max_size: Option<ByteSize>,
}

/// What a file says of a domain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenDomain {
    #[serde(default)]
    hosts: Vec<Spanned<Host>>,
}

/// The settings as they are in effect, whoever gave them. Written as TOML they are a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Settings {
    pub(crate) store: StoreUrl,
    pub(crate) cache_size: ByteSize,
    pub(crate) collect_every: Span,
    pub(crate) listen: Listen,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<Access>,
    pub(crate) shutdown_grace: Span,
    pub(crate) skew: Span,
    pub(crate) body_limit: ByteSize,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
    pub(crate) access_log: bool,
    pub(crate) properties: BTreeMap<PropertyName, Property>,
    pub(crate) domains: BTreeMap<DomainName, Domain>,
}

/// What is known of a property beforehand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Property {
    content_type: ContentType,
    versions: Versions,
    max_size: ByteSize,
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Domain {
    /// The hosts under which its pages are at `/wiki/`.
    pub(crate) hosts: Vec<Host>,
}

/// A configuration file, with its text, so that what is wrong can be shown.
#[derive(Debug, Default)]
struct File {
    path: std::path::PathBuf,
    text: String,
    given: GivenSettings,
}

impl File {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.display().to_string(), source })?;
        let given = toml::from_str(&text).map_err(|error| {
            let place = error.span().map(|span| Place::new(path, &text, span));
            ConfigError::Invalid(vec![Problem { message: explain(error.message()), place }])
        })?;
        Ok(Self { path: path.to_owned(), text, given })
    }

    fn problem(&self, span: Range<usize>, message: String) -> Problem {
        Problem { message, place: Some(Place::new(&self.path, &self.text, span)) }
    }
}

impl Settings {
    /// The settings in effect: what flags and environment give, below it the file, below it the defaults; or
    /// everything that is wrong with them.
    pub(crate) fn load(given: GivenSettings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let file = file.map(File::read).transpose()?.unwrap_or_default();
        let mut problems = Vec::new();
        let settings = Self::merge(given, &file, &mut problems);
        settings.check(&mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError::Invalid(problems)) }
    }

    fn merge(given: GivenSettings, file: &File, problems: &mut Vec<Problem>) -> Self {
        let below = file.given.clone();
        let bytes = |mebibytes: u64| ByteSize(mebibytes << 20);
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        let body_limit = given.body_limit.or(below.body_limit).unwrap_or(bytes(256));
        Self {
            store: (given.store.or(below.store))
                .unwrap_or_else(|| StoreUrl::Sqlite(DEFAULT_DIRECTORY.into())),
            cache_size: given.cache_size.or(below.cache_size).unwrap_or(bytes(256)),
            collect_every: given.collect_every.or(below.collect_every).unwrap_or(seconds(3600)),
            listen: given.listen.or(below.listen).unwrap_or(Listen(([127, 0, 0, 1], 7231).into())),
            access: given.access.or(below.access),
            shutdown_grace: given.shutdown_grace.or(below.shutdown_grace).unwrap_or(seconds(30)),
            skew: given.skew.or(below.skew).unwrap_or(seconds(300)),
            body_limit,
            log_format: given.log_format.or(below.log_format).unwrap_or(LogFormat::Text),
            log_level: (given.log_level.or(below.log_level))
                .unwrap_or_else(|| "info".parse().expect("info is a level")),
            access_log: given.access_log.or(below.access_log).unwrap_or(true),
            properties: properties(below.properties, body_limit, file, problems),
            domains: domains(below.domains, file, problems),
        }
    }

    /// What no single setting shows.
    fn check(&self, problems: &mut Vec<Problem>) {
        if self.access.is_none() && !self.listen.0.ip().is_loopback() {
            problems.push(Problem {
                message: format!(
                    "others can reach {}, and nothing says what they may do: if everybody who can reach it may \
                     read, write and erase everything, say so with --access open (in the file: access = \"open\"); \
                     else listen on 127.0.0.1",
                    self.listen
                ),
                place: None,
            });
        }
    }

    /// What is known of properties beforehand, as the buckets take it.
    pub(crate) fn definitions(&self) -> Definitions {
        let mut definitions = Definitions::default();
        for (name, property) in &self.properties {
            let definition = Definition {
                content_type: property.content_type.as_str().to_owned(),
                versions: property.versions,
                max_size: property.max_size.0,
            };
            definitions.define(name.clone(), definition);
        }
        definitions
    }
}

/// The definitions that are built in, with what the file says above them.
fn properties(
    given: BTreeMap<PropertyName, Spanned<GivenProperty>>,
    body_limit: ByteSize,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<PropertyName, Property> {
    let known = Definitions::default();
    let property = |definition: &Definition| Property {
        content_type: definition.content_type.parse().expect("what is built in is a content type"),
        versions: definition.versions,
        max_size: ByteSize(definition.max_size),
    };
    let mut all: BTreeMap<PropertyName, Property> =
        known.iter().map(|(name, definition)| (name.clone(), property(definition))).collect();
    for (name, entry) in given {
        let span = entry.span();
        let entry = entry.into_inner();
        let before = property(known.get(&name));
        if let Some(size) = entry.max_size.filter(|size| *size > body_limit) {
            let message = format!(
                "property '{name}' may have {size}, but no request brings more than body_limit, {body_limit}: \
                 lower max_size, or raise body_limit"
            );
            problems.push(file.problem(span.clone(), message));
        }
        if before.versions == Versions::Revision && entry.versions == Some(Versions::Render) {
            let message = format!(
                "property '{name}' holds a revision's text, which its renders share: it is one a revision"
            );
            problems.push(file.problem(span, message));
        }
        let property = Property {
            content_type: entry.content_type.unwrap_or(before.content_type),
            versions: entry.versions.unwrap_or(before.versions),
            max_size: entry.max_size.unwrap_or(before.max_size),
        };
        all.insert(name, property);
    }
    all
}

/// The domains; no host is two domains'.
fn domains(
    given: BTreeMap<DomainName, GivenDomain>,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<DomainName, Domain> {
    let mut owners: BTreeMap<Host, DomainName> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (name, domain) in given {
        let mut hosts = Vec::new();
        for host in domain.hosts {
            let span = host.span();
            let host = host.into_inner();
            match owners.insert(host.clone(), name.clone()) {
                Some(owner) => {
                    let message =
                        format!("host '{host}' stands for domain '{owner}' already; a host stands for one");
                    problems.push(file.problem(span, message));
                }
                None => hosts.push(host),
            }
        }
        all.insert(name, Domain { hosts });
    }
    all
}

/// Variables of the environment that look like settings and are none, and what was probably meant: not an
/// error, since container runtimes set variables of their own by a service's name, but worth a word.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>, known: &[&str]) -> Vec<String> {
    let bare = |name: &str| name.trim_start_matches(ENVIRONMENT_PREFIX).to_lowercase();
    let known_bare: Vec<String> = known.iter().map(|name| bare(name)).collect();
    let known_bare: Vec<&str> = known_bare.iter().map(String::as_str).collect();
    let unknown =
        names.filter(|name| name.starts_with(ENVIRONMENT_PREFIX) && !known.contains(&name.as_str()));
    unknown
        .map(|name| match nearest(&bare(&name), &known_bare) {
            Some(near) => format!(
                "the variable {name} is not a setting; did you mean {ENVIRONMENT_PREFIX}{}?",
                near.to_uppercase()
            ),
            None => format!("the variable {name} is not a setting"),
        })
        .collect()
}

#[cfg(test)]
mod tests;
