//! Support that the tests of this crate share: a world of a clock, a store and the buckets over the store,
//! and short functions to write and to read.
//!
//! The store is in Cassandra if the environment names a node, and in memory otherwise. [`on_every_store`]
//! also runs a test in SQLite.
#![allow(dead_code, unused_imports, unused_macros)] // Typed rows have all columns of their tables.

mod altered;
mod piece_set;
mod rows;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{
    Body, BucketName, DomainName, Error, Expect, ImportRender, ImportRevision, Missing, NewProperty,
    NewRender, NewRevision, Page, Parent, Property, PropertyName, PropertyVersion, RenderBase, Result,
    Revision, RevisionRecord, RevisionStore, Settings, Tid, Title, VerifyReport, Written, schemas,
};
use rashomon_records::rows::{RowKey, TypedRow};
use rashomon_tables::{Memory, Row, Scan, Schema, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

pub(crate) use self::{
    altered::{AlteredStore, ContendedStore, DamagedStore},
    piece_set::{PieceSet, letters, noise},
    rows::{
        BlockEntry, BlockId, BlockPiece, ByRevRow, CulledRow, CurrentRow, IndexRow, LeaseRow, PositionRow,
        block_bytes, block_id, block_partition, column_mut, hour_partition, with_block_bytes,
    },
};
pub(crate) use rashomon_testing::stores::Cluster;

/// The store of a test.
pub(crate) type AnyStore = Arc<dyn TableStore>;

/// Whether the tests run on Cassandra.
pub(crate) fn runs_on_cassandra() -> bool {
    rashomon_testing::stores::node().is_some()
}

/// The step between the points at which a test makes a call of the store fail. In memory the step is 1, so each
/// point is tested. On a Cassandra node, a run for each point would take minutes, so the step is `nth`.
pub(crate) fn every_point_or_nth(nth: usize) -> usize {
    if runs_on_cassandra() { nth } else { 1 }
}

/// The time at which the tests begin: 2026-01-01T00:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The time `seconds` after [`START`].
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + seconds * 1_000_000)
}

pub(crate) const fn rev(number: i64) -> Revision {
    Revision::new(number).expect("positive")
}

pub(crate) fn name(text: &str) -> PropertyName {
    text.parse().expect("a property's name")
}

pub(crate) fn page(title: &str) -> Page {
    page_of("enwiki", title)
}

pub(crate) fn page_of(domain: &str, title: &str) -> Page {
    Page {
        domain: DomainName::new(domain).expect("a domain"),
        bucket: BucketName::page(),
        title: Title::new(title).expect("a title"),
    }
}

/// A clock, a store, and the buckets over the store.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) buckets: RevisionStore,
    /// The directory of a store in SQLite, deleted with the last world that uses it.
    directory: Option<Arc<TempDir>>,
}

impl World {
    /// A world over the store that the environment names, or over a store in memory.
    pub(crate) async fn new() -> Self {
        Self::over(|store| store).await.0
    }

    /// A world over the store in memory, even if the environment names a node.
    pub(crate) async fn in_memory() -> Self {
        Self::in_memory_with(Settings::default()).await
    }

    pub(crate) async fn in_memory_with(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Self::on(Arc::new(memory), clock, settings, 1).await
    }

