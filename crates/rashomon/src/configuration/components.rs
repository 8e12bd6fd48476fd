//! The settings of each component, derived from the configuration.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_pages::operations::{BackgroundOptions, MIN_ORPHAN_AGE};
use rashomon_pages::{Definition, Definitions, IgnoredHeaders, StoredHeaders};
use rashomon_server::access::{Access, AccessOptions, TokenStore};

use super::{
    Settings,
    values::{AccessLog, ServerName, Span},
};

impl Settings {
    /// The settings of the buckets, without the timeline and the renderers: see [`Self::timeline`] and
    /// [`Self::generator`].
    pub(crate) fn buckets(&self) -> rashomon_pages::Settings {
        rashomon_pages::Settings {
            definitions: self.definitions(),
            cache_bytes: self.merged.cache_size.0,
            skew: self.merged.skew.0,
            retention: self.effective_retention(),
            archive: self.archive(),
            unpacks: unpack_limits(self),
            queues_purges: !self.caches.is_empty(),
        }
    }

    /// The settings of retention. With an archive nothing is culled.
    fn effective_retention(&self) -> rashomon_pages::Retention {
        let retention = rashomon_pages::Retention { read_only: self.merged.read_only, ..self.retention() };
        if !self.archive.is_on() {
            return retention;
        }
        rashomon_pages::Retention { policy: None, buckets: Default::default(), ..retention }
    }

    fn definitions(&self) -> Definitions {
        let surrogate_keys = self.merged.surrogate_key_header.as_str();
        let headers = StoredHeaders::new(self.merged.stored_headers.clone(), Some(surrogate_keys));
        let mut definitions = Definitions::default().with_headers(headers);
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

    /// Whether the server refuses all writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.merged.read_only
    }

    /// The settings of the API.
    pub(crate) fn api(&self) -> rashomon_server::Settings {
        let mut hosts = HashMap::new();
        for (name, domain) in &self.domains {
            hosts.extend(domain.hosts.iter().map(|host| (host.as_str().to_owned(), name.clone())));
        }
        let other_hosts = self.merged.hosts.iter().filter_map(|name| match name {
            ServerName::Host(host) => Some(host.as_str().to_owned()),
            ServerName::Any => None,
        });
        rashomon_server::Settings {
            hosts,
            other_hosts: other_hosts.collect(),
            check_host: self.merged.listen.0.ip().is_loopback()
                && !self.merged.hosts.contains(&ServerName::Any),
            origins: self.access.origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
            proxies: self.access.proxies.iter().map(|network| network.0).collect(),
            ignored_headers: IgnoredHeaders::new(self.merged.ignored_headers.iter().cloned()),
            // With names of hosts, a proxy on this machine may pass on the requests of others.
            operator_pages: self
                .access
                .operator_pages(self.merged.listen.0.ip().is_loopback() && self.merged.hosts.is_empty()),
            read_only: self.merged.read_only,
            max_body_bytes: self.merged.body_limit.0,
            max_url_bytes: usize::try_from(self.merged.url_limit.0).unwrap_or(usize::MAX),
            // A read that waits for a renderer must end with the renderer's result or error, not with a
            // timeout of the store.
            read_seconds: seconds(self.merged.read_timeout) + seconds(Span(self.longest_generation())),
            body_idle_seconds: seconds(self.merged.idle_timeout),
            body_seconds: seconds(self.merged.body_timeout),
            min_upload_rate: self.merged.min_upload_rate.0,
            staging_bytes: self.merged.staging_memory.0,
            staging_wait_seconds: seconds(self.merged.staging_wait),
            batch_seconds: seconds(self.merged.batch_timeout),
            max_writes: self.merged.max_writes.get(),
            overload_milliseconds: u64::try_from(self.merged.overload_wait.0.as_millis()).unwrap_or(u64::MAX),
            max_imports: self.merged.max_imports.get(),
            max_spool_bytes: self.merged.max_spool.0,
            prepared_answers: self.merged.prepared_answers,
            surrogate_key_header: (!self.caches.is_empty())
                .then(|| self.merged.surrogate_key_header.as_str().to_owned()),
            access_log: match self.merged.access_log {
                AccessLog::All => rashomon_server::AccessLog::All,
                AccessLog::Failures => rashomon_server::AccessLog::Failures,
                AccessLog::Off => rashomon_server::AccessLog::Off,
            },
        }
    }

