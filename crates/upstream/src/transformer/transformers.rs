//! Checks the steps, and sends documents to their transformers.

use std::{future::Future, num::NonZeroUsize};

use crate::{
    TokenFile,
    bounded::{Answer, BoundedClient, Bounds, ExpectedAnswer, FetchError, Hosts, MediaType, Outgoing},
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, header};
use rashomon_pages::rewriting::{TransformFailure, Transformed, Transformer};
use rashomon_protocol::spec_version::Profile;
use rashomon_records::excerpt;
use tokio::sync::Semaphore;
use url::Url;

use crate::transformer::{
    chain::{Ends, shortest},
    settings::{Settings, SettingsError, Step},
};

/// The reasons why a document cannot be transformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// No chain of steps leads to the version.
    #[error("no transformer makes {wanted} of {stored}")]
    NoChain {
        /// The stored profile.
        stored: String,
        /// The wanted profile.
        wanted: Profile,
    },
    /// The document is larger than a transformer gets.
    #[error("the document has {size} bytes, and a transformer gets at most {limit}")]
    TooLarge {
        /// The size of the document.
        size: u64,
        /// The maximum size.
        limit: u64,
    },
    /// A transformer answered with an error, or with an unusable answer.
    #[error("the transformer from {step} failed: {why}")]
    Failed {
        /// The versions of the step.
        step: String,
        /// What went wrong.
        why: String,
    },
    /// A transformer did not answer in time.
    #[error("the transformer from {step} did not answer in time: {why}")]
    TimedOut {
        /// The versions of the step.
        step: String,
        /// What went wrong.
        why: String,
    },
    /// The limit of transformations in progress is reached.
    #[error("too many transformations are in progress")]
    Busy,
}

/// All steps.
#[derive(Debug)]
pub struct Transformers {
    client: BoundedClient,
    bounds: Bounds,
    ends: Vec<Ends>,
    /// The URL of each step.
    urls: Vec<Url>,
    max_size: u64,
    timeout: std::time::Duration,
    /// Bounds the number of documents in memory.
    places: Semaphore,
}

impl Transformers {
    /// Creates transformers with these settings, without making a request.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be used, or a URL leads to a host that is not allowed.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let hosts = Hosts::parse(&settings.hosts).map_err(|(host, why)| SettingsError::Host { host, why })?;
        if settings.steps.len() > Settings::MAX_STEPS {
            return Err(SettingsError::TooManySteps(settings.steps.len()));
        }
        let checked = settings.steps.iter().cloned().map(|step| check_step(step, &hosts));
        let (ends, urls) = checked.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Self::with(settings, hosts, ends, urls)
    }

    /// Creates transformers of a single step, from every earlier version of the spec of `to`. The steps of the
    /// settings are not used. The host of the URL is allowed in addition to those of the settings.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting or the URL cannot be used.
    pub fn to_one(url: &str, to: &Profile, mut settings: Settings) -> Result<Self, SettingsError> {
        let parsed = parse_url(url)?;
        if parsed.has_host() {
            settings.hosts.push(parsed.authority().to_owned());
        }
        let hosts = Hosts::parse(&settings.hosts).map_err(|(host, why)| SettingsError::Host { host, why })?;
        let ends = vec![Ends { from: None, to: to.clone() }];
        Self::with(settings, hosts, ends, vec![parsed])
    }

    fn with(
        settings: Settings,
        hosts: Hosts,
        ends: Vec<Ends>,
        urls: Vec<Url>,
    ) -> Result<Self, SettingsError> {
        let Settings { timeout, max_requests, max_size, token_file, authorities, .. } = settings;
        if timeout.is_zero() {
            return Err(SettingsError::Timeout);
        }
        let token = token_file.map(TokenFile::open).transpose();
        let token = token.map_err(|error| SettingsError::Token(error.to_string()))?;
        let needs_tls = urls.iter().any(|url| url.scheme() == "https");
        let client = BoundedClient::new(authorities.as_deref(), needs_tls)
            .map_err(|error| SettingsError::Authorities(error.to_string()))?;
        let places = NonZeroUsize::get(max_requests).min(Semaphore::MAX_PERMITS);
        let bounds = Bounds::new(hosts, timeout, token, max_requests);
        Ok(Self { client, bounds, ends, urls, max_size, timeout, places: Semaphore::new(places) })
    }

    /// Whether a version that satisfies a request can be made from a document of this version.
    pub fn can_make(&self, stored: &Profile, wanted: &Profile) -> bool {
        shortest(&self.ends, stored, wanted).is_some()
    }

    /// Makes a version that satisfies a request. `size` is the size of the stored document. Calls `read` to read the
    /// document when fewer than `max_requests` transformations run.
    pub async fn transform<E: From<TransformError>>(
        &self,
        content_type: &str,
        size: u64,
        wanted: &Profile,
        read: impl Future<Output = Result<Bytes, E>>,
    ) -> Result<Transformed, E> {
        let stored = Profile::of_content_type(content_type);
        let chain = stored.as_ref().and_then(|stored| shortest(&self.ends, stored, wanted));
        let Some(chain) = chain else {
            let stored = stored.map_or_else(|| content_type.to_owned(), |stored| stored.to_string());
            return Err(TransformError::NoChain { stored, wanted: wanted.clone() }.into());
        };
        if size > self.max_size {
            return Err(TransformError::TooLarge { size, limit: self.max_size }.into());
        }
        let Ok(_place) = tokio::time::timeout(self.timeout, self.places.acquire()).await else {
            return Err(TransformError::Busy.into());
        };
        let mut document = Transformed { content_type: content_type.to_owned(), body: read.await? };
        for index in chain {
            document = self.step(index, document).await?;
        }
        Ok(document)
    }

    async fn step(&self, index: usize, document: Transformed) -> Result<Transformed, TransformError> {
        let to = &self.ends[index].to;
        let step = self.ends[index].to_string();
        let failed = |why| TransformError::Failed { step: step.clone(), why };
        let Some(media_type) = MediaType::parse(&document.content_type) else {
            return Err(failed("the stored content type is no media type".to_owned()));
        };
        let mut headers = HeaderMap::new();
        let accept = format!("{media_type}; profile=\"{to}\"");
        for (name, value) in [(header::CONTENT_TYPE, &document.content_type), (header::ACCEPT, &accept)] {
            let value = HeaderValue::try_from(value);
            headers.insert(name, value.map_err(|_| failed("the content type is no header".to_owned()))?);
        }
        let url = self.urls[index].clone();
        let request = Outgoing { method: Method::POST, url: url.clone(), headers, body: document.body };
        let expected = ExpectedAnswer { media_type: Some(media_type), max_size: self.max_size };
        let answer = self.client.send(request, &self.bounds, &expected).await.map_err(|error| match error {
            FetchError::Unknown(why) | FetchError::Failed(why) => failed(why),
            FetchError::TimedOut(why) => TransformError::TimedOut { step: step.clone(), why },
            FetchError::Busy(_) => TransformError::Busy,
        });
        let made = answer.and_then(|answer| parse_answer(answer, to).map_err(failed));
        // The URL is logged for the operator, and is not part of the answer to the reader.
        made.inspect_err(|error| tracing::warn!(%url, %error, "cannot transform a document"))
    }
}

