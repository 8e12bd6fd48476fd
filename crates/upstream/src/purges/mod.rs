//! Purges HTTP caches: deletes the cached answers that a change makes wrong.
//!
//! A change queues its purge in the store, in the same call or before it (`rashomon_records::PurgeEntry`).
//! [`PurgingStore`] finds the queued purges in the calls of the store, and gives them to the [`Purger`] when the call
//! has ended. The [`Purger`] finds out which answers have changed (`targets`), and sends the purge to each cache
//! (`sender`). It sends each purge twice: at once, and again a little later. A cache may have begun to fetch the old
//! answer before the commit, and may store this answer after the first purge.
//!
//! A crash loses the purges in memory, but not the purges in the store. So each cache has a reader of the queue
//! (`reader`), with a cursor in the store. The reader sends the purges that were not sent from memory. A cache that
//! fails gets its purges from the reader alone, until the reader has caught up. A cache that fails delays neither
//! writes nor other caches.
//!
//! # Invariants
//!
//! - An entry is written by the same call of the store as its change, and before the change.
//! - A cursor passes an entry only after the cache has acknowledged it.
//! - Only the tasks of a cache wait for the cache. Without caches, nothing is queued.

mod cache;
mod metrics;
mod purger;
mod queue;
mod reader;
mod request;
mod sender;
mod settings;
mod store;
mod targets;
mod tracker;

pub use self::{
    metrics::PurgeMetrics,
    purger::Purger,
    request::{HttpTransport, PurgeRequest, Transport},
    settings::{CacheMethod, CacheSettings, PurgeSettings},
    store::PurgingStore,
    targets::{Sites, Targets, targets_of},
};
