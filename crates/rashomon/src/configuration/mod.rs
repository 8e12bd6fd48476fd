//! The settings, from a file, the environment and flags. The environment overrides the file, and flags
//! override both.
//!
//! A setting has one name: `body_limit` in the file is `RASHOMON_BODY_LIMIT` in the environment and
//! `--body-limit` on the command line. Tables, such as `[retention]`, are in the file only.
//!
//! [`RawSettings`] has the flags and the variables, with their help texts. [`Settings::load`] merges them with a file,
//! checks the result, and returns [`Settings`] or all errors. The methods of [`Settings`] derive the settings of each
//! component. This crate opens no store: its caller does, and then calls [`Settings::decide_archive`].
//!
//! # Invariants
//!
//! - All errors in the settings of a file that can be parsed are reported at once.
//! - Printed settings are a configuration file with the same meaning.
//! - The module knows no command, and opens no store.

mod access;
mod archive;
mod archive_state;
mod caches;
mod checks;
mod components;
mod declared_buckets;
mod errors;
mod generator;
mod raw;
mod registry;
mod retention;
mod store;
mod tls;
mod transformers;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
};

use confique::{Config as _, Layer as _};
use rashomon_pages::{BucketName, Definition, Definitions, DomainName, PropertyName, Versions, excerpt};
use serde::Serialize;
use toml::Spanned;

use self::{
    access::AccessSettings,
    archive::BucketArchive,
    caches::Cache,
    declared_buckets::Declaration,
    errors::{FilePosition, nearest_word, reword_parser_error},
    generator::{GeneratorSettings, Renderer},
    raw::{RawDomain, RawProperty},
    registry::RegistrySettings,
    retention::{BucketRetention, RetentionSettings},
    transformers::TransformerSettings,
    values::{ContentType, Host},
};
pub(crate) use self::{
    archive::{ArchiveSettings, Idle},
    archive_state::{ArchiveState, recorded_archive},
    caches::purger,
    components::key_value_settings,
    declared_buckets::DeclaredBucket,
    errors::{ConfigError, Problem},
    raw::{MergedSettings, RawSettings},
    retention::RetentionFlags,
    store::{ClusterSettings, Replication, StoreSettings, StoreUrl},
    transformers::transformers_for_rewrite,
    values::{Access, AuditLogTarget, ByteSize, Listen, LogFormat, LogLevel, Span},
};

/// The prefix of all environment variables.
pub(crate) const ENVIRONMENT_PREFIX: &str = "RASHOMON_";

/// The default directory of the store.
const DEFAULT_DIRECTORY: &str = "./rashomon-data";

/// The settings in effect, from all sources. Serialised as TOML, they are a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Settings {
    /// The store.
    pub store: StoreSettings,
    /// The plain settings.
    #[serde(flatten)]
    pub merged: MergedSettings,
    #[serde(skip_serializing_if = "AccessSettings::is_default")]
    access: AccessSettings,
    /// Whether a SQLite store whose log is missing after a crash is opened, without the lost writes. This flag exists
    /// only on the command line, for a single start.
    #[serde(skip)]
    pub accept_lost_log: bool,
    /// Whether the command changes nothing.
    #[serde(skip)]
    pub is_read_only_command: bool,
    /// The size in bytes at which the log of a SQLite store is written into its file. `None`: the default size.
    #[serde(skip)]
    pub log_bytes: Option<u64>,
    /// Whether a new SQLite store records that its archive is on. `None`: the configuration decides.
    #[serde(skip)]
    pub new_store_archive: Option<bool>,
    #[serde(skip_serializing_if = "RetentionSettings::is_absent")]
    retention: RetentionSettings,
    /// The archive.
    #[serde(skip_serializing_if = "ArchiveSettings::is_undecided")]
    pub archive: ArchiveSettings,
    #[serde(skip_serializing_if = "Option::is_none")]
    generator: Option<GeneratorSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transformers: Option<TransformerSettings>,
    /// The backends of paths. `None` if the file has no registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    registry: Option<RegistrySettings>,
    /// The HTTP caches in front of the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    caches: BTreeMap<String, Cache>,
    properties: BTreeMap<PropertyName, Property>,
    domains: BTreeMap<DomainName, Domain>,
}

