//! A store that reads partitions ahead.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use rashomon_clock::Clock;

use crate::{
    Batch, Decorator, Key, MAX_BATCH_BYTES, Memory, Mutation, Page, Partition, Result, Row, Scan, Schema,
    TableStore, Value, Walk, WalkPage,
};

/// The maximum number of rows in a read.
const ROWS_PER_READ: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// The rows of a partition with more bytes are not kept. They would have to fit into a batch.
const MAX_BYTES_OF_A_PARTITION: usize = MAX_BATCH_BYTES / 2;

/// A store that can read the rows of many partitions at once, before they are requested one by one: see
/// [`Self::read_ahead`]. A read of such a partition is answered from memory, unless a commit has changed the partition
/// since.
pub struct ReadAhead {
    store: Arc<dyn TableStore>,
    clock: Arc<dyn Clock>,
    window: RwLock<Option<Arc<Window>>>,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReadAhead").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The partitions that were read ahead.
struct Window {
    tables: Vec<&'static Schema>,
    /// The version of each partition before it was read.
    versions: HashMap<Partition, u64>,
    rows: Memory,
}

/// Rows of a partition that are being read.
struct PartitionRows {
    batch: Batch,
    /// Rows of tables that are written by swap alone.
    swapped: Vec<(&'static Schema, Row)>,
}

impl PartitionRows {
    fn new(partition: &[Value]) -> Self {
        Self { batch: Batch::new(partition.to_vec()), swapped: Vec::new() }
    }

    fn push(&mut self, table: &'static Schema, row: Row) {
        if table.swap_only() {
            self.swapped.push((table, row));
            return;
        }
        let Row { key, values, written_at, expires_at } = row;
        let clustering = key.clustering;
        self.batch.mutations.push(Mutation::Put { table, clustering, values, written_at, expires_at });
    }
}

impl Window {
    /// Adds the rows of a partition. If the store in memory does not take them, the partition is not kept.
    async fn add(&mut self, rows: PartitionRows) {
        let partition = rows.batch.partition.clone();
        let mut is_kept = self.rows.write(Vec::new(), rows.batch).await.is_ok();
        for (table, row) in rows.swapped {
            let key = row.key.clone();
            is_kept &= self.rows.swap(Vec::new(), table, &key, None, Some(row)).await.is_ok();
        }
        if !is_kept {
            self.versions.remove(&partition);
        }
    }

    fn has_table(&self, table: &Schema) -> bool {
        self.tables.iter().any(|known| known.name() == table.name())
    }
}

impl ReadAhead {
    /// Wraps a store. Nothing is read ahead. `clock` is that of the store.
    #[must_use]
    pub fn new(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, window: RwLock::default() }
    }

    /// Reads the rows of these tables in the first of these partitions, which are in ascending order: as many partitions
    /// as have about this number of bytes in their rows, and at least one. Returns how many. A partition with damaged
    /// rows, with too many bytes, or with a commit in progress counts, but is not read ahead. Forgets what was read ahead
    /// before. Without partition versions nothing is read ahead, and the number is 0.
    ///
    /// # Errors
    ///
    /// Those of [`TableStore::walk`].
    pub async fn read_ahead(
        &self,
        tables: &[&'static Schema],
        partitions: &[Partition],
        bytes: usize,
    ) -> Result<usize> {
        self.forget();
        let (Some(versions), [first, ..]) = (self.below().partition_versions(), partitions) else {
            return Ok(0);
        };
        let mut window = Window {
            tables: tables.to_vec(),
            versions: HashMap::with_capacity(partitions.len()),
            rows: Memory::new(Arc::clone(&self.clock)),
        };
        for table in tables {
            window.rows.create(table).await?;
        }
        for partition in partitions {
            if let Some(read) = versions.begin_read(partition) {
                window.versions.insert(partition.clone(), read.version());
            }
        }
        let walk = Walk::new(tables.to_vec(), ROWS_PER_READ).from(first.clone()).reporting_damage();
        let read = self.read_partitions(&mut window, walk, partitions, bytes).await?;
        for partition in &partitions[read..] {
            window.versions.remove(partition);
        }
        *self.window.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(window));
        Ok(read)
    }

