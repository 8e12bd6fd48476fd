//! The background work of a server.
//!
//! [`Background`] runs garbage collection, the rescans and sweeps of retention, and the sealing and compaction
//! of the archive, each in a task of its own. A program that embeds the buckets starts it beside its own work.

mod background;
mod supervised;

pub use background::{Background, BackgroundOptions, MIN_ORPHAN_AGE, SWEEP_PAUSE};
pub use supervised::Panics;
