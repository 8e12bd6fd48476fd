//! Exports of MediaWiki in XML: versions 0.3 to 0.11 in, 0.11 out.
//!
//! **In**, texts are what an XML parser gives, and what no XML parser would take is an error: an entity that
//! is none of XML's own five, a character that XML forbids, a byte that is not UTF-8. Beyond that a DOCTYPE is
//! refused, since exports have none, and depths and sizes are bounded. The versions differ in what they have
//! and in its order, so neither is asked for: a field counts wherever it stands.
//!
//! A text that is empty, one that is absent and one that was hidden are three things, which look much the same:
//! see `TextAttributes::empty_is_a_text`. A hidden one and an absent one are no property; the record of the
//! slot tells them apart.
//!
//! **Out**, the layout is that of MediaWiki 1.39, to the byte. What would not be read again as it is, is left
//! out and named, never changed; what the schema alone forbids, such as one revision's number in two pages, is
//! written and named.

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

pub use self::writer::{Outcome, PageHead, WrittenRevision, WrittenSlot, WrittenText, XmlWriter};
pub(crate) use self::{page_head::page_head, reader::XmlReader};
