//! Transformers over HTTP: services that make another spec version of a stored document.
//!
//! A [`Step`] takes a document of one version and returns it in another one. [`Transformers`] finds the shortest chain
//! of steps from a stored version to a requested one. The source is note 002, "Minor-version API versioning per entry
//! point via Accept header".
//!
//! A transformer gets the document by `POST`, with its `Content-Type`, and with the wanted type and profile in
//! `Accept`. It answers 200 with the new document, whose `Content-Type` names the new profile.
//!
//! A transformer is not trusted. The wait for it is bounded by a timeout, its answer by a size, its redirects by the
//! allowed hosts, and all documents in memory by the number of concurrent transformations.

mod chain;
mod settings;
mod transformers;

pub use rashomon_http_semantics::spec_version::Profile;

pub use self::{
    settings::{Settings, SettingsError, Step},
    transformers::{Document, TransformError, Transformers},
};
