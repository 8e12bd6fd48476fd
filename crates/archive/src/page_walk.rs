//! A walk that says of each page in which tables it has rows, and the pages of a bucket that have some.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_records::{
    BucketName, DomainName, Error, Page, PageStream, Result, Title,
    rows::page_of,
    schemas::{ARCHIVE_INDEX, PAGES},
};
use rashomon_tables::{DamagedRow, Error as StoreError, Partition, Row, Schema, TableStore, Walk, WalkRows};

use super::{Archive, index::IndexRow};

/// The maximum number of rows in one read.
const ROWS_PER_READ: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// The maximum number of rows, and of pages without any, in one read of a walk that rests after each: such a read takes
/// a few milliseconds.
const ROWS_BEFORE_A_REST: NonZeroUsize = NonZeroUsize::new(50).expect("not zero");

/// How many times as long as each of its reads such a walk rests.
const RESTS: u32 = 19;

/// The maximum number of pages with damaged rows that are kept until the end of the walk.
const MAX_DAMAGED_PAGES: usize = 10_000;

/// A walk through tables of pages that says in which of them each page has rows.
#[derive(Debug)]
pub struct PageWalk {
    rows: WalkRows,
    /// The pages with damaged rows. They are returned last, since the damaged rows of a page may be reported before or
    /// after its other rows, and a page may have no other rows.
    damaged: BTreeMap<Partition, WalkedPage>,
}

/// A page of a walk.
#[derive(Debug, Default)]
pub struct WalkedPage {
    /// Its partition, which may not be that of a page.
    pub partition: Partition,
    /// The tables in which it has rows, also damaged ones.
    pub tables: Vec<&'static Schema>,
    /// Whether it has damaged rows.
    pub is_damaged: bool,
    /// The row with its page info, if the walk includes the table.
    pub info: Option<Row>,
    /// The rows of its index. `None` if one of them cannot be read.
    index: Option<Vec<IndexRow>>,
}

/// The parts of a page in blocks, as its index names them.
#[derive(Debug)]
pub struct PageParts {
    pub(super) page: Page,
    pub(super) rows: Vec<IndexRow>,
}

impl PageParts {
    const fn new(page: Page, rows: Vec<IndexRow>) -> Self {
        Self { page, rows }
    }

    /// The page.
    #[must_use]
    pub const fn page(&self) -> &Page {
        &self.page
    }

    /// Whether the page has no parts in blocks.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether no revision and no tid can be in two parts. Then a reader sees everything that is in the parts.
    #[must_use]
    pub fn are_apart(&self) -> bool {
        are_apart(self.rows.iter().map(|row| row.revs)) && are_apart(self.rows.iter().map(|row| row.tids))
    }
}

