//! The timeline in Redis: when values were superseded, for several servers to share.
//!
//! Redis may forget all of it at any time: then culling is left to the sweep. It may be slow, hang or be gone:
//! that costs a write no more than [`Settings::patience`], once in [`REST`], and a warning.
//!
//! A database of Redis belongs to one store of Rashomon, as it stands. What another store has noted under the
//! same names would have values culled early, and so would the notes of a store that has been set back to a
//! backup since: then flush the database.

mod connection;
mod entry;
mod timeline;

pub use self::{
    connection::REST,
    timeline::{ENTRIES, RedisTimeline, Settings, SettingsError},
};
