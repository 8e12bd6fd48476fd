//! The timeline in Redis: when values were superseded, for several servers to share.
//!
//! Redis may forget all of it at any time: then culling is left to the sweep. It may be slow, hang or be gone:
//! that costs a write no more than [`Settings::patience`], once in [`REST`], and a warning.
//!
//! A database of Redis belongs to one store of Rashomon. Entries of another store under the same names, of a store that
//! was restored from a backup since, or of a write that was rolled back, cull nothing early: a cull also reads the index.
//! They only leave more to the sweep.

mod connection;
mod entry;
mod timeline;

pub use self::{
    connection::REST,
    timeline::{ENTRIES, RedisTimeline, Settings, SettingsError},
};
