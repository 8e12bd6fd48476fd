//! A store that is as others are but in one thing.

use std::num::NonZeroUsize;

use async_trait::async_trait;
use rashomon_tables::{
    Batch, Cursor, Generations, Key, Page, Partition, Result, Row, Scan, Schema, Swap, TableStore,
};

/// Passes every call on, but for what it was told to do otherwise.
#[derive(Debug)]
pub(crate) struct Altered<S> {
    store: S,
    scan: fn(Scan) -> Scan,
    is_alone: bool,
}

impl<S: TableStore> Altered<S> {
    /// A store that others may write to as well: it has no generations.
    pub(crate) fn shared(store: S) -> Self {
        Self { store, scan: |scan| scan, is_alone: false }
    }

    /// A store whose pages are short, as those of a scan that is bounded in bytes may be.
    pub(crate) fn terse(store: S) -> Self {
        Self { store, scan: |scan| Scan { max_bytes: 1, ..scan }, is_alone: true }
    }
}

#[async_trait]
impl<S: TableStore> TableStore for Altered<S> {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.store.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.store.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.store.scan(table, (self.scan)(scan)).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.store.partitions(table, after, limit).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.store.write(first, then).await
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.store.swap(table, key, expected, new).await
    }

    fn generations(&self) -> Option<&Generations> {
        self.store.generations().filter(|_| self.is_alone)
    }
}
