//! The report of a verification.

use std::fmt::Display;

use rashomon_tables::Error as StoreError;

use crate::{Error, Page, Result};

/// The maximum number of problems that a report names. Further problems are counted.
const MAX_PROBLEMS: usize = 1000;

/// The report of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of verified pages.
    pub pages: u64,
    /// The number of revisions of these pages.
    pub revisions: u64,
    /// The number of renders of these pages.
    pub renders: u64,
    /// The number of bodies that were read, and compared with their SHA-1.
    pub bodies: u64,
    /// The number of entries of key-value buckets whose bodies were read, and compared with their SHA-1.
    pub entries: u64,
    /// The number of bytes of all these bodies.
    pub bytes: u64,
    /// The number of verified blocks of the archive.
    pub blocks: u64,
    /// The first problems, at most a thousand, each in a sentence.
    pub problems: Vec<String>,
    /// The number of further problems.
    pub more_problems: u64,
}

/// How far a verification has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// The number of bodies and entries, or of blocks, that were read.
    pub items: u64,
    /// The finished part of `total`.
    pub position: u64,
    /// The position at the end. `None` as long as it is not known.
    pub total: Option<u64>,
}

/// Describes a page, for people.
#[must_use]
pub fn page_in_words(page: &Page) -> String {
    let Page { domain, bucket, title } = page;
    format!("domain {domain}, bucket {bucket}, title {title}")
}

impl VerifyReport {
    /// Adds a problem of a page.
    pub fn problem(&mut self, page: &Page, problem: impl Display) {
        self.problem_of(page_in_words(page), problem);
    }

    /// Adds a problem with the place at which it was found, such as a row.
    pub fn problem_of(&mut self, place: impl Display, problem: impl Display) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{place}: {problem}"));
        } else {
            self.more_problems += 1;
        }
    }

    /// Adds the report of a page to this report.
    pub fn add(&mut self, page: Self) {
        self.pages += page.pages;
        self.revisions += page.revisions;
        self.renders += page.renders;
        self.bodies += page.bodies;
        self.entries += page.entries;
        self.bytes += page.bytes;
        self.blocks += page.blocks;
        let room = MAX_PROBLEMS - self.problems.len();
        self.more_problems += page.more_problems + page.problems.len().saturating_sub(room) as u64;
        self.problems.extend(page.problems.into_iter().take(room));
    }

    /// Returns the value. If the error is `Corrupt`, adds it as a problem that was found at `place`, and returns `None`,
    /// so that the verification can continue. Returns any other error.
    pub fn record_corruption<T>(&mut self, place: impl Display, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(Error::Store(StoreError::Corrupt(problem))) => {
                self.problem_of(place, problem);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
