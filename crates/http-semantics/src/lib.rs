//! The parts of HTTP that need neither the store nor any other I/O.
//!
//! - [`conditional`] evaluates conditional requests.
//! - [`range`] selects a range of bytes.
//! - [`negotiate`] selects the content encoding.
//! - [`spec_version`] selects the version of a format.
//! - [`cache_control`] makes the `Cache-Control` of an answer from a stored one.
//! - [`spelling`] writes titles and keys in URLs.
//! - [`surrogate_keys`] names answers for HTTP caches.
//!
//! # Invariants
//!
//! - The crate does no I/O, and does not ask a clock for the time.

pub mod cache_control;
pub mod conditional;
pub mod negotiate;
pub mod range;
pub mod spec_version;
pub mod spelling;
pub mod surrogate_keys;
