//! Namespaces in a shared store, for tests and for `compare-strategies`.

use std::{num::NonZeroUsize, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Batch, Cursor, Error, Key, Outage, Page, Partition, PartitionVersions, Result, Row, Scan, Schema, Swap,
    TableStore, Value, Walk, WalkPage,
};

/// How many different integers a namespace has. Half of them are negative.
const NUMBERS_PER_NAMESPACE: i64 = 1 << 21;

/// A namespace in a shared store. Many tests share a cluster, since creating tables takes long there, and creating rows
/// does not. `compare-strategies` uses one namespace of a cluster for each strategy.
///
/// The first partition column of every row contains the namespace. Text and bytes begin with the namespace. Integers
/// are shifted by a distance that differs between namespaces, so they have to be from -2^20 to 2^20 - 1; other integers
/// are `Invalid`. A first column of another type is `Unsupported`. Listing partitions reads the partitions of all
/// namespaces, and returns those of this one. So a page may be empty although more pages follow.
///
/// A namespace has no partition versions, since others also write to the store. Its window for late writes is zero.
/// This is right only on a cluster of one node, such as that of the tests, or where nothing is collected as garbage.
#[derive(Debug)]
pub struct Isolated<S> {
    store: S,
    number: i64,
    text: String,
    bytes: [u8; 8],
}

impl<S: TableStore> Isolated<S> {
    /// Opens a namespace. The last 42 bits of `number` identify it.
    #[must_use]
    pub fn new(store: S, number: u64) -> Self {
        let number = (number as i64) << 22 >> 22;
        let bytes = number.to_be_bytes();
        Self { store, number, text: format!("{number:x}/"), bytes }
    }

    /// Translates a partition of the namespace to a partition of the store. `Invalid` or `Unsupported` if the
    /// first column does not allow this.
    fn with_namespace(&self, mut partition: Partition) -> Result<Partition> {
        if let Some(first) = partition.first_mut() {
            *first = match &*first {
                Value::Text(text) => Value::Text(format!("{}{text}", self.text)),
                Value::Blob(bytes) => Value::Blob([&self.bytes[..], bytes].concat().into()),
                Value::Int(number) if fits_namespace(*number) => {
                    Value::Int(self.number * NUMBERS_PER_NAMESPACE + number)
                }
                Value::Int(number) => {
                    return Err(Error::Invalid(format!(
                        "{number} does not fit into a namespace of {NUMBERS_PER_NAMESPACE} numbers \
                         around zero"
                    )));
                }
                Value::Timestamp(_) | Value::TimeUuid(_) => {
                    let what = "a namespace in a table whose first partition column is a time";
                    return Err(Error::Unsupported(what.to_owned()));
                }
            };
        }
        Ok(partition)
    }

    /// Translates a partition of the store to a partition of the namespace. `None` if the partition is of another
    /// namespace.
    fn without_namespace(&self, mut partition: Partition) -> Option<Partition> {
        let first = partition.first_mut()?;
        *first = match &*first {
            Value::Text(text) => text.strip_prefix(&self.text)?.into(),
            Value::Blob(bytes) => Value::Blob(Bytes::copy_from_slice(bytes.strip_prefix(&self.bytes[..])?)),
            Value::Int(number) => {
                let number = number.checked_sub(self.number * NUMBERS_PER_NAMESPACE)?;
                fits_namespace(number).then_some(Value::Int(number))?
            }
            Value::Timestamp(_) | Value::TimeUuid(_) => return None,
        };
        Some(partition)
    }

    fn key_with_namespace(&self, key: &Key) -> Result<Key> {
        Ok(Key::new(self.with_namespace(key.partition.clone())?, key.clustering.clone()))
    }

    fn row_with_namespace(&self, row: &Row) -> Result<Row> {
        Ok(Row { key: self.key_with_namespace(&row.key)?, ..row.clone() })
    }

    /// Translates a row that was read. `Corrupt` if the row is of another namespace.
    fn row_without_namespace(&self, mut row: Row) -> Result<Row> {
        let partition = self.without_namespace(row.key.partition);
        row.key.partition =
            partition.ok_or_else(|| Error::Corrupt("a row of another namespace".to_owned()))?;
        Ok(row)
    }

    fn batch_with_namespace(&self, batch: Batch) -> Result<Batch> {
        Ok(Batch { partition: self.with_namespace(batch.partition)?, ..batch })
    }

    fn batches_with_namespace(&self, batches: Vec<Batch>) -> Result<Vec<Batch>> {
        batches.into_iter().map(|batch| self.batch_with_namespace(batch)).collect()
    }
}

fn fits_namespace(number: i64) -> bool {
    (-NUMBERS_PER_NAMESPACE / 2..NUMBERS_PER_NAMESPACE / 2).contains(&number)
}

#[async_trait]
impl<S: TableStore> TableStore for Isolated<S> {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.store.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        let row = self.store.get(table, &self.key_with_namespace(key)?).await?;
        row.map(|row| self.row_without_namespace(row)).transpose()
    }

    async fn scan(&self, table: &'static Schema, mut scan: Scan) -> Result<Page<Row>> {
        scan.partition = self.with_namespace(scan.partition)?;
        let Page { items, next, mut damaged } = self.store.scan(table, scan).await?;
        let items = items.into_iter().map(|row| self.row_without_namespace(row)).collect::<Result<_>>()?;
        for row in &mut damaged {
            row.key.partition =
                self.without_namespace(std::mem::take(&mut row.key.partition)).unwrap_or_default();
        }
        Ok(Page { items, next, damaged })
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let Page { items, next, .. } = self.store.partitions(table, after, limit).await?;
        let items = items.into_iter().filter_map(|partition| self.without_namespace(partition)).collect();
        Ok(Page::new(items, next))
    }

    async fn walk(&self, mut walk: Walk) -> Result<WalkPage> {
        // Without a first value, the rows of all namespaces are read, as in `partitions`.
        walk.within = self.with_namespace(walk.within)?;
        walk.from = walk.from.map(|from| self.with_namespace(from)).transpose()?;
        let WalkPage { rows, damaged, next } = self.store.walk(walk).await?;
        let rows = rows.into_iter().filter_map(|(table, mut row)| {
            row.key.partition = self.without_namespace(row.key.partition)?;
            Some((table, row))
        });
        let damaged = damaged.into_iter().filter_map(|(table, mut row)| {
            row.key.partition = self.without_namespace(row.key.partition)?;
            Some((table, row))
        });
        Ok(WalkPage { rows: rows.collect(), damaged: damaged.collect(), next })
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.store.write(self.batches_with_namespace(first)?, self.batch_with_namespace(then)?).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        self.store.scrub().await
    }

    async fn late_write_window(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }

    fn outage(&self) -> Option<Outage> {
        self.store.outage()
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let first = self.batches_with_namespace(first)?;
        let key = self.key_with_namespace(key)?;
        let expected = expected.map(|row| self.row_with_namespace(row)).transpose()?;
        let new = new.map(|row| self.row_with_namespace(&row)).transpose()?;
        let swap = self.store.swap(first, table, &key, expected.as_ref(), new).await?;
        Ok(match swap {
            Swap::Applied => Swap::Applied,
            Swap::Refused { current } => {
                Swap::Refused { current: current.map(|row| self.row_without_namespace(row)).transpose()? }
            }
        })
    }
}
