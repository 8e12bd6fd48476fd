//! The report of an export.

use std::{io, sync::Arc};

use rashomon_pages::{FoundDamage, Revision, Title};
use roaring::RoaringTreemap;

use crate::{CountedItems, Loss};

/// The report of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// The number of written pages.
    pub pages: u64,
    /// The number of written revisions.
    pub revisions: u64,
    /// The number of written bytes, before compression.
    pub bytes: u64,
    /// Requested pages of which no revision was found: usually, they do not exist.
    pub missing: Vec<Title>,
    /// Pages and revisions that were omitted because the format cannot represent them. Revisions of which
    /// retention or the archive's policy has removed bodies are listed as well. XML omits such a revision if one
    /// of its texts is missing. JSON lines contain the revision, but none of its properties if one of them is
    /// missing. JSON lines contain each render, too: with all of its properties or with none.
    pub left_out: CountedItems<Warning>,
    /// Values that were written although the schema does not allow them.
    pub invalid: CountedItems<Warning>,
    /// The number of omitted properties, such as html. XML cannot contain them, and JSON lines can.
    pub properties_left_out: u64,
    /// Damaged rows that belong to no revision, each described in a sentence. These are rows of titles (the
    /// export takes the title from the key of the row), and the imported metadata of a page or of the wiki.
    /// Pages whose latest revision is unknown because of damage are listed as well.
    pub damaged: CountedItems<String>,
    /// Revisions of which the store has lost bodies. Such a revision is missing from the export; in JSON lines, perhaps
    /// only a render of it is missing. The list is long, because a repair needs all of these revisions.
    pub unreadable: CountedItems<Unreadable, 10_000>,
}

/// A run of revisions of which some or all cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The page.
    pub title: Title,
    /// The lowest and the highest revision.
    pub revisions: (Revision, Revision),
    /// The number of revisions. If they are in one block that cannot be read at all, some of them may also be
    /// stored elsewhere, and be in the export.
    pub count: u64,
    /// The reason, as a sentence.
    pub why: String,
}

/// A page or a revision that lacks content in the export, or has content that the schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The page.
    pub title: Title,
    /// The revision. `None` if the page itself is concerned.
    pub rev: Option<Revision>,
    /// What is missing or not allowed.
    pub loss: Loss,
}

/// The progress of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportProgress {
    /// The number of pages that were begun.
    pub pages: u64,
    /// The number of written revisions.
    pub revisions: u64,
    /// The number of written bytes, before compression.
    pub bytes: u64,
}

/// The error that ended an export.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store failed.
    #[error("cannot read the store: {0}")]
    Store(#[from] rashomon_pages::Error),
    /// The output could not be written.
    #[error("cannot write the export: {0}")]
    Write(Arc<io::Error>),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Write(Arc::new(error))
    }
}

impl ExportReport {
    /// Whether everything requested was written, in values that the schema allows. Properties that the format
    /// never contains do not count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.missing.is_empty()
            && self.left_out.is_empty()
            && self.invalid.is_empty()
            && self.damaged.is_empty()
            && self.unreadable.is_empty()
    }

    /// Adds the report of a page.
    pub(super) fn append(&mut self, page: Self) {
        let Self {
            pages,
            revisions,
            bytes,
            missing,
            left_out,
            invalid,
            properties_left_out,
            damaged,
            unreadable,
        } = page;
        self.pages += pages;
        self.revisions += revisions;
        self.bytes += bytes;
        self.missing.extend(missing);
        self.left_out.append(left_out);
        self.invalid.append(invalid);
        self.properties_left_out += properties_left_out;
        self.damaged.append(damaged);
        self.unreadable.append(unreadable);
    }

    pub(super) fn add_damage(&mut self, found: &FoundDamage) {
        self.damaged.add(format!("table {}, {}: {}", found.table, found.row, found.reason));
    }

    pub(super) const fn progress(&self) -> ExportProgress {
        ExportProgress { pages: self.pages, revisions: self.revisions, bytes: self.bytes }
    }
}

/// The numbers of the pages and revisions that were written. A number takes a few bits, since wikis number
/// consecutively.
#[derive(Debug, Default)]
pub(super) struct WrittenNumbers {
    pages: RoaringTreemap,
    revisions: RoaringTreemap,
}

/// A number that an export contains.
#[derive(Debug, Clone, Copy)]
pub(super) enum NewNumber {
    Page(i64),
    Revision(Revision),
}

impl NewNumber {
    /// The revision, if it is the number of one.
    pub(super) const fn rev(self) -> Option<Revision> {
        match self {
            Self::Page(_) => None,
            Self::Revision(rev) => Some(rev),
        }
    }
}

impl WrittenNumbers {
    /// Records a number. Returns a loss if the number has occurred before.
    pub(super) fn add(&mut self, number: NewNumber) -> Option<Loss> {
        let (known, field, number) = match number {
            NewNumber::Page(number) => (&mut self.pages, "page id", number),
            NewNumber::Revision(rev) => (&mut self.revisions, "revision id", rev.get()),
        };
        let is_new = known.insert(number.unsigned_abs());
        (!is_new).then_some(Loss::NotUnique { field, number })
    }
}