/// An error of a transformation, or of the read of what is transformed.
struct RewriteFailure(TransformFailure);

impl From<TransformError> for RewriteFailure {
    fn from(error: TransformError) -> Self {
        // Other errors do not show that the transformer is down: no step makes the version, or the value is too large.
        let is_outage = matches!(
            error,
            TransformError::Failed { .. } | TransformError::TimedOut { .. } | TransformError::Busy
        );
        Self(TransformFailure::Transformer { why: error.to_string(), is_outage })
    }
}

#[async_trait]
impl Transformer for Transformers {
    async fn transform(
        &self,
        content_type: &str,
        size: u64,
        wanted: &Profile,
        read: BoxFuture<'_, rashomon_pages::Result<Bytes>>,
    ) -> Result<Transformed, TransformFailure> {
        let read = async { read.await.map_err(|error| RewriteFailure(TransformFailure::Read(error))) };
        let made = Self::transform(self, content_type, size, wanted, read).await;
        made.map_err(|RewriteFailure(failure)| failure)
    }
}

/// Returns the document of an answer if it has the expected version.
fn parse_answer(answer: Answer, expected: &Profile) -> Result<Transformed, String> {
    let content_type = answer.content_type.unwrap_or_default();
    match Profile::of_content_type(&content_type) {
        Some(profile) if profile.satisfies(expected) && expected.satisfies(&profile) => {
            Ok(Transformed { content_type, body: answer.body })
        }
        Some(profile) => Err(format!("it answered with {}, but {expected} was expected", excerpt(profile))),
        None => Err(format!("it answered without a profile, but {expected} was expected")),
    }
}

/// Checks a step, and parses its versions and its URL.
fn check_step(step: Step, hosts: &Hosts) -> Result<(Ends, Url), SettingsError> {
    let Step { from, to, url } = step;
    let profile = |text: String| Profile::parse(&text).ok_or(SettingsError::Profile(text));
    let (from, to) = (profile(from)?, profile(to)?);
    if from.spec() != to.spec() {
        return Err(SettingsError::OtherSpec { from, to });
    }
    if from.satisfies(&to) {
        return Err(SettingsError::NotNeeded { from, to });
    }
    let parsed = parse_url(&url)?;
    if !hosts.allow(&parsed) {
        let host = excerpt(parsed.authority());
        let why =
            format!("its host is {host}, which is not one of the allowed hosts: add it to the allowed hosts");
        return Err(SettingsError::Url { url, why });
    }
    Ok((Ends { from: Some(from), to }, parsed))
}

/// The URL of a step.
fn parse_url(url: &str) -> Result<Url, SettingsError> {
    let error = |why: String| SettingsError::Url { url: url.to_owned(), why };
    let example = "write a URL such as http://10.0.0.4:8000/html/2-to-1";
    let parsed = Url::parse(url).map_err(|reason| error(format!("{reason}; {example}")))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(error(format!("it begins with neither http:// nor https://; {example}")));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(error("it must not have a user or a password: use token_file".to_owned()));
    }
    if parsed.fragment().is_some() {
        return Err(error("the part after # is never sent: leave it out".to_owned()));
    }
    Ok(parsed)
}