    /// A world over a store in SQLite.
    pub(crate) async fn in_sqlite() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(ManualClock::new(START));
        let store = SqliteStore::open(directory.path(), clock.clone(), Options::default());
        let store: AnyStore = Arc::new(store.expect("an empty directory"));
        let world = Self::on(store, clock, Settings::default(), 1).await;
        Self { directory: Some(Arc::new(directory)), ..world }
    }

    /// A world over a decorator of the store that the environment names. Also returns the decorator.
    pub(crate) async fn over<S: TableStore>(decorate: impl FnOnce(AnyStore) -> S) -> (Self, Arc<S>) {
        Self::with(decorate, Settings::default()).await
    }

    pub(crate) async fn with<S: TableStore>(
        decorate: impl FnOnce(AnyStore) -> S,
        settings: Settings,
    ) -> (Self, Arc<S>) {
        let clock = Arc::new(ManualClock::new(START));
        let store = rashomon_testing::stores::open(Arc::clone(&clock) as Arc<dyn Clock>).await;
        let store = Arc::new(decorate(store));
        (Self::on(Arc::clone(&store) as AnyStore, clock, settings, 1).await, store)
    }

    /// A world over a decorator of the store in memory.
    pub(crate) async fn over_memory<S: TableStore>(decorate: impl FnOnce(Memory) -> S) -> (Self, Arc<S>) {
        let clock = Arc::new(ManualClock::new(START));
        let store = Arc::new(decorate(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
        (Self::on(Arc::clone(&store) as AnyStore, clock, Settings::default(), 1).await, store)
    }

    /// A new process on an existing store.
    pub(crate) async fn on(store: AnyStore, clock: Arc<ManualClock>, settings: Settings, seed: u64) -> Self {
        let shared_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let buckets = RevisionStore::open(Arc::clone(&store), shared_clock, settings, seed).await;
        let buckets = buckets.expect("the store accepts the tables");
        Self { buckets, clock, store, directory: None }
    }

    /// The same store and clock after a restart.
    pub(crate) async fn reopened(&self) -> Self {
        self.restarted_with(self.buckets.settings().clone()).await
    }

    /// The same store and clock, after a restart with other settings.
    pub(crate) async fn restarted_with(&self, settings: Settings) -> Self {
        // Each process has its own seed.
        static SEEDS: AtomicU64 = AtomicU64::new(1000);
        let seed = SEEDS.fetch_add(1, Ordering::Relaxed);
        let world = Self::on(Arc::clone(&self.store), Arc::clone(&self.clock), settings, seed).await;
        Self { directory: self.directory.clone(), ..world }
    }

    /// The directory of the store, which has to be in SQLite.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.as_ref().expect("the store is in files").path()
    }

    /// Advances the clock.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Receives properties, without storing them yet.
    pub(crate) async fn stage<B: AsRef<[u8]>>(&self, page: &Page, bodies: &[(&str, B)]) -> Vec<NewProperty> {
        let mut properties = Vec::new();
        for (property, body) in bodies {
            let body = self.buckets.stage_bytes(page, &name(property), body.as_ref()).await;
            properties.push(NewProperty {
                name: name(property),
                content_type: None,
                other_headers: BTreeMap::new(),
                body: body.expect("the body is within its limit"),
            });
        }
        properties
    }

    /// A revision of these properties, without parent, user or other fields.
    pub(crate) async fn new_revision<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        number: i64,
        bodies: &[(&str, B)],
    ) -> NewRevision {
        NewRevision::new(rev(number), self.stage(page, bodies).await)
    }

    pub(crate) async fn put_revision<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        number: i64,
        bodies: &[(&str, B)],
    ) -> Result<Written> {
        self.buckets.put_revision(page, self.new_revision(page, number, bodies).await).await
    }

    pub(crate) async fn put_revision_at<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        number: i64,
        timestamp: Timestamp,
        bodies: &[(&str, B)],
    ) -> Result<Written> {
        let new = self.new_revision(page, number, bodies).await;
        self.buckets.put_revision(page, NewRevision { timestamp: Some(timestamp), ..new }).await
    }

    pub(crate) async fn new_render<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        base: RenderBase,
        bodies: &[(&str, B)],
    ) -> NewRender {
        NewRender { base, timestamp: None, if_latest: None, properties: self.stage(page, bodies).await }
    }

    /// Stores a render that is based on the newest render of its revision.
    pub(crate) async fn put_render<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        number: i64,
        bodies: &[(&str, B)],
    ) -> Result<Written> {
        self.put_render_on(page, RenderBase::Revision(rev(number)), bodies).await
    }

    pub(crate) async fn put_render_on<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        base: RenderBase,
        bodies: &[(&str, B)],
    ) -> Result<Written> {
        self.buckets.put_render(page, self.new_render(page, base, bodies).await).await
    }

    pub(crate) async fn put_render_at<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        number: i64,
        timestamp: Timestamp,
        bodies: &[(&str, B)],
    ) -> Result<Written> {
        let new = self.new_render(page, RenderBase::Revision(rev(number)), bodies).await;
        self.buckets.put_render(page, NewRender { timestamp: Some(timestamp), ..new }).await
    }

    pub(crate) async fn rewrite(
        &self,
        page: &Page,
        tid: Tid,
        property: &str,
        body: impl AsRef<[u8]>,
    ) -> Result<PropertyVersion> {
        self.rewrite_if(page, tid, property, body, Expect::Any).await
    }

    pub(crate) async fn rewrite_if(
        &self,
        page: &Page,
        tid: Tid,
        property: &str,
        body: impl AsRef<[u8]>,
        expect: Expect,
    ) -> Result<PropertyVersion> {
        let property = self.stage(page, &[(property, body)]).await.remove(0);
        Ok(self.buckets.rewrite(page, tid, property, expect).await?.version)
    }

    /// The bytes of a property of a render. Panics if the render does not have the property.
    pub(crate) async fn read(&self, page: &Page, tid: Tid, property: &str) -> Vec<u8> {
        bytes(&self.buckets.property(page, tid, &name(property)).await.expect("the render has the property"))
            .await
    }

    /// The bytes of a property of the latest render. Panics if the render does not have the property.
    pub(crate) async fn read_latest(&self, page: &Page, property: &str) -> Vec<u8> {
        bytes(&self.buckets.latest(page, &name(property)).await.expect("the latest render has the property"))
            .await
    }

    /// The number of the latest revision. `None` if the page does not exist. Panics if the read fails.
    pub(crate) async fn latest_rev(&self, page: &Page) -> Option<i64> {
        match self.buckets.latest_render(page).await {
            Ok(render) => Some(render.record.rev.get()),
            Err(Error::NotFound(Missing::Page)) => None,
            Err(error) => panic!("the latest revision cannot be read: {error}"),
        }
    }

    pub(crate) async fn verify(&self) -> VerifyReport {
        rashomon_pages::operations::verify(&self.buckets, &mut |_| {}).await.expect("the store answers")
    }

    /// Panics if `verify` finds a problem. Returns its counts.
    pub(crate) async fn assert_consistent(&self) -> VerifyReport {
        let report = self.verify().await;
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!(report.more_problems, 0);
        report
    }

    /// All rows of a table that are not damaged.
    pub(crate) async fn rows(&self, table: &'static Schema) -> Vec<Row> {
        let limit = std::num::NonZeroUsize::new(1000).expect("not zero");
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let partitions = self.store.partitions(table, after, limit).await.expect("the store answers");
            for partition in partitions.items {
                let mut cursor = None;
                loop {
                    let scan = Scan::new(partition.clone(), limit).after(cursor);
                    let page =
                        self.store.scan(table, scan.reporting_damage()).await.expect("the store answers");
                    rows.extend(page.items);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
            }
            after = partitions.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    /// All rows of a table that are not damaged, with named columns.
    pub(crate) async fn typed_rows<T: TypedRow>(&self) -> Vec<T> {
        self.rows(T::table()).await.iter().map(|row| T::from_row(row).unwrap()).collect()
    }

    /// The keys of all rows of a table that are not damaged.
    pub(crate) async fn keys<K: RowKey>(&self) -> Vec<K> {
        self.rows(K::table()).await.iter().map(|row| K::of(row).unwrap()).collect()
    }

    /// All rows of the store as text, without the times at which they were stored. Tests use this to compare two
    /// stores, or a store before and after a call.
    pub(crate) async fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in schemas::all() {
            let columns: Vec<_> = table.values().iter().map(|column| column.name).collect();
            for row in self.rows(table).await {
                let values: Vec<_> = (columns.iter().zip(&row.values))
                    .filter(|(column, _)| !matches!(**column, "stored_at" | "noted_at"))
                    .collect();
                lines.push(format!("{} {:?} {values:?}", table.name(), row.key));
            }
        }
        lines
    }
}

