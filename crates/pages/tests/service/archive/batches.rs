//! In a store of a single process, other writers wait for each batch. So sealing, compaction and garbage
//! collection delete rows in batches of a bounded size, and an interruption between two batches loses nothing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{ArchivePolicy, MAX_PLACED_BYTES, MAX_PLACED_ROWS, Page, schemas};
use rashomon_records::{INDEX_PAGE_ROWS, content::CHUNK_SIZE};
use rashomon_tables::{
    Batch, Call, ClusteringRange, Decorator, Fault, Faulty, Key, Memory, Mutation, Plan, Result, Row,
    RowStream, Scan, Schema, Swap, TableStore,
};

use super::{DAY, idle::idle_settings, seal_delay, settings};
use crate::support::{START, World, name, noise, page, rev};

/// A store that measures how many rows a single write deletes or puts, and how many bytes it deletes.
#[derive(Debug)]
struct MeasuringStore {
    below: Memory,
    rows: AtomicUsize,
    bytes: AtomicU64,
}

impl MeasuringStore {
    fn new(below: Memory) -> Self {
        Self { below, rows: AtomicUsize::new(0), bytes: AtomicU64::new(0) }
    }

    /// Returns the greatest number of rows and of bytes of one write since the last call.
    fn take_greatest(&self) -> (usize, u64) {
        (self.rows.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    /// Measures the batches of one call.
    async fn measure(&self, batches: &[Batch]) -> Result<()> {
        let (mut rows, mut bytes) = (0, 0);
        for batch in batches {
            for mutation in &batch.mutations {
                let size = self.size(batch, mutation).await?;
                (rows, bytes) = (rows + size.0, bytes + size.1);
            }
        }
        self.rows.fetch_max(rows, Ordering::Relaxed);
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The rows that a mutation deletes or puts, and the bytes that it deletes.
    async fn size(&self, batch: &Batch, mutation: &Mutation) -> Result<(usize, u64)> {
        let (table, range, until) = match mutation {
            Mutation::Put { .. } => return Ok((1, 0)),
            Mutation::Delete { table, clustering, written_at } => {
                (*table, ClusteringRange::prefix(clustering.clone()), *written_at)
            }
            Mutation::DeleteRange { table, range, written_before } => {
                (*table, range.clone(), *written_before)
            }
        };
        let scan = Scan::new(batch.partition.clone(), INDEX_PAGE_ROWS).range(range);
        let mut rows = RowStream::new(&self.below, table, scan).collect().await?;
        rows.retain(|row| row.written_at <= until);
        Ok((rows.len(), rows.iter().map(|row| row.size() as u64).sum()))
    }
}

#[async_trait]
impl Decorator for MeasuringStore {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.below
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let batches: Vec<_> = first.iter().chain([&then]).cloned().collect();
        self.measure(&batches).await?;
        self.below.write(first, then).await
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.measure(&first).await?;
        self.below.swap(first, table, key, expected, new).await
    }
}

/// The number of index rows that a batch puts, beside the rows that it deletes.
const INDEX_ROWS: usize = 1;

/// The maximum number of bytes of a row without its body: keys, times, hashes.
const MAX_ROW_OVERHEAD_BYTES: u64 = 1_024;

impl World {
    /// Writes a page whose seal deletes rows in several batches: revisions of a few bytes, revisions with large
    /// renders, and a revision with many renders.
    async fn write_large_page(&self, page: &Page, revisions: i64, large_every: i64, renders: i64) {
        for number in 1..=revisions {
            let html = match number % large_every {
                0 => noise(number as u64, 60_000),
                _ => format!("<p>{number}</p>").into_bytes(),
            };
            let written =
                self.put_revision(page, number, &[("wikitext", b"text".to_vec()), ("html", html)]).await;
            let tid = written.unwrap().tid;
            self.pass(std::time::Duration::from_secs(1));
            if number == revisions / 2 {
                // The copies have earlier tids than the render that is copied.
                self.copy_render(page, tid, number, renders).await;
            }
        }
    }

    /// The records and the renders of a page, with the size and the SHA-1 of each body.
    async fn contents(&self, page: &Page) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let listing = self.buckets.revisions(page, after, 1_000).await.unwrap();
            for line in &listing.items {
                let detail = self.buckets.revision(page, line.record.rev).await.unwrap();
                all.push(format!("{:?}", detail.record));
                for render in detail.renders {
                    all.push(format!("{} {:?}", render.tid, render.properties));
                }
            }
            after = listing.next;
            if after.is_none() {
                return all;
            }
        }
    }
}