/// Whether no value is in two of these ranges.
pub(super) fn are_apart<T: Copy + Ord>(ranges: impl Iterator<Item = (T, T)>) -> bool {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

impl WalkedPage {
    fn new(partition: Partition) -> Self {
        Self { partition, index: Some(Vec::new()), ..Self::default() }
    }

    /// The page. `None` if the key is not that of a page.
    #[must_use]
    pub fn page(&self) -> Option<Page> {
        page_of(&self.partition)
    }

    /// Whether the page has rows in a table, also damaged ones.
    #[must_use]
    pub fn has_rows_in(&self, table: &Schema) -> bool {
        self.tables.iter().any(|known| known.name() == table.name())
    }

    /// The parts of the page in blocks. `None` if the key is not that of a page, or if its index cannot be read.
    pub fn take_parts(&mut self) -> Option<PageParts> {
        Some(PageParts::new(self.page()?, self.index.take()?))
    }

    fn add(&mut self, table: &'static Schema, row: Row) {
        self.note_table(table);
        if table.name() == ARCHIVE_INDEX.name() {
            match (IndexRow::from_row(&row), &mut self.index) {
                (Ok(row), Some(index)) => index.push(row),
                _ => self.index = None,
            }
        } else if table.name() == PAGES.name() {
            self.info = Some(row);
        }
    }

    fn note_table(&mut self, table: &'static Schema) {
        if !self.has_rows_in(table) {
            self.tables.push(table);
        }
    }

    fn note_damage(&mut self, table: &'static Schema) {
        self.note_table(table);
        self.is_damaged = true;
        if table.name() == ARCHIVE_INDEX.name() {
            self.index = None;
        }
    }

    /// Adds the rows of the same page.
    fn join(&mut self, other: Self) {
        other.tables.into_iter().for_each(|table| self.note_table(table));
        self.info = self.info.take().or(other.info);
        self.index = self.index.take().zip(other.index).map(|(one, other)| [one, other].concat());
    }
}

impl PageWalk {
    /// Begins a walk through these tables. Damaged rows do not end it.
    #[must_use]
    pub fn new(store: Arc<dyn TableStore>, tables: Vec<&'static Schema>) -> Self {
        Self::begin(store, Walk::new(tables, ROWS_PER_READ), 0)
    }

    fn begin(store: Arc<dyn TableStore>, walk: Walk, rests: u32) -> Self {
        let rows = WalkRows::with_rests(store, walk.reporting_damage(), rests);
        Self { rows, damaged: BTreeMap::new() }
    }

    /// Returns the next page that has rows, or `None` at the end. `Corrupt` if too many rows are damaged.
    pub async fn next(&mut self) -> Result<Option<WalkedPage>> {
        while let Some((table, row)) = self.rows.next().await? {
            let mut page = WalkedPage::new(row.key.partition.clone());
            page.add(table, row);
            while let Some((table, row)) = self.rows.next_of(&page.partition).await? {
                page.add(table, row);
            }
            self.note_damage()?;
            match self.damaged.get_mut(&page.partition) {
                Some(damaged) => damaged.join(page),
                None => return Ok(Some(page)),
            }
        }
        self.note_damage()?;
        Ok(self.damaged.pop_first().map(|(_, page)| page))
    }

    fn note_damage(&mut self) -> Result<()> {
        for (table, DamagedRow { key, reason }) in self.rows.take_damaged() {
            let partition = key.partition;
            if self.damaged.len() == MAX_DAMAGED_PAGES && !self.damaged.contains_key(&partition) {
                return Err(StoreError::Corrupt(reason).into());
            }
            let new = || WalkedPage::new(partition.clone());
            self.damaged.entry(partition.clone()).or_insert_with(new).note_damage(table);
        }
        Ok(())
    }
}

/// The pages of a bucket that have rows in some tables. Pages without such rows may be among them.
pub(super) struct BucketPages<'a> {
    /// A walk through the tables, which costs as much as the rows of the bucket, and not a read for each page. `None`
    /// where other processes write to the store: its partitions are in no order, and a walk would visit those of all
    /// buckets.
    walk: Option<PageWalk>,
    /// The pages with damaged rows that the walk kept for its end, when damage has ended it.
    damaged: Vec<Page>,
    /// All titles of the bucket, which are read if there is no walk, or if damage ends it.
    listed: PageStream<'a>,
    /// The last page of the walk that was returned.
    last: Option<Title>,
}

impl<'a> BucketPages<'a> {
    /// Begins to read the pages. With a `rest` after each page, the walk rests, too.
    pub(super) fn new(
        archive: &'a Archive,
        domain: &'a DomainName,
        bucket: &'a BucketName,
        tables: Vec<&'static Schema>,
        rest: Duration,
    ) -> Self {
        let store = &archive.blocks.store;
        let within = vec![domain.as_str().into(), bucket.as_key().into()];
        let is_walked = store.partition_versions().is_some();
        let (rows, rests) = if rest.is_zero() { (ROWS_PER_READ, 0) } else { (ROWS_BEFORE_A_REST, RESTS) };
        let walk = Walk::new(tables, rows).within(within).sparsely();
        let begin = || PageWalk::begin(Arc::clone(store), walk, rests);
        let (listed, last) = (archive.records.catalog.pages(domain, bucket), None);
        Self { walk: is_walked.then(begin), damaged: Vec::new(), listed, last }
    }

    /// Returns the next page, or `None` at the end. Of a walked page also the number of its rows in the index, unless
    /// one of them cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<(Page, Option<usize>)>> {
        while let Some(walk) = &mut self.walk {
            match walk.next().await {
                Ok(None) => return Ok(None),
                // A key that is not that of a page is damaged: `verify` reports it.
                Ok(Some(walked)) => {
                    if let Some(page) = walked.page() {
                        self.last = Some(page.title.clone());
                        return Ok(Some((page, walked.index.map(|rows| rows.len()))));
                    }
                }
                Err(Error::Store(StoreError::Corrupt(_))) => {
                    let damaged = std::mem::take(&mut walk.damaged).into_values();
                    self.damaged = damaged.filter_map(|page| page.page()).collect();
                    self.damaged.retain(|page| self.last.as_ref().is_some_and(|last| page.title <= *last));
                    self.walk = None;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(page) = self.damaged.pop() {
            return Ok(Some((page, None)));
        }
        while let Some(page) = self.listed.next().await? {
            // A page must not be in the same block twice.
            if self.last.as_ref().is_none_or(|last| page.title > *last) {
                return Ok(Some((page, None)));
            }
        }
        Ok(None)
    }
}
