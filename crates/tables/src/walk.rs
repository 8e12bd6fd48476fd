//! Walks: the rows of several tables, partition by partition.

use std::{collections::VecDeque, num::NonZeroUsize, sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};

use crate::{Cursor, DamagedRow, Error, OnDamage, Partition, Result, Row, Scan, Schema, TableStore, Value};

/// A request for the rows of several tables: see [`TableStore::walk`].
#[derive(Debug, Clone)]
pub struct Walk {
    /// The tables. Their partition columns are the same.
    pub tables: Vec<&'static Schema>,
    /// The values of the first partition columns. Only partitions that begin with them are visited. Empty for all
    /// partitions.
    pub within: Partition,
    /// The first partition that is visited: the partitions are visited in the order of their values. `Unsupported` by
    /// stores that have no such order.
    pub from: Option<Partition>,
    /// Whether the partitions have many rows in other tables, which a store should not read then. The rows are the same.
    pub is_sparse: bool,
    /// The maximum number of rows in a result page.
    pub limit: NonZeroUsize,
    /// A result page ends at the latest with the row that reaches this many bytes ([`Row::size`]).
    pub max_bytes: usize,
    /// The cursor of the previous result page. `None` for the first result page.
    pub after: Option<Cursor>,
    /// What to do at a damaged row.
    pub on_damage: OnDamage,
}

impl Walk {
    /// Creates a walk through all partitions of these tables, with `limit` rows in a result page.
    #[must_use]
    pub const fn new(tables: Vec<&'static Schema>, limit: NonZeroUsize) -> Self {
        Self {
            tables,
            within: Vec::new(),
            from: None,
            is_sparse: false,
            limit,
            max_bytes: Scan::DEFAULT_MAX_BYTES,
            after: None,
            on_damage: OnDamage::Fail,
        }
    }

    /// Limits the walk to the partitions that begin with these values.
    #[must_use]
    pub fn within(mut self, first_values: Partition) -> Self {
        self.within = first_values;
        self
    }

    /// Reads no rows of other tables, if the store can leave them out: see [`Self::is_sparse`].
    #[must_use]
    pub const fn sparsely(mut self) -> Self {
        self.is_sparse = true;
        self
    }

    /// Begins at this partition, or at the first one after it.
    #[must_use]
    pub fn from(mut self, partition: Partition) -> Self {
        self.from = Some(partition);
        self
    }

    /// Names damaged rows in [`WalkPage::damaged`] instead of failing at the first one.
    #[must_use]
    pub const fn reporting_damage(mut self) -> Self {
        self.on_damage = OnDamage::Report;
        self
    }

    /// Checks the walk, and returns `Invalid` if it has no tables, if it has a table twice, if the partition columns
    /// of its tables differ, or if `within` does not fit these columns. Every store calls this before it reads.
    pub fn check(&self) -> Result<()> {
        let Some((first, others)) = self.tables.split_first() else {
            return Err(Error::Invalid("a walk through no tables".to_owned()));
        };
        for (index, other) in others.iter().enumerate() {
            if other.partition() != first.partition() {
                let (first, other) = (first.name(), other.name());
                let what = format!("a walk through {first} and {other}, whose partition columns differ");
                return Err(Error::Invalid(what));
            }
            if self.tables[..=index].iter().any(|earlier| earlier.name() == other.name()) {
                return Err(Error::Invalid(format!("a walk through {} and again {0}", other.name())));
            }
        }
        first.check_partition_prefix(&self.within)?;
        self.from.as_ref().map_or(Ok(()), |from| first.check_partition(from))
    }
}

/// A result page of a walk.
#[derive(Debug, Clone, Default)]
pub struct WalkPage {
    /// The rows, each with its table. The list may be empty even if more pages follow.
    pub rows: Vec<(&'static Schema, Row)>,
    /// Damaged rows that the walk found while it read this page, in any order, each with its table. Always empty
    /// without [`OnDamage::Report`].
    pub damaged: Vec<(&'static Schema, DamagedRow)>,
    /// The cursor of the next page. `None` if there is no further page.
    pub next: Option<Cursor>,
}

/// A walk whose result pages are read one after the other.
#[derive(Debug)]
pub struct WalkStream<'s> {
    store: &'s dyn TableStore,
    walk: Walk,
    is_last: bool,
}

impl<'s> WalkStream<'s> {
    /// Creates a stream that begins after `walk.after`. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'s dyn TableStore, walk: Walk) -> Self {
        Self { store, walk, is_last: false }
    }

