//! A store that reads partitions ahead.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use rashomon_clock::{Clock, PassedTime};

use crate::{
    Cursor, Decorator, Key, Order, Page, Partition, Read, Result, Row, Scan, Schema, TableStore, Value, Walk,
    WalkPage, memory::cursor, query::compare_rows,
};

/// The maximum number of rows in a read.
const ROWS_PER_READ: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// The rows of a partition with more bytes are not kept.
const MAX_BYTES_OF_A_PARTITION: usize = 2 << 20;

/// The beginning of a cursor of this store.
const OWN_CURSOR: &[u8] = b"rows that were read ahead: ";

/// A store that can read the rows of many partitions at once, before they are requested one by one: see
/// [`Self::read_ahead`]. A read of such a partition is answered from memory, unless a commit has changed the partition
/// since.
pub struct ReadAhead {
    store: Arc<dyn TableStore>,
    clock: Arc<dyn Clock>,
    window: RwLock<Option<Window>>,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReadAhead").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The partitions that were read ahead.
struct Window {
    tables: Vec<&'static Schema>,
    partitions: HashMap<Partition, PartitionRows>,
}

/// The rows of a partition.
#[derive(Default)]
struct PartitionRows {
    /// The version of the partition before it was read.
    version: u64,
    /// The rows of each table that has some, in the order of the table. Their keys lack the partition.
    tables: Vec<(&'static Schema, Vec<Row>)>,
}

impl PartitionRows {
    fn push(&mut self, table: &'static Schema, mut row: Row) {
        row.key.partition = Vec::new();
        match self.tables.iter_mut().find(|(known, _)| known.name() == table.name()) {
            Some((_, rows)) => rows.push(row),
            None => self.tables.push((table, vec![row])),
        }
    }

    fn of(&self, table: &Schema) -> &[Row] {
        let of_table = self.tables.iter().find(|(known, _)| known.name() == table.name());
        of_table.map_or(&[], |(_, rows)| rows)
    }

    fn get(&self, table: &Schema, key: &Key, passed: PassedTime) -> Option<Row> {
        let rows = self.of(table);
        let compare = |row: &Row| compare_rows(table, &row.key.clustering, &key.clustering);
        let row = &rows[rows.binary_search_by(compare).ok()?];
        row.is_visible(passed).then(|| with_partition(&key.partition, row))
    }

    /// A result page of a scan, after the row with these clustering values.
    fn scan(&self, table: &Schema, scan: &Scan, after: Option<&[Value]>, passed: PassedTime) -> Page<Row> {
        let mut rows = self.of(table);
        let place = |row: &Row| scan.range.compare(table, &row.key.clustering);
        rows = &rows[rows.partition_point(|row| place(row).is_lt())..];
        rows = &rows[..rows.partition_point(|row| place(row).is_eq())];
        if let Some(after) = after {
            let compare = |row: &Row| compare_rows(table, &row.key.clustering, after);
            rows = match scan.order {
                Order::Forward => &rows[rows.partition_point(|row| compare(row).is_le())..],
                Order::Reverse => &rows[..rows.partition_point(|row| compare(row).is_lt())],
            };
        }
        let mut page = PageRows::new(&scan.partition, scan.limit, scan.max_bytes);
        let mut visible = rows.iter().filter(|row| row.is_visible(passed));
        let is_whole = match scan.order {
            Order::Forward => visible.all(|row| page.push(row)),
            Order::Reverse => visible.rev().all(|row| page.push(row)),
        };
        let last = page.rows.last().filter(|_| !is_whole).map(|row| own_cursor(&row.key.clustering));
        Page::new(page.rows, last)
    }