    /// Creates the access control of a server that has these tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if the file with the keys of JSON Web Tokens cannot be used.
    pub(crate) fn access(
        &self,
        tokens: TokenStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Access, rashomon_server::access::JwksError> {
        let options = AccessOptions {
            policy: self.access.policy(),
            jwks_file: self.access.jwks_file(),
            audience: self.access.audience().to_owned(),
            stores_uses: !self.merged.read_only,
        };
        Access::new(options, tokens, clock)
    }

    /// The limits of connections.
    pub(crate) fn connections(&self) -> rashomon_server::ServeOptions {
        rashomon_server::ServeOptions {
            max_connections: self.merged.max_connections.get(),
            head_seconds: seconds(self.merged.head_timeout),
            stalled_seconds: seconds(self.merged.stall_timeout),
            shutdown_seconds: seconds(self.merged.shutdown_grace),
            ..rashomon_server::ServeOptions::default()
        }
    }

    /// The settings of the background work of a server.
    pub(crate) fn background(&self) -> BackgroundOptions {
        BackgroundOptions {
            collect_every: self.merged.collect_every.0,
            // Garbage collection takes only chunks that are older than the longest possible upload.
            orphan_age: MIN_ORPHAN_AGE.max(self.merged.body_timeout.0.saturating_mul(2)),
            read_only: self.merged.read_only,
            seal_every: self.archive.every.0,
            seal_within: self.archive.within.0,
        }
    }
}

/// The settings of key-value buckets.
#[must_use]
pub(crate) fn key_value_settings(settings: &Settings) -> rashomon_entries::Settings {
    rashomon_entries::Settings {
        body_limit: settings.merged.body_limit.0,
        cache_bytes: settings.merged.entry_cache_size.0,
        max_idempotency_keys: settings.merged.max_idempotency_keys,
        ..rashomon_entries::Settings::default()
    }
}

/// Returns whole seconds, rounded up: a limit that is shorter than a second must not become 0, which would
/// refuse everything.
fn seconds(span: Span) -> u64 {
    let Span(duration) = span;
    duration.as_secs() + u64::from(duration > Duration::from_secs(duration.as_secs()))
}

/// The limits of reads that unpack blocks of the archive.
fn unpack_limits(settings: &Settings) -> rashomon_pages::Limits {
    let limits = rashomon_pages::unpack_limits(settings.merged.max_unpacks);
    rashomon_pages::Limits { wait: settings.merged.overload_wait.0, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::RawSettings;

    #[test]
    fn defaults_are_those_of_the_components() {
        let settings = Settings::load(RawSettings::default(), None).unwrap();
        // The server listens on loopback by default.
        let on_loopback =
            rashomon_server::Settings { check_host: true, ..rashomon_server::Settings::default() };
        assert_eq!(settings.api(), on_loopback);
        assert_eq!(settings.connections(), rashomon_server::ServeOptions::default());
        let (ours, theirs) = (settings.buckets(), rashomon_pages::Settings::default());
        assert_eq!((ours.cache_bytes, ours.skew), (theirs.cache_bytes, theirs.skew));
        let headers = ours.definitions.headers.clone();
        assert_eq!(ours.definitions, theirs.definitions.with_headers(headers));
        assert_eq!(ours.unpacks, theirs.unpacks);
        let (ours, theirs) = (key_value_settings(&settings), rashomon_entries::Settings::default());
        assert_eq!((ours.body_limit, ours.cache_bytes), (theirs.body_limit, theirs.cache_bytes));
        assert_eq!(ours.max_idempotency_keys, theirs.max_idempotency_keys);
    }

    #[test]
    fn fraction_of_a_second_is_rounded_up() {
        let of = |text: &str| seconds(text.parse().unwrap());
        assert_eq!([of("250ms"), of("1s"), of("1s 1ms"), of("0s")], [1, 1, 2, 0]);
    }
}
