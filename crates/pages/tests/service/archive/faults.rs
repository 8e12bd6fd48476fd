//! Seals and compactions that are interrupted at every step, or that run twice at the same time.

use std::{collections::BTreeSet, sync::Arc};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{Page, Settings, schemas};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan};

use super::{idle::idle_settings, seal_delay, settings};
use crate::support::{AnyStore, Cluster, IndexRow, START, World, name, page, rev};

/// A test world whose store calls fail according to a plan.
async fn world(clustered: bool) -> (World, Arc<Faulty<AnyStore>>) {
    world_with(clustered, settings()).await
}

async fn world_with(clustered: bool, settings: Settings) -> (World, Arc<Faulty<AnyStore>>) {
    let clock = Arc::new(ManualClock::new(START));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let store: AnyStore = if clustered { Arc::new(Cluster::new(memory)) } else { Arc::new(memory) };
    let faulty = Arc::new(Faulty::new(store, Plan::empty()));
    let world = World::on(Arc::clone(&faulty) as AnyStore, clock, settings, 1).await;
    (world, faulty)
}

/// After any failed call, whether the call happened or not, the pages are read as before, and the next seal
/// succeeds.
#[tokio::test]
async fn interrupted_seal_loses_nothing() {
    assert_interrupted_seal_loses_nothing(false, settings()).await;
}

/// The same test for a seal of revisions that were written again after an earlier seal.
#[tokio::test]
async fn interrupted_second_seal_loses_nothing() {
    assert_interrupted_seal_loses_nothing(true, settings()).await;
}

/// The same test for a seal of idle pages with their latest revisions.
#[tokio::test]
async fn interrupted_seal_of_idle_pages_loses_nothing() {
    assert_interrupted_seal_loses_nothing(true, idle_settings()).await;
}

async fn assert_interrupted_seal_loses_nothing(written_since: bool, settings: Settings) {
    for clustered in [false, true] {
        for call in [Call::Get, Call::Scan, Call::Write] {
            let faults = [Fault::Before, Fault::After, Fault::Midway { batches: 1 }];
            // A read that fails changes nothing, so one kind of fault is enough.
            for fault in faults.into_iter().take(if call == Call::Write { 3 } else { 1 }) {
                for number in 1.. {
                    let (world, faulty) = world_with(clustered, settings.clone()).await;
                    let (one, two) = (page("Main_Page"), page("Other"));
                    world.edit(&one, 1..=4).await;
                    world.edit(&two, 1..=3).await;
                    world.pass(seal_delay());
                    if written_since {
                        world.seal_and_write_again(&one).await;
                    }
                    let before = (world.read_everything(&one).await, world.read_everything(&two).await);
                    // The new process has read nothing, so that the pages may be idle.
                    let world = world.reopened().await;
                    faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                    let interrupted = world.try_seal().await;
                    faulty.set_plan(Plan::empty());
                    // After a restart nothing is in memory.
                    let world = world.reopened().await;
                    let what = format!("{call:?} {number} {fault:?}");
                    assert_eq!(
                        (world.read_everything(&one).await, world.read_everything(&two).await),
                        before,
                        "{what}"
                    );
                    world.assert_consistent().await;
                    let world = world.reopened().await;
                    world.seal().await;
                    let seals_whole_pages = settings.archive.as_ref().is_some_and(|it| it.idle.is_some());
                    let left = if seals_whole_pages { 0 } else { 2 };
                    assert_eq!(world.revisions_in_tables().await, left, "{what}");
                    assert_eq!(world.rows(&schemas::RENDERS).await.len(), left, "{what}");
                    assert_eq!(
                        (world.read_everything(&one).await, world.read_everything(&two).await),
                        before,
                        "{what}"
                    );
                    world.assert_consistent().await;
                    // Leftovers are collected, and nothing else. The garbage collection entry of a block
                    // stays if one page references the block and the other does not, since an erase has to
                    // find the block.
                    world.pass(seal_delay());
                    world.buckets.maintenance().collect_orphans(seal_delay()).await.unwrap();
                    assert!(world.rows(&schemas::ARCHIVE_NOTES).await.len() <= 1);
                    let world = world.reopened().await;
                    assert_eq!(
                        (world.read_everything(&one).await, world.read_everything(&two).await),
                        before,
                        "{what}"
                    );
                    if interrupted.is_ok() {
                        break;
                    }
                }
            }
        }
    }
}

