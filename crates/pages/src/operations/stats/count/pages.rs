//! Reads the rows of pages by a walk, and sums them up for each page.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::Arc,
};

use crate::{PropertyName, Result, Revision};
use rashomon_archive::{Archive, PartCounts};
use rashomon_records::{
    Records,
    content::{ChunkSet, Stored},
    rows::{ColumnValue, columns, unreadable},
    schemas::{ARCHIVE_INDEX, CURRENT, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS},
};
use rashomon_tables::{DamagedRow, Error as StoreError, Partition, Row, Schema, Value, Walk, WalkRows};

use super::{Bucket, PageStats};

/// The maximum number of rows in one read.
const ROWS_PER_READ: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// The rows of a page.
#[derive(Debug, Default)]
pub(super) struct WalkedPage {
    /// The index of its bucket.
    pub(super) bucket: usize,
    pub(super) title: String,
    /// The counts of its rows in tables, except bodies in chunks.
    pub(super) in_tables: PageStats,
    /// Its bodies in chunks: property, size and chunks.
    pub(super) chunked: Vec<(PropertyName, u64, ChunkSet)>,
    /// Its parts in blocks.
    pub(super) parts: Vec<PartCounts>,
    /// Whether a row of the page may hide a row in a block.
    pub(super) is_mixed: bool,
}

/// Reads the pages of buckets, one after the other.
pub(super) struct PageReader<'a> {
    records: &'a Records,
    rows: WalkRows,
    buckets: HashMap<(&'a str, &'a str), usize>,
    /// The bucket of the page that was read last.
    last_bucket: Option<usize>,
    names: &'a [Bucket],
    /// The partitions with damaged rows of tables that blocks have rows of, each with the number of its result page.
    /// The other rows of such a partition may come in the next result page.
    damaged: BTreeMap<Partition, u64>,
}

impl<'a> PageReader<'a> {
    pub(super) fn new(records: &'a Records, archive: Option<&Archive>, buckets: &'a [Bucket]) -> Self {
        let mut tables = vec![&*REVISIONS, &*RENDERS, &*REVISION_CONTENT, &*RENDER_CONTENT, &*CURRENT];
        tables.extend(archive.map(|_| &*ARCHIVE_INDEX));
        let mut walk = Walk::new(tables, ROWS_PER_READ).reporting_damage();
        if let Some((first, _)) = buckets.first()
            && buckets.iter().all(|(domain, _)| domain == first)
        {
            walk = walk.within(vec![first.as_str().into()]);
        }
        let tables = archive.map_or(&records.store, |archive| archive.tables());
        let mut this = Self {
            records,
            rows: WalkRows::new(Arc::clone(tables), walk),
            buckets: HashMap::new(),
            last_bucket: None,
            names: buckets,
            damaged: BTreeMap::new(),
        };
        for (index, (domain, bucket)) in buckets.iter().enumerate() {
            this.buckets.insert((domain.as_str(), bucket.as_key()), index);
        }
        this
    }

    /// Whether the page that was read last ended a result page.
    pub(super) fn is_at_end_of_result_page(&self) -> bool {
        self.rows.is_at_end_of_result_page()
    }

    /// Returns the next page that has rows.
    pub(super) async fn next(&mut self) -> Result<Option<WalkedPage>> {
        while let Some(row) = self.next_row().await? {
            let partition = row.1.key.partition.clone();
            let page = self.bucket_of(&partition).map(|bucket| WalkedPage {
                bucket,
                title: title_of(&partition).to_owned(),
                ..WalkedPage::default()
            });
            let mut next = Some(row);
            let is_counted = page.is_some();
            let mut page = PageSums { page: page.unwrap_or_default(), revs: None, is_counted };
            while let Some((table, row)) = next {
                page.add(table, &row)?;
                next = self.next_row_of(&partition).await?;
            }
            if page.is_counted {
                let is_damaged = self.damaged.contains_key(&partition);
                return Ok(Some(page.finish(is_damaged)));
            }
        }
        Ok(None)
    }

    /// Returns the next row, if it is of this partition.
    async fn next_row_of(&mut self, partition: &Partition) -> Result<Option<(&'static Schema, Row)>> {
        let row = self.rows.next_of(partition).await?;
        self.note_damage(Some(partition))?;
        Ok(row)
    }

    async fn next_row(&mut self) -> Result<Option<(&'static Schema, Row)>> {
        let row = self.rows.next().await?;
        self.note_damage(None)?;
        Ok(row)
    }