    /// The rows of a walk through this partition alone, unless they take more than one result page.
    fn walk(&self, walk: &Walk, passed: PassedTime) -> Option<WalkPage> {
        let mut page = PageRows::new(&walk.within, walk.limit, walk.max_bytes);
        let mut tables = Vec::new();
        for table in &walk.tables {
            let visible = self.of(table).iter().filter(|row| row.is_visible(passed));
            for row in visible {
                if !page.push(row) {
                    return None;
                }
                tables.push(*table);
            }
        }
        Some(WalkPage { rows: tables.into_iter().zip(page.rows).collect(), ..WalkPage::default() })
    }
}

/// A cursor that continues after the row with these clustering values. A cursor of the store itself does not begin like
/// this.
fn own_cursor(clustering: &[Value]) -> Cursor {
    Cursor([OWN_CURSOR, &cursor::encode(clustering).0].concat().into())
}

/// The row with its whole key.
fn with_partition(partition: &[Value], row: &Row) -> Row {
    let Row { key, values, written_at, expires_at } = row;
    let key = Key::new(partition.to_vec(), key.clustering.clone());
    Row { key, values: values.clone(), written_at: *written_at, expires_at: *expires_at }
}

/// The rows of a result page.
struct PageRows<'a> {
    partition: &'a [Value],
    rows: Vec<Row>,
    bytes: usize,
    limit: NonZeroUsize,
    max_bytes: usize,
}

impl<'a> PageRows<'a> {
    const fn new(partition: &'a [Value], limit: NonZeroUsize, max_bytes: usize) -> Self {
        Self { partition, rows: Vec::new(), bytes: 0, limit, max_bytes }
    }

    /// Adds a row. Returns `false` if the page has no room.
    fn push(&mut self, row: &Row) -> bool {
        let has_room =
            self.rows.len() < self.limit.get() && (self.bytes < self.max_bytes || self.rows.is_empty());
        if has_room {
            let row = with_partition(self.partition, row);
            self.bytes += row.size();
            self.rows.push(row);
        }
        has_room
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
        let mut window =
            Window { tables: tables.to_vec(), partitions: HashMap::with_capacity(partitions.len()) };
        for partition in partitions {
            if let Some(read) = versions.begin_read(partition) {
                let rows = PartitionRows { version: read.version(), ..PartitionRows::default() };
                window.partitions.insert(partition.clone(), rows);
            }
        }
        let walk = Walk::new(tables.to_vec(), ROWS_PER_READ).from(first.clone()).reporting_damage();
        let read = self.read_partitions(&mut window, walk, partitions, bytes).await?;
        for partition in &partitions[read..] {
            window.partitions.remove(partition);
        }
        *self.window.write().unwrap_or_else(PoisonError::into_inner) = Some(window);
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
        let mut current = partitions[0].clone();
        loop {
            let page = self.below().walk(walk.clone()).await?;
            for (_, row) in &page.damaged {
                window.partitions.remove(&row.key.partition);
            }
            for (table, row) in page.rows {
                let partition = &row.key.partition;
                if current != *partition {
                    // All partitions before this one were read.
                    place += partitions[place..].partition_point(|other| other < partition);
                    if place == partitions.len() || (place > 0 && of_all >= bytes) {
                        return Ok(place);
                    }
                    current.clone_from(partition);
                    of_partition = 0;
                }
                let size = row.size();
                (of_all, of_partition) = (of_all + size, of_partition + size);
                if of_partition > bytes.min(MAX_BYTES_OF_A_PARTITION) {
                    // Its rows are read one by one, and so is the page after it if it is not one of the partitions.
                    window.partitions.remove(partition);
                    return Ok((place + usize::from(partitions[place] == *partition)).max(1));
                }
                if let Some(rows) = window.partitions.get_mut(partition) {
                    rows.push(table, row);
                }
            }
            walk.after = page.next;
            if walk.after.is_none() {
                return Ok(partitions.len());
            }
        }
    }

