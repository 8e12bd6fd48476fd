//! The generator over HTTP: it asks a renderer, such as MediaWiki, for properties that are not stored.
//!
//! [`Settings`] say which renderer makes which property of which bucket. Their URLs may contain the placeholders
//! `{domain}`, `{title}` and `{rev}`, which are replaced by the values of the requested revision. All properties of a
//! revision are fetched together. If one of them cannot be fetched, none is returned.
//!
//! A renderer is not trusted. A timeout bounds the wait for its answer, and the maximum size of the property bounds the
//! answer. Redirects lead to allowed hosts only. Each request has a connection of its own, so that surplus bytes of an
//! answer never become part of another answer.
//!
//! For MediaWiki, use `rest.php/v1/revision/{rev}/html`, which answers with 404 if there is no such revision. For a
//! missing revision, `index.php?oldid={rev}&action=render` answers with 200 and a message for people.
//!
//! # Invariants
//!
//! - A call returns all properties that the renderer is configured to make of a revision, or an error.

mod http_generator;
mod settings;
mod template;

pub use self::{
    http_generator::HttpGenerator,
    settings::{Settings, SettingsError, Source, Upstream},
};
