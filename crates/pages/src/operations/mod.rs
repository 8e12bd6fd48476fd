//! The operations that involve all parts of a store, and the background work of a server.
//!
//! [`erase()`], [`verify()`], [`repair()`], [`stats()`] and [`delete_pages`] are functions over an open
//! [`RevisionStore`](crate::RevisionStore). They use the records, the archive and retention directly.
//!
//! [`Background`] runs garbage collection (also of deleted buckets), the rescans and sweeps of retention, and
//! the seals and compactions of the archive, in separate tasks. A program that embeds the buckets has to start
//! these tasks. [`AwaitedStore`] is a placeholder for a cluster that does not answer yet.
//!
//! # Invariants
//!
//! - A panic in a task of `background` is counted, and the task is restarted.

mod awaited;
mod background;
mod delete;
mod erase;
mod repair;
mod stats;
mod supervised;
mod verify;

pub use awaited::{AwaitedStore, Connect};
pub use background::{Background, BackgroundOptions, MIN_ORPHAN_AGE, SWEEP_PAUSE};
pub use delete::delete_pages;
pub use erase::{EraseOptions, EraseReport, ErasureState, SameBytes, erase, erasures};
pub use rashomon_entries::{BucketStats, BucketType};
pub use repair::{RepairReport, repair};
pub use stats::{BucketContent, DomainStats, PageStats, PropertyStats, stats, stats_of};
pub use supervised::Panics;
pub use verify::verify;
