//! What a server and its clients share: names, tids, versions, and the parts of HTTP that need no I/O.
//!
//! - [`DomainName`], [`BucketName`], [`Title`], [`EntryKey`], [`PropertyName`] and [`Revision`] are checked names. [`Tid`]
//!   is the name of a render, and [`Page`] has the names that identify a page.
//! - [`ProblemKind`] is the kind of an error that a server reports.
//! - [`excerpt()`] shortens input for messages.
//! - [`conditional`] evaluates conditional requests.
//! - [`range`] selects a range of bytes.
//! - [`negotiate`] selects the content encoding.
//! - [`spec_version`] selects the version of a format.
//! - [`cache_control`] makes the `Cache-Control` of an answer from a stored one.
//! - [`spelling`] writes titles and keys in URLs.
//! - [`surrogate_keys`] names answers for HTTP caches.
//!
//! # Invariants
//!
//! - The constructors of names validate, so no later code validates a name again.
//! - The crate does no I/O, and does not ask a clock for the time.

pub mod cache_control;
pub mod conditional;
mod excerpt;
mod names;
pub mod negotiate;
mod problem;
pub mod range;
pub mod spec_version;
pub mod spelling;
pub mod surrogate_keys;
mod tid;
mod version;

pub use excerpt::{EXCERPT_BYTES, excerpt, shorten};
pub use names::{BucketName, DomainName, EntryKey, NameError, Page, PropertyName, Revision, Title};
pub use problem::{ProblemKind, TYPE_BASE};
pub use tid::Tid;
pub use version::{Expect, PropertyVersion};
