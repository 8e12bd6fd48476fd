//! The registry: which backend answers the requests of a path.
//!
//! The longest [`Prefix`] of the path wins. [`Destination::Servers`] is a list of servers: `rashomon-client` selects a
//! server, and repeats a request if that is harmless. The folder decides which headers are passed on, and how failures
//! are reported to the client. The middleware `forwarding` checks the requests before.
//!
//! # Invariants
//!
//! - The token of the caller and that of the server are never sent together, and neither token goes to a server for
//!   which it is not configured.
//! - If the answer of a backend breaks off, the connection of the client is closed, so that the client notices this.

mod backend;
mod exchange;
mod forwarder;
mod headers;
mod metrics;
mod prefix;
mod settings;
mod upstream;

pub(crate) use self::{
    backend::{Backend, BackendHealth, BrokenAnswer, ForwardError, Sender},
    upstream::PrefixServers,
};
pub use self::{
    backend::{Forwarding, OtherStore},
    forwarder::Forwarder,
    metrics::ForwardMetrics,
    prefix::{Prefix, PrefixError},
    settings::{Destination, Entry, OpenError, ServerList},
};
