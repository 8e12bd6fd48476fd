//! A store that gives the purger the purges that its calls queue.

use std::sync::Arc;

use async_trait::async_trait;
use rashomon_records::PurgeEntry;
use rashomon_tables::{Batch, Decorator, Key, Page, Read, Result, Row, Schema, Swap, TableStore};

use crate::purges::Purger;

/// Passes all calls to a store unchanged, and gives the purger the purges that these calls queue.
#[derive(Debug)]
pub struct PurgingStore {
    below: Arc<dyn TableStore>,
    purger: Purger,
}

impl PurgingStore {
    pub(crate) fn new(below: Arc<dyn TableStore>, purger: Purger) -> Self {
        Self { below, purger }
    }
}

/// The purges of a running call. If the call is cancelled, its outcome is not known. So dropping a `PendingCall` leaves
/// its purges to the readers of the queue.
struct PendingCall<'a> {
    purger: &'a Purger,
    entries: Vec<PurgeEntry>,
}

impl<'a> PendingCall<'a> {
    fn begin(purger: &'a Purger, first: &[Batch]) -> Self {
        let entries = PurgeEntry::of_batches(first);
        purger.begin(&entries);
        Self { purger, entries }
    }

    fn end(mut self, is_known: bool) {
        let entries = std::mem::take(&mut self.entries);
        // A write whose outcome is not known may become visible later. So the readers of the queue also send its
        // purges.
        if !is_known {
            self.purger.abandon(&entries);
        }
        self.purger.send_committed(entries);
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.purger.abandon(&self.entries);
    }
}

#[async_trait]
impl Decorator for PurgingStore {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.below
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        self.below().read(reads).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let running = PendingCall::begin(&self.purger, &first);
        let result = self.below().write(first, then).await;
        running.end(result.is_ok());
        result
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let running = PendingCall::begin(&self.purger, &first);
        let result = self.below().swap(first, table, key, expected, new).await;
        running.end(result.is_ok());
        result
    }
}
