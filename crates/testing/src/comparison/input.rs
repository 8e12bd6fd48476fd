//! The history that is replayed.

use std::{path::Path, sync::Arc};

use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_dumps::{ImportOptions, Source};
use rashomon_pages::{BucketName, DomainName, Page, PropertyName, Revision, RevisionStore, Settings};
use rashomon_tables::Memory;

use crate::comparison::ComparisonError;

/// The maximum number of revisions that one read returns.
const REVISIONS_PER_READ: usize = 500;

/// One edit.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    pub(crate) at: Timestamp,
    /// The index of the page in the `pages` of [`History`].
    pub(crate) page: usize,
    pub(crate) rev: Revision,
    /// The time of the page's next edit.
    pub(crate) next: Option<Timestamp>,
}

/// An export that was imported into a store in memory. The store compresses the texts, as every store does.
#[derive(Debug)]
pub struct History {
    store: RevisionStore,
    pub(crate) pages: Vec<Page>,
    /// All edits, in the order of their times.
    pub(crate) edits: Vec<Edit>,
    /// The size of all texts in bytes.
    pub(crate) bytes: u64,
}

impl History {
    /// Imports an export as `rashomon import` does. If `pages` is set, the history has only that many pages: the first
    /// by title.
    pub async fn read(path: &Path, pages: Option<usize>) -> Result<Self, ComparisonError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let memory = Arc::new(Memory::new(Arc::clone(&clock)));
        let settings = Settings { cache_bytes: 0, ..Settings::default() };
        let store = RevisionStore::open(memory, clock, settings, 1).await?;
        let domain = DomainName::new("wiki").expect("a domain");
        let failure = |source| ComparisonError::Open { file: path.to_owned(), source };
        let source = Source::file(std::fs::File::open(path).map_err(failure)?).map_err(failure)?;
        let catalog = store.catalog().clone();
        let import =
            rashomon_dumps::import(&store, &catalog, &domain, source, &ImportOptions::default(), |_| {})
                .await;
        import.map_err(|error| {
            let failure = Box::new(error.failure);
            ComparisonError::Import { file: path.to_owned(), failure }
        })?;
        let mut history = Self { store, pages: Vec::new(), edits: Vec::new(), bytes: 0 };
        history.list(&domain, pages.unwrap_or(usize::MAX)).await?;
        if history.edits.is_empty() {
            return Err(ComparisonError::NoRevisions { file: path.to_owned() });
        }
        history.edits.sort_by_key(|edit| (edit.at, edit.page, edit.rev));
        let mut next = vec![None; history.pages.len()];
        for edit in history.edits.iter_mut().rev() {
            edit.next = next[edit.page].replace(edit.at);
        }
        Ok(history)
    }

    async fn list(&mut self, domain: &DomainName, max_pages: usize) -> Result<(), ComparisonError> {
        let (bucket, wikitext) = (BucketName::page(), PropertyName::wikitext());
        let mut pages = self.store.catalog().pages(domain, &bucket);
        while let Some(page) = pages.next().await? {
            if self.pages.len() == max_pages {
                break;
            }
            let mut last = None;
            loop {
                let revisions = self.store.history(&page, last, REVISIONS_PER_READ).await?;
                for revision in revisions.items {
                    let Some(info) = revision.properties.get(&wikitext) else { continue };
                    self.bytes += info.size;
                    let (at, rev) = (revision.record.timestamp, revision.record.rev);
                    self.edits.push(Edit { at, page: self.pages.len(), rev, next: None });
                }
                last = revisions.next;
                if last.is_none() {
                    break;
                }
            }
            self.pages.push(page);
        }
        Ok(())
    }

    /// The text of an edit; empty if the store has none.
    pub(crate) async fn text(&self, edit: &Edit) -> Result<Vec<u8>, ComparisonError> {
        let wikitext = PropertyName::wikitext();
        let bodies = self.store.bodies(&self.pages[edit.page], &wikitext, edit.rev, edit.rev).await?;
        match bodies.into_values().next() {
            Some(property) => Ok(property.body.whole().await?.into()),
            None => Ok(Vec::new()),
        }
    }
}

impl History {
    /// The number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// The number of edits.
    pub fn edits(&self) -> u64 {
        self.edits.len() as u64
    }

    /// The size of all texts in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of the first edit.
    pub fn begins(&self) -> Timestamp {
        self.edits.first().map_or(Timestamp::EPOCH, |edit| edit.at)
    }
}
