//! The report of an import.

use std::collections::BTreeMap;

use rashomon_pages::{Revision, RowReason, SealReport, SiteChange, Title};

use crate::{BrokenPage, CountedItems, LeftOut, Misplaced, ReadError};

/// The report of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The number of pages. A page without an end counts. A page that occurs several times counts once, for the
    /// first file that has the page. (In an import of millions of pages, some may count each time.)
    pub pages: u64,
    /// The number of revisions that were stored, or got new renders.
    pub created: u64,
    /// The number of revisions that were already stored with the same content.
    pub unchanged: u64,
    /// Revisions that are stored with other content, and were not changed.
    pub conflicts: CountedItems<Conflict>,
    /// Revisions that cannot be stored. A revision that is stored without its last renders is listed too, although it
    /// is also counted above.
    pub left_out: CountedItems<LeftOut>,
    /// Bodies that do not match the SHA-1 of the input. Such bodies are stored unchanged.
    pub mismatches: CountedItems<Mismatch>,
    /// Elements of an export at unexpected places. They are not imported.
    pub misplaced: CountedItems<Misplaced>,
    /// Pages that could not be read to their end, and were skipped from there on.
    pub broken: CountedItems<BrokenPage>,
    /// Differences between the metadata of the wiki in the input and in the store.
    pub site_changes: CountedItems<SiteChange>,
    /// Peculiarities of the input that are no faults of its content.
    pub notices: CountedItems<String>,
    /// What is not imported, by its name: elements that are not supported, such as uploads, log items and unknown ones;
    /// and headers that are not stored, each with `header ` before its name.
    pub skipped: BTreeMap<String, u64>,
    /// The size in bytes of all bodies that were ready to be stored, also of revisions that were unchanged or in
    /// conflict.
    pub text_bytes: u64,
    /// The revisions that were sealed in blocks at once.
    pub sealed: Option<SealReport>,
    /// The revisions that an import into blocks stored as rows, by the reason. If rows are sealed, those that stay.
    pub as_rows: BTreeMap<RowReason, u64>,
}

/// A revision that is stored with other content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The page of the revision.
    pub title: Title,
    /// The number of the revision.
    pub rev: Revision,
    /// The line in which the revision begins.
    pub line: u64,
    /// The difference between both revisions.
    pub difference: String,
}

/// A body that does not match the SHA-1 of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The page of the body.
    pub title: Title,
    /// The revision of the body.
    pub rev: Revision,
    /// The line in which the revision begins.
    pub line: u64,
    /// The compared value: a property, or the whole revision, whose SHA-1 covers all its slots.
    pub what: String,
    /// The SHA-1 of the input.
    pub declared: String,
    /// The actual SHA-1, in the same notation.
    pub actual: String,
}

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportProgress {
    /// The number of pages so far, counted as in the report.
    pub pages: u64,
    /// The number of processed revisions.
    pub revisions: u64,
    /// The size of their bodies in bytes, as in the report.
    pub text_bytes: u64,
    /// The number of bytes read from the input, in its compressed form.
    pub read: u64,
    /// The size of the input, if it is known.
    pub size: Option<u64>,
}

/// The error that ended an import.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{failure}")]
pub struct ImportError {
    /// The reason.
    #[source]
    pub failure: ImportFailure,
    /// The report of the work done. The imported revisions stay stored.
    pub report: Box<ImportReport>,
}

/// Why an import ended early.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ImportFailure {
    /// The input is truncated, damaged, or not a history.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed, or refused a write.
    #[error("cannot store page {}, revisions {first} to {last} in the order of the input: {error}", title.to_text())]
    Store {
        /// The page.
        title: Title,
        /// The first revision of the group that was to be stored.
        first: Revision,
        /// The last revision of the group that was to be stored.
        last: Revision,
        /// The error of the store.
        error: rashomon_pages::Error,
    },
    /// Blocks of the archive, or pages that share them, could not be stored.
    #[error(
        "the last blocks of the archive could not be stored: {0}; import again to store the missing \
         revisions"
    )]
    Archive(rashomon_pages::Error),
    /// Revisions were stored as rows, and could not be sealed.
    #[error("the revisions so far are stored, but could not be moved into the archive: {0}")]
    Seal(rashomon_pages::Error),
    /// The metadata of the wiki or of a page could not be stored.
    #[error("the metadata of the wiki or of a page could not be stored: {0}")]
    Catalog(rashomon_pages::Error),
    /// A part of the program failed or was stopped.
    #[error("the import was interrupted: {0}")]
    Interrupted(String),
}

impl ImportReport {
    /// The maximum number of names of skipped elements that are counted separately. The rest is counted as `others`.
    const MAX_SKIPPED: usize = 32;

    /// Whether everything is stored unchanged: nothing was left out or skipped, and there is no conflict. A body whose
    /// SHA-1 does not match is stored unchanged too.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.conflicts.is_empty()
            && self.left_out.is_empty()
            && self.misplaced.is_empty()
            && self.broken.is_empty()
    }

    /// The number of processed revisions. A revision that is stored without its last renders counts twice.
    #[must_use]
    pub const fn revisions(&self) -> u64 {
        self.created + self.unchanged + self.conflicts.count + self.left_out.count
    }

    /// Adds the report of another input, for imports of several inputs.
    pub fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.created += other.created;
        self.unchanged += other.unchanged;
        self.conflicts.append(other.conflicts);
        self.left_out.append(other.left_out);
        self.mismatches.append(other.mismatches);
        self.misplaced.append(other.misplaced);
        self.broken.append(other.broken);
        self.site_changes.append(other.site_changes);
        self.notices.append(other.notices);
        for (name, count) in other.skipped {
            self.skip_many(name, count);
        }
        self.text_bytes += other.text_bytes;
        for (reason, count) in other.as_rows {
            *self.as_rows.entry(reason).or_default() += count;
        }
        self.sealed = self.sealed.into_iter().chain(other.sealed).reduce(|one, other| one + other);
    }

    pub(super) fn skip(&mut self, name: String) {
        self.skip_many(name, 1);
    }

    fn skip_many(&mut self, name: String, count: u64) {
        let known = self.skipped.contains_key(&name) || self.skipped.len() < Self::MAX_SKIPPED;
        *self.skipped.entry(if known { name } else { "others".to_owned() }).or_default() += count;
    }
}
