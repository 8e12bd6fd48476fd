//! A store that alters some of its calls.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_pages::schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS};
use rashomon_tables::{
    Batch, Decorator, Error, Key, Mutation, Page, Result, Row, Scan, Schema, Swap, TableStore, Value,
};

/// The order in which renders are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    AsItIs,
    LastWrittenFirst,
}

/// Changes single mutations, or the order of the rows that are read.
#[derive(Debug)]
pub(crate) struct Altered {
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) alter: fn(Mutation) -> Option<Mutation>,
    pub(crate) order: Order,
    /// Whether the store claims that the revision or render above another one was stored long ago.
    pub(crate) says_next_is_old: bool,
    /// Whether the next write of a page fails after a failed cull.
    pub(crate) writes_fail_after_culls: bool,
    pub(crate) cull_failed: AtomicBool,
}

impl Altered {
    pub(crate) fn new(store: Arc<dyn TableStore>, alter: fn(Mutation) -> Option<Mutation>) -> Self {
        let cull_failed = AtomicBool::new(false);
        Self {
            store,
            alter,
            order: Order::AsItIs,
            says_next_is_old: false,
            writes_fail_after_culls: false,
            cull_failed,
        }
    }

    fn altered(&self, mut batch: Batch) -> Batch {
        batch.mutations = batch.mutations.into_iter().filter_map(self.alter).collect();
        batch
    }

    /// Whether a batch is the next write of a page after a failed cull.
    fn is_first_write_after_failed_cull(&self, batch: &Batch) -> bool {
        let is_write = |mutation: &Mutation| matches!(mutation, Mutation::Put { table, .. } if table.name() == RENDERS.name());
        self.writes_fail_after_culls
            && batch.mutations.iter().any(is_write)
            && self.cull_failed.swap(false, Ordering::SeqCst)
    }
}

fn is_cull(batch: &Batch) -> bool {
    batch.mutations.iter().any(|mutation| match mutation {
        Mutation::DeleteRange { table, .. } => {
            [RENDER_CONTENT.name(), REVISION_CONTENT.name()].contains(&table.name())
        }
        _ => false,
    })
}

#[async_trait]
impl Decorator for Altered {
    type Store = dyn TableStore;

    fn below(&self) -> &Self::Store {
        &*self.store
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        let one = scan.limit == NonZeroUsize::MIN;
        if self.says_next_is_old && one && scan.order == rashomon_tables::Order::Reverse {
            let mut found = self.below().scan(table, scan).await?;
            let stored_at = table.values().iter().position(|column| column.name == "stored_at");
            if let Some(stored_at) =
                stored_at.filter(|_| [RENDERS.name(), REVISIONS.name()].contains(&table.name()))
            {
                for row in &mut found.items {
                    row.values[stored_at] = Some(Value::Timestamp(Timestamp::EPOCH));
                }
            }
            return Ok(found);
        }
        if self.order == Order::AsItIs || table.name() != RENDERS.name() || !one {
            return self.below().scan(table, scan).await;
        }
        let limit = NonZeroUsize::new(1000).expect("not zero");
        let mut found = self.below().scan(table, Scan { limit, ..scan }).await?;
        found.items.sort_by_key(|row| std::cmp::Reverse(row.written_at));
        found.items.truncate(1);
        Ok(found)
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        if self.is_first_write_after_failed_cull(&then) {
            return Err(Error::unavailable("a cull failed before"));
        }
        let culls = is_cull(&then);
        let first = first.into_iter().map(|batch| self.altered(batch)).collect();
        let result = self.below().write(first, self.altered(then)).await;
        self.cull_failed.fetch_or(culls && result.is_err(), Ordering::SeqCst);
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
        let first = first.into_iter().map(|batch| self.altered(batch)).collect();
        self.below().swap(first, table, key, expected, new).await
    }
}
