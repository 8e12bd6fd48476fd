//! What a world finds.

use std::fmt;

/// The promises of retention, as the design counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The latest is the highest (rev, tid) stored.
    R1,
    /// What was superseded can be read for a grace.
    R2,
    /// What was read after that, or was made, can be read for a ttl.
    R3,
    /// What was superseded is gone by grace and slack.
    R4,
    /// A cull that fails is no error for the writer, and two are as one.
    R5,
    /// A render goes as a whole; what belongs to the revision goes with that.
    R6,
    /// Losing the timeline culls nothing early.
    R7,
    /// Clocks that differ, or jump, cull nothing early.
    R8,
    /// None of those: a call that nothing disturbs gives what was written.
    Answer,
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// What was seen instead.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// The result of what may find a promise broken.
pub(crate) type Result<T, E = Violation> = std::result::Result<T, E>;
