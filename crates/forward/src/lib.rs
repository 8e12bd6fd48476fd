//! Forwards requests to other servers, by a registry of prefixes.
//!
//! A [`Forwarder`] implements [`Backends`](rashomon_server::Backends), which the API asks for the backend of each request.
//! The longest [`Prefix`] of the path wins. [`Destination::Servers`] is a list of servers: `rashomon-client` selects a
//! server, and repeats a request if that is harmless. This crate decides which headers are passed on, and how failures
//! are reported to the client.
//!
//! # Invariants
//!
//! - A backend gets no request that this server would refuse.
//! - The token of the caller and that of the server are never sent together, and neither token goes to a server for
//!   which it is not configured.
//! - If the answer of a backend breaks off, the connection of the client is closed, so that the client notices this.

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
