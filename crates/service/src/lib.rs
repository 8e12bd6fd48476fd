//! The background work of a server.
//!
//! [`Background`] runs garbage collection, the rescans and sweeps of retention, and the sealing and
//! compaction of the archive, each in a separate task. A program that embeds the buckets starts it in
//! addition to its other work.

mod background;
mod repair;
mod stats;
mod supervised;

pub use background::{Background, BackgroundOptions, MIN_ORPHAN_AGE, SWEEP_PAUSE};
pub use repair::{RepairReport, repair};
pub use stats::{DomainStats, PropertyStats, stats};
pub use supervised::Panics;
