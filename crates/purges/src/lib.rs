//! Purges of HTTP caches: deletes the cached answers that a change makes wrong.
//!
//! A change queues its purge in the store, before or with itself (`rashomon_records::PurgeEntry`). [`PurgingStore`]
//! notices the queued purges in the calls of the store, and hands them over when their call has ended. [`Purger`] then
//! finds out which answers have changed (`targets`), and tells each cache (`sender`): at once, and once more a little
//! later, since a fetch under way at the commit may put the old answer into the cache after the first time.
//!
//! The purges in memory are lost in a crash, those in the store are not. So each cache has a reader of the queue
//! (`reader`), with a cursor in the store. The reader sends the purges that this process has not sent. A cache that fails
//! gets its purges from the reader alone, until the reader has caught up. A cache that fails delays neither writes nor
//! other caches.

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
