//! The trait of a backend.

use std::fmt;

use futures::future::BoxFuture;

use crate::{Body, TransportError};

/// The destination of requests: [`Servers`](crate::Servers), or code of the program.
///
/// A [`Registry`](crate::Registry) maps paths to backends. A program can implement a backend of its own, for example to
/// answer from memory in a test:
///
/// ```
/// use futures::future::BoxFuture;
/// use rashomon_client::{Backend, Body, Registry, Store, TransportError};
///
/// #[derive(Debug)]
/// struct Fixed;
///
/// impl Backend for Fixed {
///     fn send(
///         &self,
///         request: http::Request<Body>,
///     ) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
///         let path = request.uri().path().to_owned();
///         Box::pin(async move { Ok(http::Response::new(Body::from(format!("this is {path}")))) })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::of(Registry::new().backend("/", Fixed))?;
/// let html = store.domain("enwiki")?.page("Main Page")?.latest("html").await?;
/// assert_eq!(html.body.bytes(100).await?, "this is /v1/enwiki/page/Main_Page");
/// # Ok(())
/// # }
/// ```
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Sends a request, and returns the answer of any status. An answer with a status of 400 or more is not an error
    /// here.
    ///
    /// The URI of the request is a path, perhaps with a query: `/v1/{domain}/...`. The client sets neither `Host` nor
    /// `Authorization`. The client calls this function once for a request. A backend may itself repeat the request to
    /// its servers.
    ///
    /// # Errors
    ///
    /// Returns [`TransportError`] if there is no answer. [`TransportError::Backend`] is for errors of the backend.
    fn send(
        &self,
        request: http::Request<Body>,
    ) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>>;
}
