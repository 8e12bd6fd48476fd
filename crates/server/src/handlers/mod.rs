//! The handlers, by resource.

pub(crate) mod batch;
pub(crate) mod bucket;
mod counter;
pub(crate) mod dispatch;
pub(crate) mod entry;
pub(crate) mod form;
pub(crate) mod import;
mod letter_case;
pub(crate) mod operators;
pub(crate) mod page;
pub(crate) mod read;
pub(crate) mod rewrite;
pub(crate) mod time;
pub(crate) mod timegate;
pub(crate) mod timemap;
pub(crate) mod tokens;
mod wiki;
pub(crate) mod write;
