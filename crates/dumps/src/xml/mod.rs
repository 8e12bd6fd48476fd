//! Exports of MediaWiki in XML: versions 0.3 to 0.11 in, 0.11 out.

mod chars;
mod content_type;
mod escape;
mod page;
mod page_head;
mod reader;
mod revision;
mod site_info;
mod tokens;
mod writer;

pub(crate) use self::page_head::page_head;
pub use self::{
    reader::XmlReader,
    writer::{Outcome, PageHead, WrittenRevision, WrittenSlot, WrittenText, XmlWriter},
};
