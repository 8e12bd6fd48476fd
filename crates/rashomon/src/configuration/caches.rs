//! The HTTP caches in front of the server: `[caches.NAME]`.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_upstream::purges::{
    CacheMethod, CacheSettings, HttpTransport, PurgeSettings, Purger, Sites, Transport,
};
use rashomon_upstream::{PooledClient, ServerUrl};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    File, Problem, Settings,
    values::{Host, Span},
};

/// The default time limit of a request to a cache.
const DEFAULT_TIMEOUT: Span = Span(Duration::from_secs(5));

/// The default maximum number of concurrent requests to a cache.
const DEFAULT_MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// The maximum length of the name of a cache.
const MAX_NAME_BYTES: usize = 64;

/// The table `[caches.NAME]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCache {
    url: Spanned<String>,
    #[serde(default)]
    method: Method,
    #[serde(default)]
    hosts: Vec<Host>,
    timeout: Option<Span>,
    max_requests: Option<NonZeroUsize>,
    authorities: Option<PathBuf>,
}

/// How a request to a cache names the answers to delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    /// By their URLs.
    #[default]
    Purge,
    /// By their surrogate keys.
    Keys,
}

/// The settings of an HTTP cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cache {
    url: String,
    method: Method,
    hosts: Vec<Host>,
    timeout: Span,
    max_requests: NonZeroUsize,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorities: Option<PathBuf>,
}

/// The settings of a cache, and its client.
type OpenCache = (CacheSettings, Arc<dyn Transport>);

/// Returns the caches in effect, and reports names, timeouts and URLs that cannot be used.
pub(super) fn merge(
    raw: Option<BTreeMap<String, Spanned<RawCache>>>,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Cache> {
    let mut caches = BTreeMap::new();
    for (name, raw) in raw.unwrap_or_default() {
        let span = raw.span();
        let RawCache { url, method, hosts, timeout, max_requests, authorities } = raw.into_inner();
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name {
            let message = format!(
                "'{}' cannot be the name of a cache: use 1 to {MAX_NAME_BYTES} letters, digits and -_.",
                rashomon_pages::excerpt(&name)
            );
            problems.push(file.problem(span, message));
            continue;
        }
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
        if timeout.0.is_zero() {
            let message = format!("the timeout of cache '{name}' must be longer than 0s");
            problems.push(file.problem(span, message));
        }
        match url.get_ref().parse::<ServerUrl>() {
            Err(error) => problems.push(file.problem(url.span(), error)),
            Ok(server) if !server.prefix().is_empty() => {
                let message =
                    format!("the url of cache '{name}' has a path: write it as in http://127.0.0.1:6081");
                problems.push(file.problem(url.span(), message));
            }
            Ok(_) => {}
        }
        let max_requests = max_requests.unwrap_or(DEFAULT_MAX_REQUESTS);
        let url = url.into_inner();
        caches.insert(name, Cache { url, method, hosts, timeout, max_requests, authorities });
    }
    caches
}

/// Creates the purger, which sends purges to the caches. Returns `None` if no caches are configured.
///
/// # Errors
///
/// Returns a description of an address or a file that cannot be used.
pub(crate) fn purger(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Option<Purger>, String> {
    if settings.caches.is_empty() {
        return Ok(None);
    }
    let domains = settings.domains.iter().map(|(name, domain)| (name.clone(), host_texts(&domain.hosts)));
    let policy = settings.access.policy();
    let purge_settings = PurgeSettings {
        sites: Sites::new(domains.collect()).only(move |change| policy.lets_anybody_read(change)),
        again_after: settings.merged.purge_again_after.0,
    };
    Ok(Some(Purger::new(purge_settings, open(settings)?, Arc::clone(clock))))
}

/// Creates the clients of the caches.
pub(super) fn open(settings: &Settings) -> Result<Vec<OpenCache>, String> {
    let mut caches = Vec::new();
    for (name, cache) in &settings.caches {
        let failed = |error: String| format!("[caches.{name}]: {error}");
        let server: ServerUrl = cache.url.parse().map_err(failed)?;
        let client = PooledClient::new(cache.authorities.as_deref(), server.is_https())
            .map_err(|error| failed(error.to_string()))?;
        // Clients request `/v1/` from the cache at its own address unless the file names other hosts.
        let hosts = match cache.hosts.as_slice() {
            [] => {
                vec![cache.url.split("://").nth(1).unwrap_or_default().trim_end_matches('/').to_owned()]
            }
            named => host_texts(named),
        };
        let method = match cache.method {
            Method::Purge => CacheMethod::Purge,
            Method::Keys => CacheMethod::Keys,
        };
        let cache_settings =
            CacheSettings { name: name.clone(), method, hosts, max_requests: cache.max_requests };
        let transport = Arc::new(HttpTransport::new(client, server, cache.timeout.0)) as Arc<dyn Transport>;
        caches.push((cache_settings, transport));
    }
    Ok(caches)
}

fn host_texts(hosts: &[Host]) -> Vec<String> {
    hosts.iter().map(|host| host.as_str().to_owned()).collect()
}
