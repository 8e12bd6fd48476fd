//! The version of a property, and the versions that a write may replace.

use rashomon_clock::Timestamp;

use crate::{Revision, Tid};

/// The version of a property. The version changes whenever the bytes of the property change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyVersion {
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Tid,
    /// The time at which the property was last replaced in place, if ever.
    pub rewritten_at: Option<Timestamp>,
}

/// The condition of a replacement: the version that the property must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Any version.
    Any,
    /// One of these versions.
    OneOf(Vec<PropertyVersion>),
}
