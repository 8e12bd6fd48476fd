//! The settings of purges.

use std::{num::NonZeroUsize, time::Duration};

use crate::purges::Sites;

/// The way in which a cache is told which answers to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMethod {
    /// By their URLs: one `PURGE` for each URL.
    Purge,
    /// By their surrogate keys: one `PURGE` with the header `Surrogate-Key` for many keys.
    Keys,
}

/// The settings of one cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// The name of the cache in the configuration. The cursors of the cache are stored under this name.
    pub name: String,
    /// The way in which the cache is told which answers to delete.
    pub method: CacheMethod,
    /// The hosts under which clients request `/v1/` from the cache: the values of `Host`.
    pub hosts: Vec<String>,
    /// The maximum number of concurrent requests to the cache.
    pub max_requests: NonZeroUsize,
}

/// The settings of all purges.
#[derive(Debug, Clone)]
pub struct PurgeSettings {
    /// The hosts under which each domain has its pages.
    pub sites: Sites,
    /// The time between the first and the second purge of a change.
    pub again_after: Duration,
}
