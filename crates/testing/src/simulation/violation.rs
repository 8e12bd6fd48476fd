//! Broken promises.

use std::fmt;

/// The promises of retention, with their numbers in `docs/retention.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The latest is the highest (rev, tid) stored.
    R1,
    /// A superseded value can be read for the grace.
    R2,
    /// A superseded value that was read or generated can be read for a ttl after that.
    R3,
    /// A superseded value that nobody reads is gone after grace and slack, unless the policy keeps it.
    R4,
    /// A failed cull is no error for the writer, and two culls have the effect of one.
    R5,
    /// A render is culled as a whole. A property of the revision is culled with the revision.
    R6,
    /// The loss of the timeline culls nothing early.
    R7,
    /// Clocks that differ or jump cull nothing early.
    R8,
    /// None of the above: an undisturbed call returns what was written.
    Answer,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: Promise,
    /// The observed behaviour.
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

/// The result of a check.
pub(crate) type Result<T, E = Violation> = std::result::Result<T, E>;
