//! What became of an export.

use std::{io, sync::Arc};

use rashomon_buckets::{FoundDamage, Revision, Title};
use roaring::RoaringTreemap;

use crate::Named;

/// What became of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Pages that were written.
    pub pages: u64,
    /// Revisions that were written.
    pub revisions: u64,
    /// The bytes that were written, before they were compressed.
    pub bytes: u64,
    /// Pages that were asked for and are not there.
    pub missing: Vec<Title>,
    /// What the format cannot hold and was left out: pages and revisions.
    pub left_out: Named<Warning>,
    /// What was written although the schema does not allow it.
    pub invalid: Named<Warning>,
    /// Properties of revisions and renders, such as html, that XML has no place for. JSON lines have.
    pub properties_left_out: u64,
    /// Damaged rows that belong to no revision, each in a sentence: of titles, which are taken from their keys, of what an
    /// import said of a page or of the wiki, and of pages whose latest revision cannot be told.
    pub damaged: Named<String>,
    /// Revisions that the store has lost and the export lacks. Their repair needs more than the first few.
    pub unreadable: Named<Unreadable, 10_000>,
}

/// Revisions that cannot be read, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The page.
    pub title: Title,
    /// The lowest and the highest.
    pub revisions: (Revision, Revision),
    /// How many they are. Where several lie in one block that cannot be read at all, some of them may stand elsewhere
    /// as well, and be in the export.
    pub count: u64,
    /// What is wrong, as a sentence.
    pub why: String,
}

/// Something that the format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The page.
    pub title: Title,
    /// The revision; `None`: the page itself.
    pub rev: Option<Revision>,
    /// What it is.
    pub loss: Loss,
}

/// What XML, or the schema of exports, cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// A character that XML 1.0 forbids, even as a reference.
    #[error("{field}: XML cannot hold the character U+{:04X}", u32::from(*character))]
    Character {
        /// Where it is.
        field: String,
        /// The character.
        character: char,
    },
    /// A field is longer than those of exports are.
    #[error("{field} has more than {limit} bytes")]
    TooLong {
        /// The field.
        field: String,
        /// The most bytes of it.
        limit: usize,
    },
    /// A text is not UTF-8.
    #[error("the text of slot {slot} is not UTF-8")]
    NotUtf8 {
        /// The slot.
        slot: String,
    },
    /// There is no text, and nothing that says why.
    #[error("it has no text for slot {slot}")]
    NoText {
        /// The slot.
        slot: String,
    },
    /// It was superseded, and its bodies, or those of some of its renders, went by the bucket's retention or were left
    /// out by the archive's policy.
    #[error(
        "what was superseded is not all kept here: its bodies, or those of some of its renders, have gone"
    )]
    NotKept,
    /// The schema does not allow a value.
    #[error("{field} is {value:?}, which the export's schema does not allow")]
    Schema {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
    /// The schema wants numbers that are unique in the export.
    #[error("its {field} {number} has come before in this export, where the schema wants it once only")]
    NotUnique {
        /// What is numbered.
        field: &'static str,
        /// The number.
        number: i64,
    },
}

impl Loss {
    /// A value that the schema does not allow.
    pub(crate) fn invalid(field: &str, value: &str) -> Self {
        Self::Schema { field: field.to_owned(), value: crate::LeftOut::shown(value) }
    }
}

/// How far an export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportProgress {
    /// Pages that were begun.
    pub pages: u64,
    /// Revisions that were written.
    pub revisions: u64,
    /// The bytes that were written, before they are compressed.
    pub bytes: u64,
}

/// An export did not come to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store failed.
    #[error("cannot read the store: {0}")]
    Store(#[from] rashomon_buckets::Error),
    /// It could not be written.
    #[error("cannot write: {0}")]
    Write(Arc<io::Error>),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Write(Arc::new(error))
    }
}

impl ExportReport {
    /// Whether everything that was asked for was written, as far as it is what the format is for.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.missing.is_empty()
            && self.left_out.is_empty()
            && self.invalid.is_empty()
            && self.damaged.is_empty()
            && self.unreadable.is_empty()
    }

    pub(super) fn add_damage(&mut self, found: &FoundDamage) {
        self.damaged.add(format!("table {}, {}: {}", found.table, found.row, found.reason));
    }

    pub(super) const fn progress(&self) -> ExportProgress {
        ExportProgress { pages: self.pages, revisions: self.revisions, bytes: self.bytes }
    }
}

/// The numbers that have been written: a few bits each, since wikis count on.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pages: RoaringTreemap,
    revisions: RoaringTreemap,
}

impl Numbers {
    /// Notes the number of a page; a loss where it came before.
    pub(super) fn page(&mut self, number: i64) -> Option<Loss> {
        let is_new = self.pages.insert(number.unsigned_abs());
        (!is_new).then_some(Loss::NotUnique { field: "page id", number })
    }

    /// Notes the number of a revision; a loss where it came before.
    pub(super) fn revision(&mut self, rev: Revision) -> Option<Loss> {
        let is_new = self.revisions.insert(rev.get().unsigned_abs());
        (!is_new).then_some(Loss::NotUnique { field: "revision id", number: rev.get() })
    }
}
