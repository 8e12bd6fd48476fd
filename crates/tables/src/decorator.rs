//! Stores that wrap other stores.

use std::{fmt::Debug, num::NonZeroUsize, time::Duration};

use async_trait::async_trait;

use crate::{
    Batch, Cursor, Key, Outage, Page, Partition, PartitionVersions, Read, Result, Row, Scan, Schema, Swap,
    TableStore, Walk, WalkPage,
};

/// A store that wraps another store, the *store below*. Each method has the contract of the [`TableStore`] method
/// of the same name. A method that is not overridden passes its call on to the store below.
#[async_trait]
pub trait Decorator: Debug + Send + Sync + 'static {
    /// The type of the store below.
    type Store: TableStore + ?Sized;

    /// Returns the store below.
    fn below(&self) -> &Self::Store;

    /// Passes on [`TableStore::create`].
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.below().create(schema).await
    }

    /// Passes on [`TableStore::get`].
    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.below().get(table, key).await
    }

    /// Passes on [`TableStore::scan`].
    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.below().scan(table, scan).await
    }

    /// Answers each read alone, so that [`Self::get`] and [`Self::scan`] see all reads.
    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        let mut pages = Vec::with_capacity(reads.len());
        for read in reads {
            pages.push(match read {
                Read::Get(table, key) => Page::new(self.get(table, &key).await?.into_iter().collect(), None),
                Read::Scan(table, scan) => self.scan(table, scan).await?,
            });
        }
        Ok(pages)
    }

    /// Passes on [`TableStore::partitions`].
    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.below().partitions(table, after, limit).await
    }

    /// Passes on [`TableStore::walk`].
    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        self.below().walk(walk).await
    }

    /// Passes on [`TableStore::write`].
    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.below().write(first, then).await
    }

    /// Passes on [`TableStore::swap`].
    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.below().swap(first, table, key, expected, new).await
    }

    /// Passes on [`TableStore::scrub`].
    async fn scrub(&self) -> Result<Option<Duration>> {
        self.below().scrub().await
    }

    /// Passes on [`TableStore::late_write_window`].
    async fn late_write_window(&self) -> Result<Duration> {
        self.below().late_write_window().await
    }

    /// Passes on [`TableStore::partition_versions`].
    fn partition_versions(&self) -> Option<&PartitionVersions> {
        self.below().partition_versions()
    }

    /// Passes on [`TableStore::outage`].
    fn outage(&self) -> Option<Outage> {
        self.below().outage()
    }
}

#[async_trait]
impl<D: Decorator> TableStore for D {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        Decorator::create(self, schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        Decorator::get(self, table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        Decorator::scan(self, table, scan).await
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        Decorator::read(self, reads).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        Decorator::partitions(self, table, after, limit).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        Decorator::walk(self, walk).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        Decorator::write(self, first, then).await
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        Decorator::swap(self, first, table, key, expected, new).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        Decorator::scrub(self).await
    }

    async fn late_write_window(&self) -> Result<Duration> {
        Decorator::late_write_window(self).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        Decorator::partition_versions(self)
    }

    fn outage(&self) -> Option<Outage> {
        Decorator::outage(self)
    }
}