/// The bytes of a property, inline or in chunks.
pub(crate) async fn bytes(property: &Property) -> Vec<u8> {
    property.body.clone().whole().await.expect("the chunks are in the store").to_vec()
}

/// Makes two tests of each function, on several threads: in the store that the environment names (memory by default),
/// and in SQLite. When `cargo xtask test` runs the tests on a node of Cassandra, it skips the modules `in_sqlite` and
/// `in_memory`.
macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod in_the_named_store {
            use crate::support::World;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                super::$test(World::new().await).await;
            })+
        }

        mod in_sqlite {
            use crate::support::World;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                super::$test(World::in_sqlite().await).await;
            })+
        }
    };
}
pub(crate) use on_every_store;

/// The record of an imported revision, with a number and a time.
pub(crate) fn record(number: i64, timestamp: Timestamp) -> RevisionRecord {
    RevisionRecord {
        rev: rev(number),
        parent: (number > 1).then(|| Parent::Revision(rev(number - 1))),
        timestamp,
        user: Some("Ann".to_owned()),
        comment: Some(format!("edit {number}")),
        minor: number % 3 == 0,
        export: rashomon_pages::ExportRecord::default(),
        erased: None,
    }
}

impl World {
    /// A revision to import, as an XML export has it: with wikitext, and with one render that has no properties
    /// of its own.
    pub(crate) async fn imported_revision(
        &self,
        page: &Page,
        number: i64,
        timestamp: Timestamp,
        wikitext: &[u8],
    ) -> ImportRevision {
        ImportRevision {
            record: record(number, timestamp),
            properties: self.properties_without_rewrite_time(page, &[("wikitext", wikitext)]).await,
            renders: vec![ImportRender {
                tid: Tid::imported(page, rev(number), timestamp),
                properties: Vec::new(),
            }],
        }
    }

    /// Stages properties to import that were never rewritten.
    pub(crate) async fn properties_without_rewrite_time<B: AsRef<[u8]>>(
        &self,
        page: &Page,
        bodies: &[(&str, B)],
    ) -> Vec<(NewProperty, Option<Timestamp>)> {
        self.stage(page, bodies).await.into_iter().map(|property| (property, None)).collect()
    }
}

/// Settings for `cases` cases of a random test. A Cassandra node runs fewer, since each case takes longer
/// there. A failing case is printed, and not kept in a file.
pub(crate) fn cases(cases: u32) -> proptest::test_runner::Config {
    let cases = if runs_on_cassandra() { cases.div_ceil(20) } else { cases };
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}

/// Runs the body of a random test.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test)
}
