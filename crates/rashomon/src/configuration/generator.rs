//! The renderers of properties that are not stored: `[generator]` for all buckets, or the table of a single
//! bucket.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use rashomon_pages::{BucketName, DomainName, PropertyName};
use rashomon_upstream::generator::{self as http, HttpGenerator};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{File, Problem, Settings, raw::RawDomain, values::Span};

/// The table `[generator]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGenerator {
    #[serde(default)]
    hosts: Vec<String>,
    timeout: Option<Span>,
    #[serde(default)]
    properties: BTreeMap<PropertyName, PropertySource>,
    max_requests: Option<NonZeroUsize>,
    authorities: Option<PathBuf>,
    token_file: Option<PathBuf>,
}

/// The source of a property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PropertySource {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
}

/// The renderer of a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Renderer {
    hosts: Vec<String>,
    timeout: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    properties: BTreeMap<PropertyName, PropertySource>,
}

/// The renderer of all buckets without their own, and the settings that apply to all renderers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GeneratorSettings {
    max_requests: NonZeroUsize,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorities: Option<PathBuf>,
    #[serde(flatten)]
    renderer: Renderer,
}

impl From<RawGenerator> for Renderer {
    fn from(raw: RawGenerator) -> Self {
        let timeout = raw.timeout.unwrap_or(Span(http::Upstream::TIMEOUT));
        Self { hosts: raw.hosts, timeout, token_file: raw.token_file, properties: raw.properties }
    }
}

impl GeneratorSettings {
    pub(super) fn merge(raw: Option<Spanned<RawGenerator>>) -> Option<Self> {
        let raw = raw?.into_inner();
        Some(Self {
            max_requests: raw.max_requests.unwrap_or(http::Settings::MAX_REQUESTS),
            authorities: raw.authorities.clone(),
            renderer: raw.into(),
        })
    }
}

/// Returns the renderers of single buckets, and reports errors in them.
pub(super) fn merge_buckets(
    domain: &RawDomain,
    file: &File,
    problems: &mut Vec<Problem>,
) -> BTreeMap<BucketName, Renderer> {
    let mut all = BTreeMap::new();
    for (name, bucket) in &domain.buckets {
        let Some(raw) = bucket.generator.clone() else { continue };
        let span = raw.span();
        let raw = raw.into_inner();
        if raw.max_requests.is_some() || raw.authorities.is_some() {
            let message = "max_requests and authorities apply to all buckets: move them to [generator]";
            problems.push(file.problem(span, message.to_owned()));
        }
        all.insert(name.clone(), raw.into());
    }
    all
}

impl Settings {
    /// Creates the client of the renderers. Returns `None` if no renderer is configured.
    ///
    /// # Errors
    ///
    /// Returns a description of an address, a host or a file that cannot be used.
    pub(crate) fn generator(&self) -> Result<Option<HttpGenerator>, String> {
        let buckets: BTreeMap<(DomainName, BucketName), http::Upstream> = (self.domains.iter())
            .flat_map(|(domain, settings)| {
                settings.buckets.iter().filter_map(|(bucket, own)| {
                    let renderer = own.generator.as_ref()?;
                    Some(((domain.clone(), bucket.clone()), self.upstream(renderer)))
                })
            })
            .collect();
        let all = self.generator.as_ref();
        if all.is_none() && buckets.is_empty() {
            return Ok(None);
        }
        let table =
            if buckets.is_empty() { "[generator]" } else { "[generator], or the generator of a bucket" };
        let settings = http::Settings {
            upstream: all.map(|all| self.upstream(&all.renderer)),
            buckets,
            max_requests: all.map_or(http::Settings::MAX_REQUESTS, |all| all.max_requests),
            authorities: all.and_then(|all| all.authorities.clone()),
        };
        HttpGenerator::new(settings).map(Some).map_err(|error| format!("{table}: {error}"))
    }

    /// How long a reader may wait for a renderer: at most the timeout for a free place among `max_requests`,
    /// and then at most the timeout for the answer.
    pub(super) fn longest_generation(&self) -> Duration {
        let of_buckets = self.domains.values().flat_map(|domain| domain.buckets.values());
        let of_buckets = of_buckets.filter_map(|bucket| bucket.generator.as_ref());
        let all = of_buckets.chain(self.generator.as_ref().map(|all| &all.renderer));
        let longest =
            all.filter(|renderer| !renderer.properties.is_empty()).map(|renderer| renderer.timeout.0).max();
        2 * longest.unwrap_or_default()
    }

    fn upstream(&self, renderer: &Renderer) -> http::Upstream {
        let source = |(name, source): (&PropertyName, &PropertySource)| {
            let source = http::Source {
                url: source.url.clone(),
                content_type: source.content_type.clone(),
                max_size: self.buckets().definitions.get(name).max_size,
            };
            (name.clone(), source)
        };
        http::Upstream {
            properties: renderer.properties.iter().map(source).collect(),
            hosts: renderer.hosts.clone(),
            timeout: renderer.timeout.0,
            token_file: renderer.token_file.clone(),
        }
    }
}
