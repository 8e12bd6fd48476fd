//! The parts of HTTP that depend only on the headers of a request and on the version of a resource.
//!
//! [`conditional`] decides about conditional requests, [`range`] selects a range of bytes, [`negotiate`] the content
//! encoding, [`spec_version`] the version of a format, and [`cache_control`] makes the `Cache-Control` of an answer from a stored one. [`spelling`] writes titles and keys in URLs, and [`surrogate_keys`] names answers for HTTP
//! caches. All of them are functions without I/O.

pub mod cache_control;
pub mod conditional;
pub mod negotiate;
pub mod range;
pub mod spec_version;
pub mod spelling;
pub mod surrogate_keys;
