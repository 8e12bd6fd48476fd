//! The timeline in Redis: when values were superseded, for several servers to share.
//!
//! Redis may forget all entries at any time; then culling is left to the sweep. Redis may be slow, hang or be
//! gone. Then a write is delayed by at most [`Settings::patience`], once in [`REST`], and a warning is
//! logged.
//!
//! A database of Redis belongs to one store of Rashomon. Some entries may be wrong: those of another store
//! under the same names, of a store that was restored from a backup since, or of a write that was rolled
//! back. They cull nothing early, since a cull also reads the index. They only leave more to the sweep.

mod connection;
mod entry;
mod timeline;

pub use self::{
    connection::REST,
    timeline::{ENTRIES, RedisTimeline, Settings, SettingsError},
};
