//! The answers of the HTTP API: JSON documents ([`json`]), problems ([`problem`]), redirects and lists of methods
//! ([`answer`]), and how long caches may keep an answer ([`caching`]).
//!
//! The module does not know requests, except their headers.
//!
//! # Invariants
//!
//! - Of a request, the module knows only the headers.

pub(crate) mod answer;
pub(crate) mod caching;
pub(crate) mod json;
pub(crate) mod no_body;
pub(crate) mod page_token;
pub(crate) mod problem;