/// A bound limits the rows and bytes that a batch deletes. Without the bound, one batch would delete all rows
/// of a full block.
#[tokio::test]
async fn seal_of_a_large_page_takes_bounded_batches() {
    let (world, store) = World::over_memory(MeasuringStore::new).await;
    let world = world.restarted_with(settings()).await;
    let main = page("Main_Page");
    world.write_large_page(&main, 2_500, 10, 600).await;
    world.pass(seal_delay());
    let before = world.contents(&main).await;
    store.take_greatest();
    let sealed = world.seal().await;
    let (rows, bytes) = store.take_greatest();
    assert_eq!(sealed.revisions, 2_499, "{sealed:?}");
    assert_eq!(world.revisions_in_tables().await, 1);
    assert_eq!(world.rows(&schemas::RENDERS).await.len(), 1);
    assert!(rows <= MAX_PLACED_ROWS + INDEX_ROWS, "{rows} rows in one batch");
    // The batches are not needlessly small.
    assert!(rows > MAX_PLACED_ROWS / 2, "{rows} rows in one batch");
    let most = MAX_PLACED_BYTES + MAX_PLACED_ROWS as u64 * MAX_ROW_OVERHEAD_BYTES;
    assert!(bytes <= most && bytes > MAX_PLACED_BYTES / 4, "{bytes} bytes in one batch");
    assert_eq!(world.contents(&main).await, before);
    world.assert_consistent().await;

    // The latest revision of an idle page may have as many renders.
    let idle = page("Idle");
    world.put_revision(&idle, 1, &[("wikitext", "text")]).await.unwrap();
    let tid = world.put_render(&idle, 1, &[("html", "<p>1</p>")]).await.unwrap().tid;
    world.copy_render(&idle, tid, 1, 600).await;
    world.pass(seal_delay());
    let before = world.contents(&idle).await;
    let world = world.restarted_with(idle_settings()).await;
    store.take_greatest();
    world.seal().await;
    world.assert_sealed_whole().await;
    let (rows, _) = store.take_greatest();
    assert!(rows <= MAX_PLACED_ROWS + INDEX_ROWS, "{rows} rows in one batch");
    assert_eq!(world.contents(&idle).await, before);
    world.assert_consistent().await;
}

/// The maximum number of bytes that a batch of the collector deletes: four pieces of a block, or four chunks.
const MAX_COLLECTED_BYTES: u64 = 4 * (1 << 20) + 4 * MAX_ROW_OVERHEAD_BYTES;

/// The chunks of a large body are deleted in several batches.
#[tokio::test]
async fn garbage_collection_of_chunks_takes_bounded_batches() {
    let (world, store) = World::over_memory(MeasuringStore::new).await;
    let large = page("Large");
    let tid = world.put_revision(&large, 1, &[("html", noise(7, 10 * CHUNK_SIZE))]).await.unwrap().tid;
    world.rewrite(&large, tid, "html", "small").await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 10);
    world.pass(seal_delay());
    store.take_greatest();
    assert_eq!(world.buckets.maintenance().collect_orphans(seal_delay() / 2).await.unwrap(), 1);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
    let (_, bytes) = store.take_greatest();
    assert!(bytes <= MAX_COLLECTED_BYTES && bytes > MAX_COLLECTED_BYTES / 2, "{bytes} bytes in one batch");
    world.assert_consistent().await;
}

