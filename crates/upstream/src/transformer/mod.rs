//! Transformers over HTTP: services that convert a stored document into another version of its spec.
//!
//! A [`Step`] takes a document of one version and returns it in another version. [`Transformers`] finds the shortest
//! chain of steps from a stored version to a requested version. The design is that of note 002, "Minor-version API
//! versioning per entry point via Accept header".
//!
//! A transformer gets the document by `POST`, with its `Content-Type`, and with the wanted type and profile in
//! `Accept`. It answers 200 with the new document, whose `Content-Type` names the new profile.
//!
//! A transformer is not trusted. A timeout bounds the wait for its answer, and a maximum size bounds the answer.
//! Redirects lead to allowed hosts only. The number of concurrent transformations bounds the documents in memory.
//!
//! # Invariants
//!
//! - The content type of a step's answer names the version that the step makes, or the call fails.

mod chain;
mod settings;
mod transformers;

pub use rashomon_protocol::spec_version::Profile;

pub use self::{
    settings::{Settings, SettingsError, Step},
    transformers::{TransformError, Transformers},
};
