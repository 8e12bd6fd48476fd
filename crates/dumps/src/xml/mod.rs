//! Exports of MediaWiki in XML: reads versions 0.3 to 0.11, and writes 0.11.
//!
//! **Reading**: texts are what an XML parser returns, and everything that XML forbids is an error. Examples
//! are an entity other than XML's own five, a forbidden character, or a byte that is not UTF-8. In addition,
//! a DOCTYPE is refused, since exports have none, and depths and sizes are bounded. The versions differ in
//! their fields and in the order of the fields, so neither is checked. Only a title must precede the revisions. Nothing
//! of an export is lost silently: an element at a place where exports do not have it, or that occurs twice, is
//! reported.
//!
//! An empty text, an absent text and a hidden text look nearly the same in an export: see
//! `TextAttributes::empty_is_a_text`. A hidden text and an absent text are not stored as properties; the
//! record of the slot tells them apart.
//!
//! **Writing**: the layout is that of MediaWiki 1.39, to the byte. A page or a revision with a value that could
//! not be read back unchanged is left out and reported. Values of a page or revision that only the schema forbids,
//! such as one revision's number in two pages, are written and reported. Values of the wiki that XML or the schema
//! forbids are left out without a report.

mod chars;
mod content_type;
mod escape;
mod page;
mod page_head;
mod reader;
mod revision;
mod schema;
mod site_info;
mod tokens;
mod unexpected;
mod writer;

pub use self::writer::{Outcome, PageHead, WrittenRevision, WrittenSlot, WrittenText, XmlWriter};
pub(crate) use self::{page_head::page_head, reader::XmlReader};
