//! Exports and imports of key-value buckets, in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damage;
mod round_trip;
mod support;
