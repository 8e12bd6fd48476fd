//! The client with a server of the service in this process, and with servers that misbehave.

// Clippy lets tests unwrap, but not their helpers.
#![allow(clippy::unwrap_used)]

mod bodies;
mod broken;
mod broken_buckets;
mod buckets;
mod examples;
mod reading;
mod registry;
mod server;
mod socket;
mod tls;
mod tokens;
mod writing;
