//! The transformers of spec versions: `[transformers]`.

use std::{num::NonZeroUsize, path::PathBuf};

use rashomon_pages::excerpt;
use rashomon_upstream::transformer::{self as http, Profile, Transformers};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use url::Url;

use super::{Settings, values::Span};

/// The table `[transformers]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTransformers {
    #[serde(default)]
    hosts: Vec<String>,
    timeout: Option<Span>,
    max_requests: Option<NonZeroUsize>,
    token_file: Option<PathBuf>,
    authorities: Option<PathBuf>,
    #[serde(default)]
    steps: Vec<Step>,
}

/// One service, with the version that it takes and the version that it makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    from: String,
    to: String,
    url: String,
}

/// The settings of the transformers.
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
    fn http_settings(&self, max_size: u64) -> http::Settings {
        let step = |step: &Step| {
            let Step { from, to, url } = step.clone();
            http::Step { from, to, url }
        };
        http::Settings {
            steps: self.steps.iter().map(step).collect(),
            hosts: self.hosts.clone(),
            timeout: self.timeout.0,
            max_requests: self.max_requests,
            max_size,
            token_file: self.token_file.clone(),
            authorities: self.authorities.clone(),
        }
    }

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
    /// Creates the client of the transformers. Returns `None` if none is configured.
    ///
    /// # Errors
    ///
    /// Returns a description of a version, an address, a host or a file that cannot be used.
    pub(crate) fn transformers(&self) -> Result<Option<Transformers>, String> {
        let Some(own) = &self.transformers else { return Ok(None) };
        let settings = own.http_settings(self.merged.body_limit.0);
        Transformers::new(settings).map(Some).map_err(|error| format!("[transformers]: {error}"))
    }
}

/// Creates the client for a rewrite of stored values, and selects the current version.
///
/// `url` is the transformer that gets all earlier versions. Without a URL, the configured transformers are used.
/// `current` is the profile of the current version. Without a profile, the current version is the one that the
/// configured steps of that URL make. All these steps must make the same version.
///
/// # Errors
///
/// Returns a description of the wrong or missing setting, and how to correct it.
pub(crate) fn transformers_for_rewrite(
    configured: &Settings,
    url: Option<&str>,
    current: Option<&Profile>,
) -> Result<(Transformers, Profile), String> {
    let own = configured.transformers.as_ref();
    let Some(url) = url else {
        let Some(current) = current else {
            return Err("name the current version with --to-version PROFILE".to_owned());
        };
        let Some(transformers) = configured.transformers()? else {
            return Err(
                "the configuration has no [transformers]: name a transformer with --with URL".to_owned()
            );
        };
        return Ok((transformers, current.clone()));
    };
    let steps = own.map_or(&[][..], |own| &own.steps);
    let steps: Vec<_> = steps.iter().filter(|step| is_same_url(&step.url, url)).collect();
    let current = match current {
        Some(current) => current.clone(),
        None => target_version(&steps, url)?,
    };
    let mut settings = match own {
        Some(own) => own.http_settings(configured.merged.body_limit.0),
        None => http::Settings { max_size: configured.merged.body_limit.0, ..http::Settings::default() },
    };
    if steps.is_empty() {
        // The token is only for transformers that the configuration names.
        settings.token_file = None;
    }
    let transformers = Transformers::to_one(url, &current, settings);
    Ok((transformers.map_err(|error| format!("--with: {error}"))?, current))
}

/// The version that the configured steps of a URL make.
fn target_version(steps: &[&Step], url: &str) -> Result<Profile, String> {
    let url = excerpt(url);
    let Some(first) = steps.first() else {
        return Err(format!(
            "no step of [transformers] has the URL {url}: name the version that it makes with --to-version PROFILE"
        ));
    };
    if steps.iter().any(|step| step.to != first.to) {
        return Err(format!(
            "the steps of [transformers] with the URL {url} make several versions: name one with --to-version PROFILE"
        ));
    }
    // The configuration was checked before, so the step has a version.
    Profile::parse(&first.to).ok_or_else(|| format!("{} is not a profile", excerpt(&first.to)))
}

/// Whether two texts are the same URL, such as with and without the slash after the host.
fn is_same_url(one: &str, other: &str) -> bool {
    one == other || matches!((Url::parse(one), Url::parse(other)), (Ok(one), Ok(other)) if one == other)
}