/// A large block is deleted in several batches. If the process ends while it writes the pieces of a block, or
/// while it deletes them, `verify` accepts the remaining pieces, which no page needs, and the next run of the
/// collector deletes these pieces.
#[tokio::test]
async fn interrupted_write_or_delete_of_a_large_block_is_completed() {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(MeasuringStore::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
    let faulty = Arc::new(Faulty::new(Arc::clone(&store) as Arc<dyn TableStore>, Plan::empty()));
    let world = World::on(Arc::clone(&faulty) as Arc<dyn TableStore>, clock, settings(), 1).await;
    let main = page("Main_Page");
    // A revision is never split between blocks, however large it is. This block has seven pieces.
    let large = [("html", noise(1, 3_400_000)), ("meta", noise(2, 3_400_000))];
    world.put_revision(&main, 1, &large).await.unwrap();
    world.put_revision(&main, 2, &[("html", "small")]).await.unwrap();
    world.pass(seal_delay());
    let before = world.contents(&main).await;
    let fail_at = |number| faulty.set_plan(Plan::empty().on(Call::Write, number, Fault::Before));
    let pieces = async || world.rows(&schemas::ARCHIVE_BLOCKS).await.len();
    let collect = async || {
        world.pass(seal_delay());
        world.buckets.maintenance().collect_orphans(seal_delay() / 2).await
    };
    // The first write is the garbage collection entry of the block, and the next ones are its pieces.
    fail_at(4);
    world.try_seal().await.unwrap_err();
    assert_eq!(pieces().await, 2);
    world.assert_consistent().await;
    fail_at(u64::MAX);
    collect().await.unwrap();
    assert_eq!(pieces().await, 0);

    // The block is complete, and no page references it.
    fail_at(9);
    world.try_seal().await.unwrap_err();
    let all = pieces().await;
    assert_eq!(all, 7, "pieces");
    world.assert_consistent().await;
    fail_at(2);
    store.take_greatest();
    collect().await.unwrap_err();
    assert_eq!(pieces().await, all - 4);
    world.assert_consistent().await;
    fail_at(u64::MAX);
    collect().await.unwrap();
    let (_, bytes) = store.take_greatest();
    assert!(bytes <= MAX_COLLECTED_BYTES && bytes > MAX_COLLECTED_BYTES / 2, "{bytes} bytes in one batch");
    assert_eq!((pieces().await, world.rows(&schemas::ARCHIVE_NOTES).await.len()), (0, 0));
    world.seal().await;
    assert_eq!(world.contents(&main).await, before);
    world.assert_consistent().await;
}

/// The number of revisions and of additional renders with which a seal takes several batches: some of whole
/// revisions, and some of the renders of one revision.
const REVISIONS: i64 = 60;
const RENDERS: i64 = 200;

/// The process ends before, after, or in the middle of any write of a seal. Every revision is read as before,
/// even after late writes to revisions that are partly deleted. The next seal completes the work.
#[tokio::test]
async fn seal_that_ends_between_two_batches_loses_nothing() {
    for (settings, left) in [(settings(), 1), (idle_settings(), 0)] {
        let mut writes = 0;
        for fault in [Fault::Before, Fault::After, Fault::Midway { batches: 1 }] {
            for number in 1.. {
                let clock = Arc::new(ManualClock::new(START));
                let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
                let faulty = Arc::new(Faulty::new(memory, Plan::empty()));
                let world =
                    World::on(Arc::clone(&faulty) as Arc<dyn TableStore>, clock, settings.clone(), 1).await;
                let main = page("Main_Page");
                world.write_large_page(&main, REVISIONS, 20, RENDERS).await;
                world.pass(seal_delay());
                let before = world.contents(&main).await;
                let world = world.reopened().await;
                faulty.set_plan(Plan::empty().on(Call::Write, number, fault.clone()));
                let interrupted = world.try_seal().await;
                faulty.set_plan(Plan::empty());
                let world = world.reopened().await;
                let what = format!("write {number}, {fault:?}");
                assert_eq!(world.contents(&main).await, before, "{what}");
                world.assert_consistent().await;

                // Late writes: a render of the revision with many renders, and a body of another revision.
                let rendered = REVISIONS / 2;
                let late = world.put_render(&main, rendered, &[("html", "<p>late</p>")]).await.unwrap().tid;
                let other = world.buckets.revision(&main, rev(7)).await.unwrap().renders[0].tid;
                world.rewrite(&main, other, "html", "<p>in other words</p>").await.unwrap();
                world.pass(seal_delay());
                let with_late = world.contents(&main).await;
                let world = world.reopened().await;
                world.seal().await;
                assert_eq!(world.revisions_in_tables().await, left, "{what}");
                assert_eq!(world.rows(&schemas::RENDERS).await.len(), left, "{what}");
                let world = world.reopened().await;
                assert_eq!(world.contents(&main).await, with_late, "{what}");
                assert_eq!(world.read(&main, late, "html").await, b"<p>late</p>", "{what}");
                assert_eq!(world.read(&main, other, "html").await, b"<p>in other words</p>", "{what}");
                world.assert_consistent().await;
                // Leftovers are collected, and nothing else.
                world.pass(seal_delay());
                world.buckets.maintenance().collect_orphans(seal_delay()).await.unwrap();
                let world = world.reopened().await;
                assert_eq!(world.contents(&main).await, with_late, "{what}");
                world.assert_consistent().await;
                if interrupted.is_ok() {
                    writes = writes.max(number);
                    break;
                }
            }
        }
        // A seal writes an entry, the pieces of the block, and several batches of the page, and deletes the entry.
        assert!(writes > 6, "{writes} writes");
    }
}

/// Seals a page twice, into blocks that overlap. The policy keeps one render a day. The process ends after write
/// `number` of the second seal, and another process seals the rest. Returns the revisions whose html is kept, and
/// whether the second seal was interrupted.
async fn kept_after_interruption(number: u64) -> (Vec<i64>, bool) {
    let mut settings = settings();
    settings.archive.as_mut().unwrap().all.policy = ArchivePolicy::Interval(DAY);
    let clock = Arc::new(ManualClock::new(START));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let faulty = Arc::new(Faulty::new(memory, Plan::empty()));
    let world = World::on(Arc::clone(&faulty) as Arc<dyn TableStore>, clock, settings, 1).await;
    let main = page("Main_Page");
    let put = async |number: i64| {
        world.put_revision(&main, number, &[("html", format!("<p>{number}</p>"))]).await.unwrap();
    };
    for number in [1, 2_000, 2_001] {
        put(number).await;
    }
    world.pass(seal_delay());
    world.seal().await;
    for numbers in [9..51, 51..109] {
        for number in numbers {
            put(number).await;
        }
        world.pass(5 * DAY);
    }
    let world = world.reopened().await;
    faulty.set_plan(Plan::empty().on(Call::Write, number, Fault::After));
    let is_interrupted = world.try_seal().await.is_err();
    faulty.set_plan(Plan::empty());
    let world = world.reopened().await;
    world.seal().await;
    let world = world.reopened().await;
    world.assert_consistent().await;
    let mut kept = Vec::new();
    for number in (1..109).chain([2_000, 2_001]) {
        if world.buckets.newest_with(&main, rev(number), &name("html")).await.is_ok() {
            kept.push(number);
        }
    }
    (kept, is_interrupted)
}

/// The policy `interval` compares renders with those that earlier blocks keep. Revisions that an interrupted seal
/// leaves in the tables are in its block too, and must not be compared with the block itself.
#[tokio::test]
async fn seal_that_ends_between_two_batches_leaves_out_no_kept_render() {
    let (kept, _) = kept_after_interruption(u64::MAX).await;
    assert!(kept.len() >= 4, "one render of each day: {kept:?}");
    let mut interruptions = 0;
    for number in 1.. {
        // The order of two blocks is random, so each write is interrupted four times.
        for _ in 0..4 {
            let (kept_then, is_interrupted) = kept_after_interruption(number).await;
            let lost: Vec<_> = kept.iter().filter(|rev| !kept_then.contains(rev)).collect();
            assert!(lost.is_empty(), "write {number}: {lost:?} are left out");
            interruptions += u32::from(is_interrupted);
            if !is_interrupted {
                // The seal has at least five writes: an entry, the block, two batches, and the delete of the entry.
                assert!(interruptions >= 20, "{interruptions} interruptions");
                return;
            }
        }
    }
}