/// After any failed call of a compaction, the pages are read as before, and the next compaction succeeds.
#[tokio::test]
async fn interrupted_compaction_loses_nothing() {
    for call in [Call::Scan, Call::Write] {
        let faults = [Fault::Before, Fault::After];
        for fault in faults.into_iter().take(if call == Call::Write { 2 } else { 1 }) {
            for number in 1.. {
                let (world, faulty) = world(true).await;
                world.seal_in_parts().await;
                let before = world.sample_reads_of_both_pages().await;
                faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                let interrupted = world.reopened().await.try_compact().await;
                faulty.set_plan(Plan::empty());
                let what = format!("{call:?} {number} {fault:?}");
                let world = world.reopened().await;
                assert_eq!(world.sample_reads_of_both_pages().await, before, "{what}");
                world.assert_consistent().await;
                world.compact().await;
                assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2, "{what}");
                assert_eq!(world.sample_reads_of_both_pages().await, before, "{what}");
                world.assert_consistent().await;
                // All unreferenced blocks are collected, and nothing else.
                world.pass(seal_delay());
                world.buckets.maintenance().collect_orphans(seal_delay()).await.unwrap();
                assert!(world.rows(&schemas::ARCHIVE_NOTES).await.len() <= 1);
                let index = world.typed_rows::<IndexRow>().await;
                let referenced: BTreeSet<_> = index.iter().map(|row| row.block).collect();
                assert_eq!(world.block_count().await, referenced.len(), "{what}");
                assert_eq!(world.reopened().await.sample_reads_of_both_pages().await, before, "{what}");
                if interrupted.is_ok() {
                    break;
                }
            }
        }
    }
}

/// One process halts at any step of its compaction, while another compacts and seals.
#[tokio::test]
async fn two_compactions_at_once_lose_nothing() {
    for call in [Call::Scan, Call::Write] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            let other = world.restarted_with(settings()).await;
            world.seal_in_parts().await;
            world.edit(&page("Main_Page"), 20..=22).await;
            world.pass(seal_delay());
            let before = world.sample_reads_of_both_pages().await;
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(call, number, Fault::Pause(gate.clone())));
            let mut first = std::pin::pin!(world.try_compact());
            tokio::select! {
                compacted = &mut first => {
                    compacted.unwrap();
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            other.compact().await;
            other.seal().await;
            assert_eq!(other.sample_reads_of_both_pages().await, before, "{call:?} {number}");
            gate.open();
            first.await.unwrap();
            let world = world.reopened().await;
            assert_eq!(world.sample_reads_of_both_pages().await, before, "{call:?} {number}");
            world.assert_consistent().await;
            world.compact().await;
            world.pass(seal_delay());
            world.buckets.maintenance().collect_orphans(seal_delay()).await.unwrap();
            let world = world.reopened().await;
            assert_eq!(world.sample_reads_of_both_pages().await, before, "{call:?} {number}");
            world.assert_consistent().await;
        }
    }
}

/// A page does not reference a block that was written too long ago, since the block may have been collected.
#[tokio::test]
async fn seal_or_compaction_that_takes_too_long_loses_nothing() {
    for compacts in [false, true] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            world.seal_in_parts().await;
            world.edit(&page("Main_Page"), 20..=22).await;
            world.pass(seal_delay());
            let before = world.sample_reads_of_both_pages().await;
            let other = world.restarted_with(settings()).await;
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(Call::Scan, number, Fault::Pause(gate.clone())));
            let work = async {
                if compacts { world.try_compact().await.map(drop) } else { world.try_seal().await.map(drop) }
            };
            let mut work = std::pin::pin!(work);
            tokio::select! {
                done = &mut work => {
                    done.unwrap();
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            world.pass(seal_delay());
            other.buckets.maintenance().collect_orphans(seal_delay() / 2).await.unwrap();
            gate.open();
            // The seal or compaction may return an error.
            drop(work.await);
            let world = world.reopened().await;
            assert_eq!(world.sample_reads_of_both_pages().await, before, "{number}");
            world.assert_consistent().await;
        }
    }
}

