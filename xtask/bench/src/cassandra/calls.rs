//! Records the calls that the service makes to its tables for a write and for a read, with a store in memory.

use std::sync::Arc;

use anyhow::{Result, bail};
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{Page, PropertyName, RevisionStore, Settings};
use rashomon_tables::{Batch, Key, Scan, Schema};

use crate::{
    content::Contents,
    direct,
    recorder::{RecordedCall, Recorder},
};

/// The table calls of one request: concurrent reads, then concurrent batches, then one last batch.
pub(super) struct Call {
    pub(super) reads: Vec<Read>,
    pub(super) first: Vec<Batch>,
    pub(super) then: Option<Batch>,
}

/// A recorded read.
pub(super) enum Read {
    Get(&'static Schema, Key),
    Scan(&'static Schema, Scan),
}

/// The buckets, over a store that records its calls.
pub(super) struct RecordingBuckets {
    recorder: Arc<Recorder>,
    buckets: RevisionStore,
    contents: Arc<Contents>,
    pages: Vec<Page>,
    next: u64,
}

impl RecordingBuckets {
    /// Opens the buckets over an empty store.
    pub(super) async fn open(contents: Arc<Contents>, titles: &[String]) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let recorder = Arc::new(Recorder::new(Arc::clone(&clock)));
        let buckets = RevisionStore::open(Arc::clone(&recorder) as _, clock, Settings::default(), 1).await?;
        let pages = titles.iter().map(|title| direct::page(title)).collect::<Result<_>>()?;
        Ok(Self { recorder, buckets, contents, pages, next: 1 })
    }

    /// Records the next `count` writes of new revisions, to the pages in turn.
    pub(super) async fn writes(&mut self, count: usize) -> Result<Vec<Call>> {
        let mut calls = Vec::with_capacity(count);
        self.recorder.take();
        for _ in 0..count {
            let page = &self.pages[self.next as usize % self.pages.len()];
            direct::put_revision(&self.buckets, page, &self.contents, self.next).await?;
            calls.push(call(self.recorder.take())?);
            self.next += 1;
        }
        Ok(calls)
    }

    /// Records a read of the html of the latest render of each page.
    pub(super) async fn latest_reads(&self) -> Result<Vec<Call>> {
        let html = PropertyName::new("html")?;
        let mut calls = Vec::with_capacity(self.pages.len());
        self.recorder.take();
        for page in &self.pages {
            self.buckets.latest(page, &html).await?;
            calls.push(call(self.recorder.take())?);
        }
        Ok(calls)
    }
}

fn call(recorded: Vec<RecordedCall>) -> Result<Call> {
    let mut call = Call { reads: Vec::new(), first: Vec::new(), then: None };
    for recorded in recorded {
        if call.then.is_some() {
            bail!("a request calls the store after its write: this benchmark cannot repeat such a request");
        }
        match recorded {
            RecordedCall::Get(table, key) => call.reads.push(Read::Get(table, key)),
            RecordedCall::Scan(table, scan) => call.reads.push(Read::Scan(table, scan)),
            RecordedCall::Write(first, then) => (call.first, call.then) = (first, Some(then)),
        }
    }
    Ok(call)
}