/// The definition of a property.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Property {
    content_type: ContentType,
    versions: Versions,
    max_size: ByteSize,
}

/// The settings of a domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Domain {
    /// The hosts under which the pages of the domain are at `/wiki/`.
    pub(crate) hosts: Vec<Host>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) buckets: BTreeMap<BucketName, Bucket>,
}

/// The declaration of a bucket, and its settings that override those of all buckets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Bucket {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) declaration: Option<Declaration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention: Option<BucketRetention>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<BucketArchive>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generator: Option<Renderer>,
}

/// A configuration file with its text, for showing errors.
#[derive(Debug, Default)]
struct File {
    path: std::path::PathBuf,
    text: String,
    raw: RawSettings,
}

impl File {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.display().to_string(), source })?;
        let raw = toml::from_str(&text).map_err(|error| {
            let position = error.span().map(|span| FilePosition::new(path, &text, span));
            ConfigError::Invalid(vec![Problem { message: reword_parser_error(error.message()), position }])
        })?;
        Ok(Self { path: path.to_owned(), text, raw })
    }

    fn problem(&self, span: Range<usize>, message: String) -> Problem {
        Problem { message, position: Some(FilePosition::new(&self.path, &self.text, span)) }
    }
}

impl Settings {
    /// Loads the settings in effect: flags and environment override the file, and the file overrides the
    /// defaults.
    ///
    /// # Errors
    ///
    /// Returns the first error if the file cannot be read or parsed. An unknown setting is an error of the parser.
    /// Otherwise returns all errors in the settings.
    pub(crate) fn load(raw: RawSettings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let file = file.map(File::read).transpose()?.unwrap_or_default();
        let mut problems = Vec::new();
        let settings = Self::merge(raw, &file, &mut problems);
        checks::check(&settings, &mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError::Invalid(problems)) }
    }

    /// Loads the settings for a command that does not listen: like [`Self::load`], but without the checks of staging
    /// memory, ignored headers, TLS, the JWKS file, the files of the registry, and the locations of declared buckets.
    /// Access rights may be missing for any address.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::load`], except those of the checks that are left out.
    pub(crate) fn load_offline(raw: RawSettings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let file = file.map(File::read).transpose()?.unwrap_or_default();
        let mut problems = Vec::new();
        let settings = Self::merge(raw, &file, &mut problems);
        checks::check_components(&settings, &mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError::Invalid(problems)) }
    }

    fn merge(raw: RawSettings, file: &File, problems: &mut Vec<Problem>) -> Self {
        let raw = raw.with_fallback(file.raw.clone()).with_fallback(RawSettings::default_values());
        let mut merged = MergedSettings::from_layer(raw).expect("every setting has a default");
        let store = StoreSettings::merge(merged.store.take(), merged.store_of_file.take(), file, problems);
        let registry = RegistrySettings::merge(merged.registry.take(), &store, file, problems);
        let has_cluster = registry.as_ref().is_some_and(RegistrySettings::has_cluster);
        let max_clock_error = store.max_clock_error(merged.skew).or(has_cluster.then_some(merged.skew));
        let retention = RetentionSettings::merge(merged.retention.take(), max_clock_error, file, problems);
        let archive = ArchiveSettings::merge(merged.archive.take(), &retention, file, problems);
        let caches = caches::merge(merged.caches.take(), file, problems);
        let raw_properties = merged.properties.take().unwrap_or_default();
        let raw_domains = merged.domains.take().unwrap_or_default();
        Self {
            store,
            access: AccessSettings::merge(merged.access.take(), merged.access_of_file.take(), problems),
            accept_lost_log: false,
            is_read_only_command: false,
            log_bytes: None,
            new_store_archive: None,
            properties: properties(raw_properties, merged.body_limit, file, problems),
            domains: domains(
                raw_domains,
                (&retention, max_clock_error),
                &archive,
                merged.body_limit,
                file,
                problems,
            ),
            archive,
            retention,
            generator: GeneratorSettings::merge(merged.generator.take()),
            transformers: TransformerSettings::merge(merged.transformers.take()),
            registry,
            caches,
            merged,
        }
    }

    /// Sets the hosts under which a domain's pages are at `/wiki/`, and removes all other settings of the domain.
    /// Ignores invalid hosts.
    pub(crate) fn serve_at_hosts(&mut self, domain: DomainName, hosts: &[String]) {
        let hosts = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        self.domains.insert(domain, Domain { hosts, buckets: BTreeMap::new() });
    }
}