    /// What `read` finds in the current rows of a partition in these tables, if they were read ahead.
    fn find<T>(
        &self,
        tables: &[&'static Schema],
        partition: &[Value],
        read: impl FnOnce(&PartitionRows) -> Option<T>,
    ) -> Option<T> {
        let window = self.window.read().unwrap_or_else(PoisonError::into_inner);
        let window = window.as_ref()?;
        let rows = window.partitions.get(partition)?;
        let is_current = self.below().partition_versions()?.begin_read(partition)?.version() == rows.version;
        let has_table = |table: &&Schema| window.tables.iter().any(|known| known.name() == table.name());
        (is_current && tables.iter().all(has_table)).then(|| read(rows)).flatten()
    }
}

#[async_trait]
impl Decorator for ReadAhead {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        table.check_key(key)?;
        let passed = self.clock.passed();
        match self.find(&[table], &key.partition, |rows| Some(rows.get(table, key, passed))) {
            Some(row) => Ok(row),
            None => self.below().get(table, key).await,
        }
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let (passed, own) =
            (self.clock.passed(), scan.after.as_ref().map(|after| after.0.strip_prefix(OWN_CURSOR)));
        if own == Some(None) {
            return self.below().scan(table, scan).await;
        }
        let after =
            own.flatten().map(|values| cursor::decode(&Cursor(values.to_vec().into()))).transpose()?;
        let after = after.as_deref();
        let found = self.find(&[table], &scan.partition, |rows| Some(rows.scan(table, &scan, after, passed)));
        if let Some(page) = found {
            return Ok(page);
        }
        let mut scan = Scan { after: None, ..scan };
        loop {
            let mut page = self.below().scan(table, scan.clone()).await?;
            let Some(after) = after else { return Ok(page) };
            // The rows up to this one were returned before the partition was changed or forgotten.
            let is_next = |key: &Key| {
                let place = compare_rows(table, &key.clustering, after);
                if scan.order == Order::Forward { place.is_gt() } else { place.is_lt() }
            };
            page.items.retain(|row| is_next(&row.key));
            page.damaged.retain(|row| is_next(&row.key));
            if page.next.is_none() || !page.items.is_empty() || !page.damaged.is_empty() {
                return Ok(page);
            }
            scan.after = page.next;
        }
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        let has_cursor = reads.iter().any(Read::has_cursor);
        let tables: Vec<_> = reads.iter().map(Read::table).collect();
        let partition = reads.first().map(Read::partition).unwrap_or_default();
        if !has_cursor && self.find(&tables, partition, |_| Some(())).is_none() {
            return self.below().read(reads).await;
        }
        let mut pages = Vec::with_capacity(reads.len());
        for read in reads {
            pages.push(read.answer(self).await?);
        }
        Ok(pages)
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        let passed = self.clock.passed();
        if walk.after.is_none()
            && walk.from.is_none()
            && let Some(page) = self.find(&walk.tables, &walk.within, |rows| rows.walk(&walk, passed))
        {
            return Ok(page);
        }
        self.below().walk(walk).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use rashomon_clock::{ManualClock, Timestamp};

    use super::*;
    use crate::{Batch, ClusteringRange, ColumnType, Counting, Direction, Kind, Memory};

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
        for (order, is_forgotten) in
            [(Order::Forward, false), (Order::Reverse, false), (Order::Forward, true), (Order::Reverse, true)]
        {
            world.read_ahead(3..10, usize::MAX).await;
            let mut scan = Scan::new(partition(7), NonZeroUsize::new(2).unwrap());
            scan.order = order;
            let (mut found, mut pages) = (Vec::new(), 0);
            loop {
                let page = store.scan(&REVISIONS, scan.clone()).await.unwrap();
                found.extend(page.items.iter().map(|row| row.key.clustering[0].clone()));
                pages += 1;
                scan.after = page.next;
                if scan.after.is_none() {
                    break;
                }
                if is_forgotten {
                    world.ahead.forget();
                }
            }
            let mut expected: Vec<_> = (0..7).map(Value::Int).collect();
            if order == Order::Forward {
                expected.reverse();
            }
            assert_eq!((found, pages), (expected, 4), "{order:?}, {is_forgotten}");
        }
        world.ahead.forget();
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
