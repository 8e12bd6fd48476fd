//! The services that Rashomon asks and tells over HTTP: renderers ([`generator`]), transformers ([`transformer`]) and
//! caches ([`purges`]); and what their clients share.
//!
//! [`BearerToken`] is a token as the value of a header. [`TokenFile`] is a file with a token, which may change.
//! [`client_config()`] returns the settings of TLS, with the authorities of the system or of a file. [`ServerUrl`] is the
//! address of a server of Rashomon or of a cache. [`bounded`] sends requests to services that are not trusted.
//! [`PooledClient`] sends many small requests to a trusted service.
//!
//! # Invariants
//!
//! - No error, log line or debug output contains a token.
//! - The requests of `bounded` go to allowed hosts only, redirects included. Time, bytes and requests are bounded.

mod authorities;
pub mod bounded;
pub mod generator;
mod last_cause;
mod pooled;
pub mod purges;
mod server_url;
mod token;
mod token_file;
pub mod transformer;

pub use authorities::{AuthoritiesError, client_config};
pub use last_cause::last_cause;
pub use pooled::PooledClient;
pub use server_url::ServerUrl;
pub use token::{BearerToken, MAX_TOKEN_BYTES, TokenError};
pub use token_file::{TokenFile, TokenFileError};

/// The name of these clients, for the operators of services.
const USER_AGENT: http::HeaderValue =
    http::HeaderValue::from_static(concat!("rashomon/", env!("CARGO_PKG_VERSION")));
