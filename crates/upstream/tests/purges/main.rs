//! The tests of purges: which answers are named, when they are sent, and what happens when a cache or the server fails.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bad_caches;
mod crashes;
mod fake_cache;
mod memory;
mod named;
mod process;
mod queue;
mod sending;
mod targets;
mod test_store;
mod world;
