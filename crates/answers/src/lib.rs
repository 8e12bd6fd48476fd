//! The answers of the HTTP API: JSON documents ([`json`]), problems ([`problem`]), redirects and lists of methods
//! ([`answer`]), and how long caches may keep an answer ([`caching`]).
//!
//! The crate does not know requests, except their headers. The crate `rashomon-api` has the routes and handlers.

pub mod answer;
pub mod caching;
pub mod json;
pub mod no_body;
pub mod page_token;
pub mod problem;
