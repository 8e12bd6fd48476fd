//! The two ends of a migration: stores that are asked again while they do not answer.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_tables::{
    Batch, Cursor, Error as StoreError, Page, Partition, Row, Scan, Schema, Swap, TableStore,
};

use super::{MigrationError, Result};

/// How often a call is made. A cluster may be busy, or one of its nodes be restarting.
const ATTEMPTS: u32 = 10;

/// How long it waits before the second time; twice as long before each one after it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long it waits at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One end. Each call is made again while it is `Unavailable`, for about twenty seconds beside what the calls
/// take themselves. All of them may be made twice; of [`End::swap_in`] see there.
#[derive(Debug, Clone)]
pub(super) struct End {
    store: Arc<dyn TableStore>,
    failure: fn(StoreError) -> MigrationError,
}

impl End {
    pub(super) const fn source(store: Arc<dyn TableStore>) -> Self {
        Self { store, failure: MigrationError::Source }
    }

    pub(super) const fn target(store: Arc<dyn TableStore>) -> Self {
        Self { store, failure: MigrationError::Target }
    }

    pub(super) async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.patiently(|| self.store.create(schema)).await
    }

    pub(super) async fn scan(&self, table: &'static Schema, scan: &Scan) -> Result<Page<Row>> {
        self.patiently(|| self.store.scan(table, scan.clone())).await
    }

    pub(super) async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.patiently(|| self.store.partitions(table, after.clone(), limit)).await
    }

    pub(super) async fn write(&self, batch: &Batch) -> Result<()> {
        self.patiently(|| self.store.write(Vec::new(), batch.clone())).await
    }

    /// Puts a row where there is none. One that was put by a call whose end is not known is refused when it is
    /// put again, and stands as `current`.
    pub(super) async fn swap_in(&self, table: &'static Schema, row: &Row) -> Result<Swap> {
        self.patiently(|| self.store.swap(table, &row.key, None, Some(row.clone()))).await
    }

    async fn patiently<T, F>(&self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = rashomon_tables::Result<T>>,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match call().await {
                Err(StoreError::Unavailable(reason)) => {
                    tracing::warn!(%reason, "the store did not answer; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer.map_err(self.failure),
            }
        }
        call().await.map_err(self.failure)
    }
}
