//! The generator over HTTP: a renderer, such as MediaWiki, makes properties that are not stored.
//!
//! [`Settings`] say which renderer makes which property of which bucket. Their URLs contain `{domain}`,
//! `{title}` and `{rev}`, which are replaced by those of the revision. All properties of a revision are
//! fetched together. If one of them cannot be fetched, none is returned.
//!
//! A renderer is not trusted. The wait for it is bounded by a timeout, its answer by the size that a property
//! may have, and its redirects by the allowed hosts. Each request has a connection of its own, so that the
//! rest of one answer never becomes part of another.
//!
//! For MediaWiki, use `rest.php/v1/revision/{rev}/html`, which answers with 404 if there is no such revision.
//! `index.php?oldid={rev}&action=render` then answers with 200 and a message for people.

mod generator;
mod settings;
mod template;

pub use rashomon_http_client::bounded::MAX_REDIRECTS;

pub use self::{
    generator::HttpGenerator,
    settings::{Settings, SettingsError, Source, Upstream},
};
