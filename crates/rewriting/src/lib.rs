//! Brings stored values to the current version of their spec, in place.
//!
//! A [`Rewriter`] goes through the pages of a bucket. It reads each value of a property whose content type names an
//! earlier version than the target, sends the value through a transformer, and stores the new version by a destructive
//! PUT. The render keeps its tid, and the value gets a new ETag. The source is note 002: "update HTML to the latest DOM
//! spec".
//!
//! Each value is replaced by one batch of its page, and only if it is still the value that was read. A value of the
//! current version is skipped, so an interrupted run is continued by another run.
//!
//! Values in blocks of the archive are left alone unless [`RewriteOptions::archived`] is set. Then each block with
//! values of an earlier version is rewritten.

mod pace;
mod report;
mod rewriter;
mod version;

pub use rashomon_http_semantics::spec_version::Profile;

pub use self::{
    report::{Failure, Failures, RewriteReport},
    rewriter::{MAX_CONSECUTIVE_FAILURES, RewriteError, RewriteOptions, Rewriter},
    version::StoredVersion,
};
