//! The servers of one prefix.

use std::sync::Arc;

use super::{
    OpenError, Prefix, ServerList,
    backend::{ForwardError, Sender},
    exchange::{answer_body, request_body},
    headers,
    metrics::{Outcome, Outcomes},
};
use crate::forms::{BodyError, RequestBody};
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode, Uri, request::Parts};
use rashomon_client::{Backend as _, BoxError, HttpBackend, ReplayMemory, TransportError};

/// The servers of one prefix, which answer its requests.
#[derive(Debug)]
pub(crate) struct PrefixServers {
    pub(crate) prefix: Prefix,
    pub(crate) settings: ServerList,
    pub(crate) backend: HttpBackend,
    pub(crate) outcomes: Outcomes,
    /// The name of this server in `Via`.
    name: Arc<str>,
}

impl PrefixServers {
    pub(crate) fn open(
        prefix: Prefix,
        settings: ServerList,
        name: Arc<str>,
        memory: &ReplayMemory,
    ) -> Result<Self, OpenError> {
        let backend = settings.open(memory)?;
        Ok(Self { prefix, settings, backend, outcomes: Outcomes::default(), name })
    }

    async fn forward(
        &self,
        mut head: Parts,
        body: RequestBody,
        sender: Sender,
    ) -> Result<Response, ForwardError> {
        if headers::has_visited(&head.headers, &self.name) {
            return Err(ForwardError::Loop);
        }
        let id = head.headers.get("x-request-id").cloned().unwrap_or(HeaderValue::from_static(""));
        let forward_authorization = self.settings.forward_authorization;
        headers::rewrite_for_backend(
            &mut head.headers,
            &head.uri,
            head.version,
            &sender,
            &self.name,
            forward_authorization,
        );
        let mut request = Request::new(request_body(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.path_and_query().cloned().map_or(Uri::default(), Uri::from);
        *request.headers_mut() = head.headers;
        let answer = self.backend.send(request).await.map_err(forward_error)?;
        if answer.status() == StatusCode::UNAUTHORIZED && !forward_authorization {
            // The backend refused the token of this server, or a request without one. The client cannot correct this.
            return Err(ForwardError::TokenRefused);
        }
        let (mut answered, body) = answer.into_parts();
        headers::rewrite_for_client(&mut answered.headers, answered.version, &self.name);
        headers::make_location_local(&mut answered.headers, &self.settings.servers);
        let body = answer_body(&head.method, &mut answered, body, self.prefix.to_string(), id);
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        Ok(response)
    }
}

impl PrefixServers {
    /// Whether this server treats the buckets other than `page` as public, since it does not know their definitions.
    pub(crate) fn is_public(&self) -> bool {
        self.settings.public
    }

    /// Whether the backend gets the token of the caller, so that it answers by the rights of the caller.
    pub(crate) fn gets_token_of_caller(&self) -> bool {
        self.settings.forward_authorization
    }

    /// Sends a request on, and returns the answer with a body that is streamed.
    ///
    /// The rights of the caller have been checked. The headers are those that the client sent, and `x-request-id`.
    pub(crate) async fn send(
        &self,
        head: Parts,
        body: RequestBody,
        sender: Sender,
    ) -> Result<Response, ForwardError> {
        // The future is large, and a part of the future of every request.
        let result = Box::pin(self.forward(head, body, sender)).await;
        self.outcomes.count(Outcome::of(&result));
        result
    }
}

/// Converts an error of the client library into an error of the API.
fn forward_error(error: TransportError) -> ForwardError {
    match error {
        TransportError::Connect { .. } => ForwardError::Unreachable(error.to_string()),
        TransportError::TimedOut { .. } => ForwardError::TimedOut(error.to_string()),
        TransportError::Source(source) => body_error(source),
        error => ForwardError::Failed(error.to_string()),
    }
}

fn body_error(source: BoxError) -> ForwardError {
    match source.downcast::<BodyError>() {
        Ok(error) => ForwardError::Body(*error),
        Err(source) => ForwardError::Failed(source.to_string()),
    }
}
