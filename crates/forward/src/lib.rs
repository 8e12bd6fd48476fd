//! Forwards requests to other servers, by a registry of prefixes.
//!
//! A [`Forwarder`] implements [`Backends`](rashomon_server::Backends), which the API asks for the backend of each request.
//! The longest [`Prefix`] of the path wins. [`Destination::Servers`] is a list of servers: `rashomon-client` selects a
//! server, and repeats a request if that is harmless. This crate decides which headers are passed on, and how failures
//! are reported to the client.

mod exchange;
mod forwarder;
mod headers;
mod metrics;
mod prefix;
mod settings;
mod upstream;

pub use forwarder::Forwarder;
pub use metrics::ForwardMetrics;
pub use prefix::{Prefix, PrefixError};
pub use settings::{Destination, Entry, OpenError, ServerList};