    /// Notes the damage of the result pages that were read. `current` is the partition that is being read.
    fn note_damage(&mut self, current: Option<&Partition>) -> Result<()> {
        let damaged = self.rows.take_damaged();
        if !damaged.is_empty() {
            let previous = self.rows.result_pages().saturating_sub(1);
            self.damaged.retain(|partition, at| *at >= previous || current == Some(partition));
        }
        damaged.into_iter().try_for_each(|(table, row)| self.add_damaged(table, row))
    }

    /// Remembers a damaged row. A damaged row of an index is an error: the revisions in its block are unknown.
    fn add_damaged(&mut self, table: &'static Schema, row: DamagedRow) -> Result<()> {
        if self.bucket_of(&row.key.partition).is_none() {
            return Ok(());
        }
        if table.name() == ARCHIVE_INDEX.name() {
            return Err(StoreError::Corrupt(row.reason).into());
        }
        if table.name() != CURRENT.name() {
            self.damaged.insert(row.key.partition.clone(), self.rows.result_pages());
        }
        self.records.catalog.damage.record(table, &[row]);
        Ok(())
    }

    /// Returns the index of the bucket of a partition. `None` if the bucket is not counted.
    fn bucket_of(&mut self, partition: &[Value]) -> Option<usize> {
        let [Value::Text(domain), Value::Text(bucket), _] = partition else { return None };
        let is = |index: usize| {
            let (known_domain, known_bucket) = &self.names[index];
            known_domain.as_str() == domain && known_bucket.as_key() == bucket
        };
        if !self.last_bucket.is_some_and(is) {
            self.last_bucket = self.buckets.get(&(domain.as_str(), bucket.as_str())).copied();
        }
        self.last_bucket
    }
}

fn title_of(partition: &[Value]) -> &str {
    match partition {
        [.., Value::Text(title)] => title,
        _ => "",
    }
}

/// The sums of a page whose rows are being read.
struct PageSums {
    page: WalkedPage,
    /// The lowest and the highest revision of its rows in tables that blocks have rows of.
    revs: Option<(Revision, Revision)>,
    /// Whether the bucket of the page is counted.
    is_counted: bool,
}

impl PageSums {
    fn add(&mut self, table: &'static Schema, row: &Row) -> Result<()> {
        if !self.is_counted {
            return Ok(());
        }
        let name = table.name();
        if name == ARCHIVE_INDEX.name() {
            self.page.parts.push(PartCounts::read(row).ok_or_else(|| unreadable(name, row))?);
            return Ok(());
        }
        let column = if name == REVISIONS.name() {
            self.page.in_tables.revisions += 1;
            0
        } else if name == RENDERS.name() {
            self.page.in_tables.renders += 1;
            0
        } else {
            self.add_body(row).ok_or_else(|| unreadable(name, row))?;
            // The property comes before the revision.
            1
        };
        if name != CURRENT.name() {
            let rev = row.key.clustering.get(column).and_then(Revision::from_value);
            let rev = rev.ok_or_else(|| unreadable(name, row))?;
            let (first, last) = self.revs.unwrap_or((rev, rev));
            self.revs = Some((first.min(rev), last.max(rev)));
        }
        Ok(())
    }

    /// Adds a body. `None` if the row cannot be decoded.
    fn add_body(&mut self, row: &Row) -> Option<()> {
        let name = PropertyName::from_value(row.key.clustering.first()?)?;
        let [_headers, size, _sha1, _rewritten_at, encoding, value] = columns(row);
        let (Value::Text(encoding), Value::Blob(value)) = (encoding?, value?) else { return None };
        let size = u64::from_value(size?)?;
        match Stored::from_columns(encoding, value.clone())? {
            Stored::Chunks(set) => self.page.chunked.push((name, size, set)),
            stored => self.page.in_tables.add_body(name, size, stored.row_size() as u64),
        }
        Some(())
    }

    fn finish(self, is_damaged: bool) -> WalkedPage {
        let Self { mut page, revs, .. } = self;
        // The parts come in the order of their last revisions, the highest first.
        let overlap = page.parts.windows(2).any(|parts| parts[1].revs.1 >= parts[0].revs.0);
        let meets =
            |part: &PartCounts| revs.is_some_and(|(first, last)| first <= part.revs.1 && part.revs.0 <= last);
        let is_hidden = is_damaged || overlap || page.parts.iter().any(meets);
        page.is_mixed = !page.parts.is_empty() && is_hidden;
        page
    }
}