/// Returns the built-in definitions of properties, with the additions and changes of the file.
fn properties(
    raw: BTreeMap<PropertyName, Spanned<RawProperty>>,
    body_limit: ByteSize,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<PropertyName, Property> {
    let known = Definitions::default();
    let property = |definition: &Definition| Property {
        content_type: definition.content_type.parse().expect("built-in content types are valid"),
        versions: definition.versions,
        max_size: ByteSize(definition.max_size),
    };
    let mut all: BTreeMap<PropertyName, Property> =
        known.iter().map(|(name, definition)| (name.clone(), property(definition))).collect();
    for (name, entry) in raw {
        let span = entry.span();
        let entry = entry.into_inner();
        let before = property(known.get(&name));
        if let Some(size) = entry.max_size.filter(|size| *size > body_limit) {
            let message = format!(
                "max_size of property '{name}' is {size}, but a request may have at most body_limit, \
                 {body_limit}: lower max_size, or raise body_limit"
            );
            problems.push(file.problem(span.clone(), message));
        }
        if before.versions == Versions::Revision && entry.versions == Some(Versions::Render) {
            let message = format!(
                "property '{name}' holds the text of a revision, which all its renders share: use versions \
                 = \"revision\""
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

/// Returns the domains, and reports errors in their tables, such as a host that belongs to two domains.
fn domains(
    raw: BTreeMap<DomainName, RawDomain>,
    (retention, max_clock_error): (&RetentionSettings, Option<Span>),
    archive: &ArchiveSettings,
    body_limit: ByteSize,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<DomainName, Domain> {
    let mut owners: BTreeMap<Host, DomainName> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (name, domain) in raw {
        let mut retentions = retention.merge_buckets(&domain, max_clock_error, file, problems);
        let mut archives = archive.merge_buckets(&domain, (retention, &retentions), file, problems);
        let mut renderers = generator::merge_buckets(&domain, file, problems);
        let mut declarations = declared_buckets::merge_domain(&name, &domain, body_limit, file, problems);
        let buckets = (domain.buckets.keys())
            .map(|name| {
                let (retention, archive) = (retentions.remove(name), archives.remove(name));
                let (generator, declaration) = (renderers.remove(name), declarations.remove(name));
                (name.clone(), Bucket { declaration, retention, archive, generator })
            })
            .collect();
        let mut hosts = Vec::new();
        for host in domain.hosts {
            let span = host.span();
            let host = host.into_inner();
            match owners.insert(host.clone(), name.clone()) {
                Some(owner) => {
                    let message = format!(
                        "host '{host}' already belongs to domain '{owner}'; a host can belong to only one \
                         domain"
                    );
                    problems.push(file.problem(span, message));
                }
                None => hosts.push(host),
            }
        }
        all.insert(name, Domain { hosts, buckets });
    }
    all
}

/// Returns a warning for each environment variable that looks like a setting but is not. The warning suggests a similar
/// variable, if there is one. `known` has the variables that the program reads. An unknown variable is not an error,
/// since container runtimes set variables that begin with the name of a service.
pub(crate) fn unknown_variables(known: &BTreeSet<String>) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| unknown_variable(&name, known)).collect()
}

fn unknown_variable(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let bare = name.strip_prefix(ENVIRONMENT_PREFIX).filter(|_| !known.contains(name))?.to_lowercase();
    let settings: Vec<String> = known
        .iter()
        .filter_map(|name| name.strip_prefix(ENVIRONMENT_PREFIX))
        .map(str::to_lowercase)
        .collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let name = excerpt(name);
    Some(match nearest_word(&excerpt(bare), &settings) {
        Some(near) => {
            let near = near.to_uppercase();
            format!("the variable {name} is not a setting; did you mean {ENVIRONMENT_PREFIX}{near}?")
        }
        None => format!("the variable {name} is not a setting"),
    })
}

#[cfg(test)]
mod tests;