    /// Forgets what was read ahead.
    fn forget(&self) {
        self.window.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Reads partitions into the window, until they have this many bytes. Returns how many were read, or found to be too
    /// large.
    async fn read_partitions(
        &self,
        window: &mut Window,
        mut walk: Walk,
        partitions: &[Partition],
        bytes: usize,
    ) -> Result<usize> {
        let (mut place, mut of_all, mut of_partition) = (0, 0, 0);
        let mut rows = PartitionRows::new(&partitions[0]);
        loop {
            let page = self.below().walk(walk.clone()).await?;
            for (_, row) in &page.damaged {
                window.versions.remove(&row.key.partition);
            }
            for (table, row) in page.rows {
                let partition = &row.key.partition;
                if rows.batch.partition != *partition {
                    // All partitions before this one were read.
                    let whole = std::mem::replace(&mut rows, PartitionRows::new(partition));
                    window.add(whole).await;
                    place = partitions.partition_point(|other| other < partition);
                    if place == partitions.len() || (place > 0 && of_all >= bytes) {
                        return Ok(place);
                    }
                    of_partition = 0;
                }
                let size = row.size();
                (of_all, of_partition) = (of_all + size, of_partition + size);
                if of_partition > bytes.min(MAX_BYTES_OF_A_PARTITION) {
                    // Its rows are read one by one, and so is the page after it if it is not one of the partitions.
                    window.versions.remove(partition);
                    return Ok((place + usize::from(partitions[place] == *partition)).max(1));
                }
                rows.push(table, row);
            }
            walk.after = page.next;
            if walk.after.is_none() {
                window.add(rows).await;
                return Ok(partitions.len());
            }
        }
    }

    /// The window, if it has the current rows of a partition in these tables.
    fn window_with(&self, tables: &[&'static Schema], partition: &[Value]) -> Option<Arc<Window>> {
        let window = self.window.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let version = *window.versions.get(partition)?;
        let is_current = self.below().partition_versions()?.begin_read(partition)?.version() == version;
        (is_current && tables.iter().all(|table| window.has_table(table))).then_some(window)
    }
}

#[async_trait]
impl Decorator for ReadAhead {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        match self.window_with(&[table], &key.partition) {
            Some(window) => window.rows.get(table, key).await,
            None => self.below().get(table, key).await,
        }
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        if scan.after.is_none()
            && let Some(window) = self.window_with(&[table], &scan.partition)
        {
            let page = window.rows.scan(table, scan.clone()).await?;
            // A cursor would be of no use in the store.
            if page.next.is_none() {
                return Ok(page);
            }
        }
        self.below().scan(table, scan).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        if walk.after.is_none()
            && walk.from.is_none()
            && let Some(window) = self.window_with(&walk.tables, &walk.within)
        {
            let page = window.rows.walk(walk.clone()).await?;
            if page.next.is_none() {
                return Ok(page);
            }
        }
        self.below().walk(walk).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use rashomon_clock::{ManualClock, Timestamp};

    use super::*;
    use crate::{ClusteringRange, ColumnType, Counting, Direction, Kind, Order};

    static REVISIONS: LazyLock<Schema> =
        LazyLock::new(|| of_a_page("revisions").value("text", ColumnType::Text).build());
    static RENDERS: LazyLock<Schema> = LazyLock::new(|| of_a_page("renders").build());
    static CURRENT: LazyLock<Schema> = LazyLock::new(|| of_a_page("current").swap_only().build());
    static OTHERS: LazyLock<Schema> = LazyLock::new(|| of_a_page("others").build());

    fn of_a_page(table: &'static str) -> crate::SchemaBuilder {
        Schema::builder(table).partition("page", ColumnType::Text).clustering(
            "rev",
            ColumnType::Int,
            Direction::Descending,
        )
    }

    fn partition(number: i64) -> Partition {
        vec![format!("page {number:03}").as_str().into()]
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    struct World {
        counting: Arc<Counting<Memory>>,
        ahead: ReadAhead,
    }

    impl World {
        /// A store of pages: the page with the number N has N revisions, and a render of each second one.
        async fn new(pages: i64) -> Self {
            let clock = Arc::new(ManualClock::new(at(1_000)));
            let counting = Arc::new(Counting::new(Memory::new(Arc::clone(&clock) as _)));
            let ahead = ReadAhead::new(Arc::clone(&counting) as _, clock);
            for table in [&*REVISIONS, &*RENDERS, &*CURRENT, &*OTHERS] {
                TableStore::create(&ahead, table).await.unwrap();
            }
            let this = Self { counting, ahead };
            for page in 0..pages {
                let key = Key::new(partition(page), vec![Value::Int(2)]);
                let row = Row { key: key.clone(), values: Vec::new(), written_at: at(1), expires_at: None };
                let store = &this.ahead as &dyn TableStore;
                store.swap(Vec::new(), &CURRENT, &key, None, Some(row)).await.unwrap();
                for rev in 0..page {
                    this.put(page, rev, &format!("text {rev}")).await;
                }
            }
            this
        }

        async fn put(&self, page: i64, rev: i64, text: &str) {
            let mut batch = Batch::new(partition(page));
            batch.put(&REVISIONS, vec![Value::Int(rev)], vec![Some(text.into())], at(rev));
            if rev % 2 == 0 {
                batch.put(&RENDERS, vec![Value::Int(rev)], Vec::new(), at(rev));
            }
            TableStore::write(&self.ahead, Vec::new(), batch).await.unwrap();
        }

        async fn read_ahead(&self, pages: std::ops::Range<i64>, bytes: usize) -> usize {
            let partitions: Vec<_> = pages.map(partition).collect();
            self.ahead.read_ahead(&[&REVISIONS, &RENDERS, &CURRENT], &partitions, bytes).await.unwrap()
        }

        /// Reads a page in several ways. Returns the rows, and how many calls the store below got.
        async fn read(&self, page: i64) -> (Vec<Row>, u64) {
            let reads = || {
                let counts = self.counting.counts();
                let of = |kind| counts.total(kind).operations;
                of(Kind::Get) + of(Kind::Scan) + of(Kind::Walk)
            };
            let (before, store) = (reads(), &self.ahead as &dyn TableStore);
            let all = NonZeroUsize::new(1_000).unwrap();
            let mut rows = Vec::new();
            for table in [&*REVISIONS, &*RENDERS, &*CURRENT] {
                let range = ClusteringRange::all().at_least(1);
                let mut scan = Scan::new(partition(page), all).range(range);
                rows.extend(store.scan(table, scan.clone()).await.unwrap().items);
                scan.order = Order::Reverse;
                rows.extend(store.scan(table, scan).await.unwrap().items);
                rows.extend(store.get(table, &Key::new(partition(page), vec![Value::Int(2)])).await.unwrap());
            }
            let walk = Walk::new(vec![&REVISIONS, &RENDERS], all).within(partition(page));
            rows.extend(store.walk(walk).await.unwrap().rows.into_iter().map(|(_, row)| row));
            (rows, reads() - before)
        }
    }

    #[tokio::test]
    async fn reads_of_pages_that_were_read_ahead_do_not_ask_the_store() {
        let world = World::new(12).await;
        let mut expected = Vec::new();
        for page in 0..14 {
            let (rows, calls) = world.read(page).await;
            assert!(calls > 0);
            expected.push(rows);
        }
        assert_eq!(world.read_ahead(3..10, usize::MAX).await, 7);
        for page in 0..14 {
            let (rows, calls) = world.read(page).await;
            assert_eq!(rows, expected[page as usize], "{page}");
            assert_eq!(calls == 0, (3..10).contains(&page), "{page}");
        }
        // A table that was not read ahead, and a scan that does not end with its first result page.
        let store = &world.ahead as &dyn TableStore;
        assert!(
            store.scan(&OTHERS, Scan::new(partition(5), NonZeroUsize::MIN)).await.unwrap().items.is_empty()
        );
        let mut scan = Scan::new(partition(5), NonZeroUsize::new(2).unwrap());
        let mut found = Vec::new();
        loop {
            let page = store.scan(&REVISIONS, scan.clone()).await.unwrap();
            found.extend(page.items);
            scan.after = page.next;
            if scan.after.is_none() {
                break;
            }
            world.ahead.forget();
        }
        assert_eq!(found.len(), 5);
        assert!(world.read(5).await.1 > 0, "it was forgotten");
    }

    #[tokio::test]
    async fn a_page_that_was_changed_is_read_again() {
        let world = World::new(6).await;
        world.read_ahead(0..6, usize::MAX).await;
        world.put(4, 9, "later").await;
        let (rows, calls) = world.read(4).await;
        assert!(calls > 0 && rows.iter().any(|row| row.values == [Some("later".into())]));
        assert_eq!(world.read(5).await.1, 0);
        world.read_ahead(0..6, usize::MAX).await;
        assert_eq!(world.read(4).await, (rows, 0));
    }

    #[tokio::test]
    async fn as_many_pages_are_read_ahead_as_fit() {
        let world = World::new(40).await;
        let (mut next, mut windows) = (0, 0);
        while next < 50 {
            let count = world.read_ahead(next..50, 5_000).await as i64;
            assert!(count > 0, "{next}");
            for page in next..next + count {
                let (rows, calls) = world.read(page).await;
                world.ahead.forget();
                assert_eq!(rows, world.read(page).await.0);
                assert!(calls == 0 || page > next, "{page}");
                world.read_ahead(next..next + count, 5_000).await;
            }
            next += count;
            windows += 1;
        }
        assert!((3..50).contains(&windows), "{windows}");
        // A page that is larger than the limit is not kept, and the next ones have their turn.
        assert_eq!(world.read_ahead(30..40, 100).await, 1);
        assert!(world.read(30).await.1 > 0);
    }
}
