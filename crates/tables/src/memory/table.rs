//! One table in memory.

use std::{collections::BTreeMap, num::NonZeroUsize, ops::Bound};

use rashomon_clock::{PassedTime, Timestamp};

use super::{
    cursor,
    position::{self, Position, Span},
};
use crate::{
    ClusteringRange, Cursor, Error, Key, Mutation, Order, Page, Partition, Result, Row, Scan, Schema, Swap,
    Value,
};

/// A table, with all partitions that have rows. Expired rows stay until they are overwritten or deleted.
pub(super) struct Table {
    schema: &'static Schema,
    partitions: BTreeMap<Partition, Rows>,
}

type Rows = BTreeMap<Position, Row>;

impl Table {
    pub(super) const fn new(schema: &'static Schema) -> Self {
        Self { schema, partitions: BTreeMap::new() }
    }

    /// Checks the schema of a call. `Invalid` unless the table was created with this schema.
    pub(super) fn check_schema(&self, schema: &'static Schema) -> Result<()> {
        if std::ptr::eq(self.schema, schema) || self.schema == schema {
            Ok(())
        } else {
            Err(Error::Invalid(format!("table {} was created with another schema", schema.name())))
        }
    }

    /// Checks the schema with which an existing table is created again. `Unsupported` unless the table has this
    /// schema.
    pub(super) fn check_same(&self, schema: &'static Schema) -> Result<()> {
        if self.schema == schema {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "table {} of version {} exists with other columns or settings",
            self.schema.name(),
            self.schema.version()
        )))
    }

    pub(super) fn get(&self, key: &Key, passed: PassedTime) -> Option<&Row> {
        let rows = self.partitions.get(&key.partition)?;
        rows.get(&Position::new(self.schema, &key.clustering)).filter(|row| row.is_visible(passed))
    }

    pub(super) fn scan(&self, scan: &Scan, passed: PassedTime) -> Result<Page<Row>> {
        let mut span = position::span(self.schema, &scan.range);
        if let Some(after) = &scan.after {
            let clustering = cursor::decode(after)?;
            self.schema.check_clustering(&clustering)?;
            let after = Bound::Excluded(Position::new(self.schema, &clustering));
            match scan.order {
                Order::Forward => span.0 = after,
                Order::Reverse => span.1 = after,
            }
        }
        let rows = self.partitions.get(&scan.partition).map(|rows| within(rows, span)).into_iter().flatten();
        let visible = rows.filter(|row| row.is_visible(passed));
        Ok(match scan.order {
            Order::Forward => page(visible, scan),
            Order::Reverse => page(visible.rev(), scan),
        })
    }

    pub(super) fn partitions(
        &self,
        after: Option<&Cursor>,
        limit: NonZeroUsize,
        passed: PassedTime,
    ) -> Result<Page<Partition>> {
        let start = match after {
            Some(after) => Bound::Excluded(cursor::decode(after)?),
            None => Bound::Unbounded,
        };
        let mut found = (self.partitions.range((start, Bound::Unbounded)))
            .filter(|(_, rows)| rows.values().any(|row| row.is_visible(passed)))
            .map(|(partition, _)| partition);
        let items: Vec<_> = found.by_ref().take(limit.get()).cloned().collect();
        let next = found.next().and(items.last()).map(|last| cursor::encode(last));
        Ok(Page::new(items, next))
    }

    /// The first partition within this bound, whether its rows are visible or not.
    pub(super) fn first_partition(&self, start: Bound<&[Value]>) -> Option<&Partition> {
        self.partitions.range::<[Value], _>((start, Bound::Unbounded)).next().map(|(partition, _)| partition)
    }

    /// The rows of a partition after these clustering values, visible or expired.
    pub(super) fn rows_after(
        &self,
        partition: &[Value],
        after: Option<&[Value]>,
    ) -> impl Iterator<Item = &Row> {
        let start =
            after.map_or(Bound::Unbounded, |after| Bound::Excluded(Position::new(self.schema, after)));
        let rows = self.partitions.get(partition).map(|rows| rows.range((start, Bound::Unbounded)));
        rows.into_iter().flatten().map(|(_, row)| row)
    }

    pub(super) fn apply(&mut self, partition: &[Value], mutation: Mutation) {
        match mutation {
            Mutation::Put { clustering, values, written_at, expires_at, .. } => {
                let expires_at = self.schema.expiry(written_at, expires_at);
                let key = Key::new(partition.to_vec(), clustering);
                self.put(Row { key, values, written_at, expires_at });
            }
            Mutation::Delete { clustering, written_at, .. } => {
                let position = Position::new(self.schema, &clustering);
                let span = (Bound::Included(position.clone()), Bound::Included(position));
                self.delete(partition, &span, written_at);
            }
            Mutation::DeleteRange { range, written_before, .. } => {
                let span = position::span(self.schema, &range);
                self.delete(partition, &span, written_before);
            }
        }
    }

    fn put(&mut self, row: Row) {
        let rows = self.partitions.entry(row.key.partition.clone()).or_default();
        let position = Position::new(self.schema, &row.key.clustering);
        if rows.get(&position).is_none_or(|stored| stored.written_at <= row.written_at) {
            rows.insert(position, row);
        }
    }

    /// Deletes the rows of the span that were written at `latest` or before.
    fn delete(&mut self, partition: &[Value], span: &Span, latest: Timestamp) {
        let Some(rows) = self.partitions.get_mut(partition) else { return };
        if position::is_empty(span) {
            return;
        }
        let gone: Vec<_> = (rows.range(span.clone()))
            .filter(|(_, row)| row.written_at <= latest)
            .map(|(position, _)| position.clone())
            .collect();
        for position in gone {
            rows.remove(&position);
        }
        if rows.is_empty() {
            self.partitions.remove(partition);
        }
    }

    pub(super) fn swap(
        &mut self,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
        passed: PassedTime,
    ) -> Swap {
        let current = self.get(key, passed);
        if current.map(|row| &row.values) != expected.map(|row| &row.values) {
            return Swap::Refused { current: current.cloned() };
        }
        // The write time is later than that of the row that is replaced, even if the clock is behind.
        let position = Position::new(self.schema, &key.clustering);
        let stored = self.partitions.get(&key.partition).and_then(|rows| rows.get(&position));
        let written_at = stored.map_or(passed.shown(), |row| passed.shown().max(row.written_at.just_after()));
        if let Some(new) = new {
            let expires_at = self.schema.expiry(written_at, new.expires_at);
            self.put(Row { written_at, expires_at, ..new });
        } else {
            self.delete(
                &key.partition,
                &position::span(self.schema, &ClusteringRange::prefix(key.clustering.clone())),
                Timestamp::MAX,
            );
        }
        Swap::Applied
    }
}

fn within(rows: &Rows, span: Span) -> impl DoubleEndedIterator<Item = &Row> {
    let rows = (!position::is_empty(&span)).then(|| rows.range(span));
    rows.into_iter().flatten().map(|(_, row)| row)
}

/// Returns a page of the scan: the rows that fit, and a cursor if there are more rows.
fn page<'a>(rows: impl Iterator<Item = &'a Row>, scan: &Scan) -> Page<Row> {
    let mut items: Vec<Row> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        if let Some(last) = items.last()
            && (items.len() == scan.limit.get() || bytes >= scan.max_bytes)
        {
            let next = Some(cursor::encode(&last.key.clustering));
            return Page::new(items, next);
        }
        bytes += row.size();
        items.push(row.clone());
    }
    Page::new(items, None)
}
