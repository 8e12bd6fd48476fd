//! A forwarding server with backends in this process: servers of the service, and servers that misbehave.

// Clippy lets tests unwrap, but not their helpers.
#![allow(clippy::unwrap_used)]

mod backends;
mod bodies;
mod failures;
mod forwarding;
mod http;
mod load;
mod registry;
mod rights;
mod server;
mod tokens;
