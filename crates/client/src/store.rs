//! A store behind servers or a registry: the starting point of the library.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};

use crate::{
    Body, ConfigError, Domain, InputError, RawRequest, RawResponse, Registry, Result, Servers,
    error::excerpt, registry::Routes, run::run,
};
use rashomon_protocol::DomainName;

/// A store of revisions, behind one server, several servers, or a [`Registry`] of backends.
///
/// A store is cheap to clone, and can be used by many tasks at once. Connections are opened when they are needed, in a
/// runtime of tokio with its time and I/O enabled.
///
/// ```no_run
/// use rashomon_client::{Servers, Store};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::new(Servers::new(["http://127.0.0.1:7231"]))?;
/// let page = store.domain("enwiki")?.page("Main Page")?;
/// let html = page.latest("html").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    routes: Arc<Routes>,
}

impl Store {
    /// A store behind servers, without a default domain.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if an address, the token or the authorities cannot be used. Nothing is sent.
    pub fn new(servers: Servers) -> Result<Self, ConfigError> {
        Self::of(Registry::new().servers("/", servers))
    }

    /// A store behind a registry of backends.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a prefix or the setting of a backend is invalid, or if two backends have the same
    /// prefix. Nothing is sent.
    pub fn of(registry: Registry) -> Result<Self, ConfigError> {
        Ok(Self { routes: Arc::new(registry.open()?) })
    }

    /// A domain of the store. It need not exist yet: the first write creates it.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] if the text is not the name of a domain.
    pub fn domain(&self, name: &str) -> Result<Domain, InputError> {
        Ok(Domain { store: self.clone(), name: DomainName::new(name)? })
    }

    /// Sends several requests concurrently, and returns the results in the order of the requests.
    ///
    /// At most 16 requests run at the same time. A failed request does not affect the others. An answer of any status
    /// is a success, and redirects are not followed. Requests may go to different backends.
    ///
    /// ```no_run
    /// use rashomon_client::RawRequest;
    ///
    /// # async fn example(store: rashomon_client::Store) -> Result<(), Box<dyn std::error::Error>> {
    /// let results = store
    ///     .run([
    ///         RawRequest::get("/page/Main_Page?rev/latest/html"),
    ///         RawRequest::get("//dewiki/page/Hauptseite?rev/latest/html"),
    ///     ])
    ///     .await;
    /// for result in results {
    ///     let answer = result?;
    ///     println!("{}: {} bytes", answer.status, answer.body.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A result is [`Error::Input`](crate::Error::Input) if its request is invalid,
    /// [`Error::Transport`](crate::Error::Transport) if there is no answer, and
    /// [`AnswerError::TooLarge`](crate::AnswerError::TooLarge) if the answer has more than 64 MiB.
    pub async fn run(&self, requests: impl IntoIterator<Item = RawRequest>) -> Vec<Result<RawResponse>> {
        run(self, requests.into_iter().collect()).await
    }

    pub(crate) fn default_domain(&self) -> Option<&DomainName> {
        self.routes.domain.as_ref()
    }

    /// Sends a request to the backend of its path, which begins with `/v1/`.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Body>> {
        let refused = |_| InputError::Path { path: excerpt(path), reason: "this is not a path of a URL" };
        let uri: Uri = path.parse().map_err(refused)?;
        let backend = self.routes.find(path)?;
        let has_empty_body = matches!(method, Method::PUT | Method::POST) && body.length() == Some(0);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        if has_empty_body {
            // Without this header, the server takes the body to be missing, not empty.
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Ok(backend.send(request).await?)
    }
}
