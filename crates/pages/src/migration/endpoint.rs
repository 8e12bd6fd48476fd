//! The source and the target of a migration: stores whose calls are retried while they are unavailable.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_tables::{
    Batch, Cursor, Error as StoreError, Page, Partition, Row, Scan, Schema, Swap, TableStore,
};

use crate::migration::{MigrationError, Result};

/// The maximum number of attempts of a call. A cluster may be busy, or one of its nodes may be restarting.
const MAX_CALL_ATTEMPTS: u32 = 10;

/// The pause before the second attempt. Each later pause is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The source or the target of a migration.
///
/// Each call is retried while the store is `Unavailable`, for about twenty seconds plus the duration of the
/// calls themselves. Every call may be repeated without harm; [`Endpoint::put_if_absent`] says what a
/// repeated swap returns.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    store: Arc<dyn TableStore>,
    failure: fn(StoreError) -> MigrationError,
}

impl Endpoint {
    pub(crate) const fn source(store: Arc<dyn TableStore>) -> Self {
        Self { store, failure: MigrationError::Source }
    }

    pub(crate) const fn target(store: Arc<dyn TableStore>) -> Self {
        Self { store, failure: MigrationError::Target }
    }

    pub(crate) async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.retry_while_unavailable(|| self.store.create(schema)).await
    }

    pub(crate) async fn scan(&self, table: &'static Schema, scan: &Scan) -> Result<Page<Row>> {
        self.retry_while_unavailable(|| self.store.scan(table, scan.clone())).await
    }

    pub(crate) async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.retry_while_unavailable(|| self.store.partitions(table, after.clone(), limit)).await
    }

    pub(crate) async fn write(&self, batch: &Batch) -> Result<()> {
        self.retry_while_unavailable(|| self.store.write(Vec::new(), batch.clone())).await
    }

    /// Puts a row if there is none. If an attempt with an unknown outcome has put the row, the next attempt
    /// is refused, and returns the row as `current`.
    pub(crate) async fn put_if_absent(&self, table: &'static Schema, row: &Row) -> Result<Swap> {
        self.retry_while_unavailable(|| self.store.swap(Vec::new(), table, &row.key, None, Some(row.clone())))
            .await
    }

    async fn retry_while_unavailable<T, F>(&self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = rashomon_tables::Result<T>>,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..MAX_CALL_ATTEMPTS {
            match call().await {
                Err(StoreError::Unavailable(reason)) => {
                    let error = (self.failure)(StoreError::Unavailable(reason));
                    tracing::warn!(%error, "store unavailable; repeating the call");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer.map_err(self.failure),
            }
        }
        call().await.map_err(self.failure)
    }
}