/// One process halts at any step of its seal, while another seals the same page.
#[tokio::test]
async fn two_seals_of_one_page_lose_nothing() {
    for call in [Call::Scan, Call::Write] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            let other = world.restarted_with(settings()).await;
            let page = page("Main_Page");
            world.edit(&page, 1..=5).await;
            world.pass(seal_delay());
            let before = world.read_everything(&page).await;
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(call, number, Fault::Pause(gate.clone())));
            let mut first = std::pin::pin!(world.try_seal());
            tokio::select! {
                sealed = &mut first => {
                    sealed.unwrap();
                    break;
                }
                () = gate.reached() => {}
            }
            other.seal().await;
            assert_eq!(other.read_everything(&page).await, before, "{call:?} {number}");
            gate.open();
            first.await.unwrap();
            assert_eq!(world.reopened().await.read_everything(&page).await, before, "{call:?} {number}");
            assert_eq!(world.revisions_in_tables().await, 1);
            world.assert_consistent().await;
        }
    }
}

impl World {
    async fn sample_reads_of_both_pages(&self) -> [Vec<String>; 2] {
        [self.sample_reads(&page("Main_Page")).await, self.sample_reads(&page("Other")).await]
    }

    /// Reads a part of a page with each kind of read.
    async fn sample_reads(&self, page: &Page) -> Vec<String> {
        let mut all = Vec::new();
        let listing = self.buckets.revisions(page, None, 3).await.unwrap();
        all.push(format!("{listing:?}"));
        let history = self.buckets.history(page, None, 100).await.unwrap();
        for revision in &history.items {
            let tid = revision.renders[0].tid;
            all.push(String::from_utf8(self.read(page, tid, "html").await).unwrap());
        }
        all.push(format!("{:?}", self.buckets.revision(page, rev(2)).await.unwrap()));
        let time = history.items[2].record.timestamp;
        all.push(format!("{:?}", self.buckets.at_time(page, time).await.unwrap()));
        let bodies = self.buckets.bodies(page, &name("wikitext"), rev(1), rev(100)).await.unwrap();
        all.push(format!("{:?}", bodies.keys()));
        all
    }
}

/// A page is sealed between any two steps of a reader.
#[tokio::test]
async fn page_is_readable_while_it_is_sealed() {
    for (call, after) in [(Call::Get, false), (Call::Get, true), (Call::Scan, false), (Call::Scan, true)] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            let other = world.restarted_with(settings()).await;
            let page = page("Main_Page");
            world.edit(&page, 1..=5).await;
            world.pass(seal_delay());
            let before = world.sample_reads(&page).await;
            let gate = Gate::new();
            let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
            faulty.set_plan(Plan::empty().on(call, number, fault));
            let mut reading = std::pin::pin!(world.sample_reads(&page));
            tokio::select! {
                read = &mut reading => {
                    assert_eq!(read, before);
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            assert_eq!(other.seal().await.revisions, 4);
            gate.open();
            assert_eq!(reading.await, before, "{call:?} {number} {after}");
        }
    }
}

/// The blocks of a page are compacted, and the old blocks collected, between any two steps of a reader.
#[tokio::test]
async fn page_is_readable_while_its_blocks_are_compacted() {
    for (call, after) in [(Call::Get, true), (Call::Scan, false), (Call::Scan, true)] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            world.seal_in_parts().await;
            let (world, other) = (world.reopened().await, world.restarted_with(settings()).await);
            let page = page("Main_Page");
            let before = world.sample_reads(&page).await;
            let world = world.reopened().await;
            let gate = Gate::new();
            let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
            faulty.set_plan(Plan::empty().on(call, number, fault));
            let mut reading = std::pin::pin!(world.sample_reads(&page));
            tokio::select! {
                read = &mut reading => {
                    assert_eq!(read, before);
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            assert_eq!(other.compact().await.parts, 6);
            other.pass(seal_delay());
            other.buckets.maintenance().collect_orphans(seal_delay() / 2).await.unwrap();
            assert_eq!(other.block_count().await, 1);
            gate.open();
            assert_eq!(reading.await, before, "{call:?} {number} {after}");
        }
    }
}
