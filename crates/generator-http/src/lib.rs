//! The generator over HTTP: a renderer, such as MediaWiki, makes properties that are stored nowhere.
//!
//! Which renderer makes which property of which bucket is said by [`Settings`], with URLs in which `{domain}`,
//! `{title}` and `{rev}` stand for those of the revision. All properties of a revision are fetched together; if
//! one cannot be had, there is none.
//!
//! A renderer is not trusted. It is waited for no longer than is set, answers with no more bytes than a property
//! may have, and leads to no host but the allowed ones. Each request has a connection of its own, so that
//! whatever one answer leaves behind never becomes part of another.
//!
//! Of MediaWiki take `rest.php/v1/revision/{rev}/html`, which answers with 404 where it has no such revision.
//! `index.php?oldid={rev}&action=render` then answers with 200 and a message for people.

mod answer;
mod client;
mod generator;
mod hosts;
mod settings;
mod template;

pub use self::{
    client::MAX_REDIRECTS,
    generator::HttpGenerator,
    settings::{Settings, SettingsError, Source, Upstream},
};
