//! The timeline in Redis: the times at which values were superseded, shared by several servers.
//!
//! Redis may lose all entries at any time; in this case the sweep culls the values. If Redis is slow, hangs or
//! is down, a write is delayed by at most [`Settings::timeout`], once in [`RETRY_PAUSE`], and a warning is
//! logged.
//!
//! A database of Redis belongs to one store of Rashomon. An entry may be wrong: it may come from another
//! store with the same names, from before a restore of a backup, or from a write that was rolled back. Wrong
//! entries cull nothing early: a cull also reads the row of the next higher revision or render, which has the
//! time since which a value has been superseded. Wrong entries only leave more work to the sweep.
//!
//! # Invariants
//!
//! - If Redis loses an entry or does not answer, values are culled later, never earlier. A write waits for Redis for a
//!   bounded time.

mod connection;
mod entry;
mod timeline;

pub use self::{
    connection::RETRY_PAUSE,
    timeline::{MAX_ENTRIES_PER_PAGE, RedisTimeline, Settings, SettingsError},
};
