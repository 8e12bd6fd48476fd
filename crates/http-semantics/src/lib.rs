//! The parts of HTTP that depend only on the headers of a request and on the version of a resource.
//!
//! [`conditional`] decides about conditional requests, [`range`] selects a range of bytes, and [`negotiate`] the content
//! encoding. All of them are functions without I/O.

pub mod conditional;
pub mod negotiate;
pub mod range;
