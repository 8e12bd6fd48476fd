//! Namespaces in a shared store, for tests.

use std::{num::NonZeroUsize, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Batch, Cursor, Error, Key, Outage, Page, Partition, Result, Row, Scan, Schema, Swap, TableStore, Value,
};

/// How many numbers a namespace has if its first partition column is a number. They lie around zero.
const NUMBERS: i64 = 1 << 21;

/// A namespace in a store that many tests share at once. Creating tables takes long in a cluster; creating
/// rows does not.
///
/// The first partition column of every row contains the namespace. Text and bytes begin with the namespace.
/// Numbers are shifted by a multiple of the namespace, so they have to be within a million of zero; other
/// numbers are `Invalid`. A first column of another type is `Unsupported`. Listing partitions reads the
/// partitions of all namespaces.
///
/// A namespace has no partition versions, since other tests write to the store as well. Its window for late
/// writes is zero: the cluster that tests share is one node, which keeps hints for no other node.
#[derive(Debug)]
pub struct Isolated<S> {
    store: S,
    number: i64,
    text: String,
    bytes: [u8; 8],
}

impl<S: TableStore> Isolated<S> {
    /// Opens the namespace that the last 42 bits of the number name.
    #[must_use]
    pub fn new(store: S, number: u64) -> Self {
        let number = (number as i64) << 22 >> 22;
        let bytes = number.to_be_bytes();
        Self { store, number, text: format!("{number:x}/"), bytes }
    }

    fn inward(&self, mut partition: Partition) -> Result<Partition> {
        if let Some(first) = partition.first_mut() {
            *first = match &*first {
                Value::Text(text) => Value::Text(format!("{}{text}", self.text)),
                Value::Blob(bytes) => Value::Blob([&self.bytes[..], bytes].concat().into()),
                Value::Int(number) if (-NUMBERS / 2..NUMBERS / 2).contains(number) => {
                    Value::Int(self.number * NUMBERS + number)
                }
                Value::Int(number) => {
                    return Err(Error::Invalid(format!(
                        "{number} is not in a namespace of {NUMBERS} numbers"
                    )));
                }
                Value::Timestamp(_) | Value::TimeUuid(_) => {
                    let what = "a namespace in a first partition column of times";
                    return Err(Error::Unsupported(what.to_owned()));
                }
            };
        }
        Ok(partition)
    }

    /// `None` if the partition is of another namespace.
    fn outward(&self, mut partition: Partition) -> Option<Partition> {
        let first = partition.first_mut()?;
        *first = match &*first {
            Value::Text(text) => text.strip_prefix(&self.text)?.into(),
            Value::Blob(bytes) => Value::Blob(Bytes::copy_from_slice(bytes.strip_prefix(&self.bytes[..])?)),
            Value::Int(number) => {
                let number = number.checked_sub(self.number * NUMBERS)?;
                (-NUMBERS / 2..NUMBERS / 2).contains(&number).then_some(Value::Int(number))?
            }
            Value::Timestamp(_) | Value::TimeUuid(_) => return None,
        };
        Some(partition)
    }

    fn key_inward(&self, key: &Key) -> Result<Key> {
        Ok(Key::new(self.inward(key.partition.clone())?, key.clustering.clone()))
    }

    fn row_inward(&self, row: &Row) -> Result<Row> {
        Ok(Row { key: self.key_inward(&row.key)?, ..row.clone() })
    }

    /// Translates a row that was read. `Corrupt` if the row is of another namespace.
    fn row_outward(&self, mut row: Row) -> Result<Row> {
        let partition = self.outward(row.key.partition);
        row.key.partition =
            partition.ok_or_else(|| Error::Corrupt("a row of another namespace".to_owned()))?;
        Ok(row)
    }

    fn batch_inward(&self, batch: Batch) -> Result<Batch> {
        Ok(Batch { partition: self.inward(batch.partition)?, ..batch })
    }
}

#[async_trait]
impl<S: TableStore> TableStore for Isolated<S> {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.store.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        let row = self.store.get(table, &self.key_inward(key)?).await?;
        row.map(|row| self.row_outward(row)).transpose()
    }

    async fn scan(&self, table: &'static Schema, mut scan: Scan) -> Result<Page<Row>> {
        scan.partition = self.inward(scan.partition)?;
        let Page { items, next, mut damaged } = self.store.scan(table, scan).await?;
        let items = items.into_iter().map(|row| self.row_outward(row)).collect::<Result<_>>()?;
        for row in &mut damaged {
            row.key.partition = self.outward(std::mem::take(&mut row.key.partition)).unwrap_or_default();
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
        let items = items.into_iter().filter_map(|partition| self.outward(partition)).collect();
        Ok(Page::new(items, next))
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let first = first.into_iter().map(|batch| self.batch_inward(batch)).collect::<Result<_>>()?;
        self.store.write(first, self.batch_inward(then)?).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        self.store.scrub().await
    }

    fn outage(&self) -> Option<Outage> {
        self.store.outage()
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let expected = expected.map(|row| self.row_inward(row)).transpose()?;
        let new = new.map(|row| self.row_inward(&row)).transpose()?;
        let swap = self.store.swap(table, &self.key_inward(key)?, expected.as_ref(), new).await?;
        Ok(match swap {
            Swap::Applied => Swap::Applied,
            Swap::Refused { current } => {
                Swap::Refused { current: current.map(|row| self.row_outward(row)).transpose()? }
            }
        })
    }
}
