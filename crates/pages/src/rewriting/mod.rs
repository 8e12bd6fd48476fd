//! Updates stored values to the current version of their spec, in place.
//!
//! A [`Rewriter`] goes through the pages of a bucket. The rewriter reads each value of a property whose content type
//! names an earlier version than the target, sends the value through a transformer, and stores the new
//! version by a destructive PUT. The render keeps its tid, and the value gets a new ETag. The source is note
//! 002: "update HTML to the latest DOM spec".
//!
//! Each value is replaced in one batch of its page, and only if the value has not changed since it was read.
//! Values of the current version are skipped, so another run continues an interrupted one.
//!
//! Values in blocks of the archive stay unchanged unless [`RewriteOptions::archived`] is set. With this option,
//! each block with values of an earlier version is rewritten.
//!
//! # Invariants
//!
//! - A value is replaced only if it is still the value that was read.
//! - A run may end at any point. The content types alone say which values are left to rewrite.

mod pace;
mod report;
mod rewriter;
mod transformer;
mod version;

pub use rashomon_protocol::spec_version::Profile;

pub use self::{
    report::{Failure, Failures, RewriteReport},
    rewriter::{MAX_CONSECUTIVE_FAILURES, RewriteError, RewriteOptions, Rewriter},
    transformer::{TransformFailure, Transformed, Transformer},
    version::StoredVersion,
};
