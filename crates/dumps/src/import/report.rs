//! What became of an import.

use std::collections::BTreeMap;

use rashomon_buckets::{Revision, Sealed, Title};

use crate::{LeftOut, Named, ReadError};

/// What became of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Pages, also one whose end does not come; one that came several times counts as often.
    pub pages: u64,
    /// Revisions that were stored, or got renders that they did not have.
    pub created: u64,
    /// Revisions that stood so already.
    pub unchanged: u64,
    /// Revisions that stand with other content, and were left as they are.
    pub conflicts: Named<Conflict>,
    /// Revisions that cannot be kept.
    pub left_out: Named<LeftOut>,
    /// Bodies that are not what the SHA-1 that came with them says, and stand as they came.
    pub mismatches: Named<Mismatch>,
    /// Elements that are not read, by their names: uploads, log items and what is not known.
    pub skipped: BTreeMap<String, u64>,
    /// The bytes of all bodies.
    pub text_bytes: u64,
    /// What went into blocks of the archive as it came.
    pub sealed: Option<Sealed>,
}

/// A revision that stands with other content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its page.
    pub title: Title,
    /// Its number.
    pub rev: Revision,
    /// The line it begins in.
    pub line: u64,
    /// In what it differs.
    pub difference: String,
}

/// A body that is not what the SHA-1 that came with it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Its page.
    pub title: Title,
    /// Its revision.
    pub rev: Revision,
    /// The line that the revision begins in.
    pub line: u64,
    /// What it is: a property, or the whole revision, whose SHA-1 is that of all its slots.
    pub what: String,
    /// The SHA-1 that it came with.
    pub said: String,
    /// The SHA-1 that it has, written as that is.
    pub is: String,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportProgress {
    /// Pages whose end has come.
    pub pages: u64,
    /// Revisions that something became of.
    pub revisions: u64,
    /// The bytes of their bodies.
    pub text_bytes: u64,
    /// The bytes that have been read of the input, as it lies there.
    pub read: u64,
    /// Its size, where that is known.
    pub size: Option<u64>,
}

/// An import did not come to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{failure}")]
pub struct ImportError {
    /// Why.
    #[source]
    pub failure: ImportFailure,
    /// What was done until then; it stays.
    pub report: Box<ImportReport>,
}

/// Why an import did not come to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ImportFailure {
    /// The input is cut short, damaged or none.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed, or refused something.
    #[error("page {}, revisions {first} to {last} of the input's order: {error}", title.to_text())]
    Store {
        /// The page.
        title: Title,
        /// The first revision of the group that was to be stored.
        first: Revision,
        /// The last revision of the group that was to be stored.
        last: Revision,
        /// What the store says.
        error: rashomon_buckets::Error,
    },
    /// Blocks of the archive, or what shares them, could not be stored.
    #[error(
        "the last blocks of the archive could not be stored: {0}; import again, and what is missing goes in"
    )]
    Archive(rashomon_buckets::Error),
    /// What is known of the wiki or of a page could not be stored.
    #[error("what the input says of the wiki and its pages could not be stored: {0}")]
    Catalog(rashomon_buckets::Error),
    /// A part of the program failed or was stopped.
    #[error("the import was interrupted: {0}")]
    Interrupted(String),
}

impl ImportReport {
    /// The most names of skipped elements that are counted apart.
    const MAX_SKIPPED: usize = 32;

    /// Whether everything stands as it came: nothing left out, and no conflict. A body whose SHA-1 disagrees
    /// stands as it came.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.conflicts.is_empty() && self.left_out.is_empty()
    }

    /// Revisions that something became of.
    #[must_use]
    pub const fn revisions(&self) -> u64 {
        self.created + self.unchanged + self.conflicts.count + self.left_out.count
    }

    /// Adds what became of another input, for imports of several.
    pub fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.created += other.created;
        self.unchanged += other.unchanged;
        self.conflicts.append(other.conflicts);
        self.left_out.append(other.left_out);
        self.mismatches.append(other.mismatches);
        for (name, count) in other.skipped {
            self.skip_many(name, count);
        }
        self.text_bytes += other.text_bytes;
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
