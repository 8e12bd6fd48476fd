//! The generator: fetches the properties of a revision from the renderer of its bucket.

use std::{collections::BTreeMap, num::NonZeroUsize};

use crate::{
    TokenFile,
    bounded::{BoundedClient, Bounds, ExpectedAnswer, FetchError, Hosts, MediaType, Outgoing},
};
use async_trait::async_trait;
use futures::future::try_join_all;
use rashomon_pages::{
    BucketName, DomainName, GenerateError, Generated, Generator, Page, PropertyName, Revision, excerpt,
};

use crate::generator::{
    settings::{Settings, SettingsError, Source, Upstream},
    template::Template,
};

/// Makes properties by asking renderers over HTTP.
#[derive(Debug)]
pub struct HttpGenerator {
    client: BoundedClient,
    renderer: Option<Renderer>,
    buckets: BTreeMap<(DomainName, BucketName), Renderer>,
}

/// A checked [`Upstream`].
#[derive(Debug)]
struct Renderer {
    names: Vec<PropertyName>,
    endpoints: Vec<Endpoint>,
    /// The limits of this renderer. They are separate, so that a renderer that hangs does not block the others.
    bounds: Bounds,
}

/// The URL of a property, and the expected answer.
#[derive(Debug)]
struct Endpoint {
    name: PropertyName,
    template: Template,
    expected: ExpectedAnswer,
}

impl HttpGenerator {
    /// Creates a generator with these settings, without making a request.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be used, or a URL leads to a host that is not allowed.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let Settings { upstream, buckets, max_requests, authorities } = settings;
        let renderer = upstream.map(|upstream| Renderer::new(upstream, max_requests)).transpose()?;
        let buckets = (buckets.into_iter())
            .map(|(bucket, upstream)| Ok((bucket, Renderer::new(upstream, max_requests)?)))
            .collect::<Result<BTreeMap<_, _>, SettingsError>>()?;
        let mut templates = renderer.iter().chain(buckets.values()).flat_map(|renderer| &renderer.endpoints);
        let needs_tls = templates.any(|endpoint| endpoint.template.is_https());
        let client = BoundedClient::new(authorities.as_deref(), needs_tls)
            .map_err(|error| SettingsError::Authorities(error.to_string()))?;
        Ok(Self { client, renderer, buckets })
    }

    fn renderer(&self, page: &Page) -> Option<&Renderer> {
        if self.buckets.is_empty() {
            return self.renderer.as_ref();
        }
        self.buckets.get(&(page.domain.clone(), page.bucket.without_id())).or(self.renderer.as_ref())
    }

    async fn property(
        &self,
        renderer: &Renderer,
        endpoint: &Endpoint,
        page: &Page,
        rev: Revision,
    ) -> Result<Generated, GenerateError> {
        let Endpoint { name, template, expected } = endpoint;
        let url = template.url(page, rev).map_err(|why| {
            GenerateError::Failed(format!("{name}: no URL can be made for this page: {why}"))
        })?;
        let answer = self.client.send(Outgoing::get(url.clone()), &renderer.bounds, expected).await;
        let answer = answer.map_err(|error| {
            // The URL is logged for the operator, and is not part of the answer to the reader.
            tracing::warn!(
                domain = %page.domain, title = %page.title, %rev, property = %name, %url, %error,
                "cannot fetch a property from the renderer"
            );
            convert_error(name, error)
        })?;
        Ok(Generated { name: name.clone(), content_type: answer.content_type, body: answer.body })
    }
}

#[async_trait]
impl Generator for HttpGenerator {
    fn makes(&self, page: &Page) -> &[PropertyName] {
        self.renderer(page).map_or(&[], |renderer| &renderer.names)
    }

    async fn generate(&self, page: &Page, rev: Revision) -> Result<Vec<Generated>, GenerateError> {
        let Some(renderer) = self.renderer(page) else { return Ok(Vec::new()) };
        // The first failure cancels the other requests.
        try_join_all(renderer.endpoints.iter().map(|endpoint| self.property(renderer, endpoint, page, rev)))
            .await
    }
}

impl Renderer {
    fn new(upstream: Upstream, max_requests: NonZeroUsize) -> Result<Self, SettingsError> {
        let Upstream { properties, hosts, timeout, token_file } = upstream;
        if timeout.is_zero() {
            return Err(SettingsError::Timeout);
        }
        let hosts = Hosts::parse(&hosts).map_err(|(host, why)| SettingsError::Host { host, why })?;
        let token = token_file.map(TokenFile::open).transpose();
        let token = token.map_err(|error| SettingsError::Token(error.to_string()))?;
        let names = properties.keys().cloned().collect();
        let endpoints = properties.into_iter().map(|(name, source)| Endpoint::new(name, source, &hosts));
        let endpoints = endpoints.collect::<Result<_, _>>()?;
        Ok(Self { names, endpoints, bounds: Bounds::new(hosts, timeout, token, max_requests) })
    }
}

impl Endpoint {
    fn new(name: PropertyName, source: Source, hosts: &Hosts) -> Result<Self, SettingsError> {
        let Source { url, content_type, max_size } = source;
        let error = |why| SettingsError::Url { property: name.clone(), url: url.clone(), why };
        let template = Template::parse(&url).map_err(error)?;
        let example = template.example().map_err(error)?;
        // If the host contains the domain of the page, the host is checked for each page.
        if template.has_one_host() && !hosts.allow(&example) {
            let host = example.authority();
            return Err(error(format!(
                "its host is {}, which is not one of the allowed hosts: add it to the allowed hosts",
                excerpt(host)
            )));
        }
        let media_type = match content_type {
            Some(text) => match MediaType::parse(&text) {
                Some(media_type) => Some(media_type),
                None => return Err(SettingsError::ContentType { property: name, content_type: text }),
            },
            None => None,
        };
        Ok(Self { name, template, expected: ExpectedAnswer { media_type, max_size } })
    }
}

/// Converts an error, and puts the name of the property before its text.
fn convert_error(name: &PropertyName, error: FetchError) -> GenerateError {
    let say = |why: String| format!("{name}: {why}");
    match error {
        FetchError::Unknown(why) => GenerateError::Unknown(say(why)),
        FetchError::TimedOut(why) => GenerateError::TimedOut(say(why)),
        FetchError::Busy(why) => GenerateError::Busy(say(why)),
        FetchError::Failed(why) => GenerateError::Failed(say(why)),
    }
}
