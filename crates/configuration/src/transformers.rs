//! The transformers of spec versions: `[transformers]`.

use std::{num::NonZeroUsize, path::PathBuf};

use rashomon_transformer_http::{self as http, Transformers};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Settings, values::Span};

/// The table `[transformers]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTransformers {
    #[serde(default)]
    hosts: Vec<String>,
    timeout: Option<Span>,
    max_requests: Option<NonZeroUsize>,
    token_file: Option<PathBuf>,
    authorities: Option<PathBuf>,
    #[serde(default)]
    steps: Vec<Step>,
}

/// One service, and the versions that it takes and makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    from: String,
    to: String,
    url: String,
}

/// The transformers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TransformerSettings {
    hosts: Vec<String>,
    timeout: Span,
    max_requests: NonZeroUsize,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorities: Option<PathBuf>,
    steps: Vec<Step>,
}

impl TransformerSettings {
    pub(super) fn merge(raw: Option<Spanned<RawTransformers>>) -> Option<Self> {
        let RawTransformers { hosts, timeout, max_requests, token_file, authorities, steps } =
            raw?.into_inner();
        Some(Self {
            hosts,
            timeout: timeout.unwrap_or(Span(http::Settings::TIMEOUT)),
            max_requests: max_requests.unwrap_or(http::Settings::MAX_REQUESTS),
            token_file,
            authorities,
            steps,
        })
    }
}

impl Settings {
    /// Creates the client of the transformers. `None` if none is configured.
    ///
    /// # Errors
    ///
    /// Describes a version, an address, a host or a file that cannot be used.
    pub fn transformers(&self) -> Result<Option<Transformers>, String> {
        let Some(own) = &self.transformers else { return Ok(None) };
        let step = |step: &Step| {
            let Step { from, to, url } = step.clone();
            http::Step { from, to, url }
        };
        let settings = http::Settings {
            steps: own.steps.iter().map(step).collect(),
            hosts: own.hosts.clone(),
            timeout: own.timeout.0,
            max_requests: own.max_requests,
            max_size: self.merged.body_limit.0,
            token_file: own.token_file.clone(),
            authorities: own.authorities.clone(),
        };
        Transformers::new(settings).map(Some).map_err(|error| format!("[transformers]: {error}"))
    }
}