    /// Returns the next result page, or `None` at the end. After an error, the next call reads the same page again.
    pub async fn next(&mut self) -> Result<Option<WalkPage>> {
        if self.is_last {
            return Ok(None);
        }
        let page = self.store.walk(self.walk.clone()).await?;
        self.walk.after.clone_from(&page.next);
        self.is_last = page.next.is_none();
        Ok(Some(page))
    }
}

/// The longest rest after a read of a result page.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The rows of a walk, one after the other. While the rows of a result page are used, the next result page is read.
#[derive(Debug)]
pub struct WalkRows {
    store: Arc<dyn TableStore>,
    walk: Walk,
    /// The result page that is read ahead. `None` after the last one.
    next: Option<JoinHandle<Result<(WalkPage, Duration)>>>,
    rows: VecDeque<(&'static Schema, Row)>,
    damaged: Vec<(&'static Schema, DamagedRow)>,
    result_pages: u64,
    /// How many times as long as each read to rest after it.
    rests: u32,
}

impl WalkRows {
    /// Begins to read the first result page. Call it on a runtime.
    #[must_use]
    pub fn new(store: Arc<dyn TableStore>, walk: Walk) -> Self {
        Self::with_rests(store, walk, 0)
    }

    /// Like [`Self::new`], but rests after each read, so many times as long as the read took. So work in the background
    /// takes only a part of one core.
    #[must_use]
    pub fn with_rests(store: Arc<dyn TableStore>, walk: Walk, rests: u32) -> Self {
        let (rows, damaged) = (VecDeque::new(), Vec::new());
        let mut this = Self { store, walk, next: None, rows, damaged, result_pages: 0, rests };
        this.begin_read(Duration::ZERO);
        this
    }

    /// Returns the next row, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<(&'static Schema, Row)>> {
        self.fill().await?;
        Ok(self.rows.pop_front())
    }

    /// Returns the next row if it is in this partition.
    pub async fn next_of(&mut self, partition: &[Value]) -> Result<Option<(&'static Schema, Row)>> {
        self.fill().await?;
        let is_next = self.rows.front().is_some_and(|(_, row)| row.key.partition == partition);
        Ok(if is_next { self.rows.pop_front() } else { None })
    }

    /// Takes the damaged rows of the result pages that were read. When the last row of a partition was returned, and the
    /// next call has found that it was the last one, these have all damaged rows of the partition.
    pub fn take_damaged(&mut self) -> Vec<(&'static Schema, DamagedRow)> {
        std::mem::take(&mut self.damaged)
    }

    /// Whether the row that was returned last ended a result page.
    #[must_use]
    pub fn is_at_end_of_result_page(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of result pages with rows that were read.
    #[must_use]
    pub const fn result_pages(&self) -> u64 {
        self.result_pages
    }

    async fn fill(&mut self) -> Result<()> {
        while self.rows.is_empty() {
            let Some(next) = self.next.take() else { return Ok(()) };
            let page = next.await.map_err(|error| Error::unavailable(error.to_string()))?;
            let (WalkPage { rows, damaged, next }, took) = page?;
            self.walk.after = next;
            if self.walk.after.is_some() {
                self.begin_read((took * self.rests).min(LONGEST_REST));
            }
            self.result_pages += u64::from(!rows.is_empty());
            self.damaged.extend(damaged);
            self.rows = rows.into();
        }
        Ok(())
    }

    fn begin_read(&mut self, rest: Duration) {
        let (store, walk) = (Arc::clone(&self.store), self.walk.clone());
        self.next = Some(tokio::spawn(async move {
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let begun = Instant::now();
            let page = store.walk(walk).await?;
            Ok((page, begun.elapsed()))
        }));
    }
}

impl Drop for WalkRows {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
    }
}
