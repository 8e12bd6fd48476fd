//! Writes to revisions that are sealed, or that are being sealed.

use std::sync::Arc;

use rashomon_pages::{Error, ImportOutcome, NewRevision, Parent, schemas};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan};

use super::{HOUR, hour, seal_delay, settings, with_archive};
use crate::support::{AnyStore, Cluster, World, name, on_every_store, page, rev};

on_every_store! {
    repeat_of_a_sealed_revision_is_recognized,
    late_revision_is_listed_between_sealed_ones,
    sealed_render_can_be_rewritten,
    writes_after_a_seal_are_sealed_by_the_next,
}

async fn repeat_of_a_sealed_revision_is_recognized(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut written = Vec::new();
    world.pass(10 * HOUR);
    for number in 1..=4 {
        let text = format!("text {number}");
        written
            .push(world.put_revision_at(&page, number, hour(number), &[("wikitext", &text)]).await.unwrap());
        world.pass(HOUR);
    }
    let render = world.put_render_at(&page, 2, hour(3), &[("html", "<p>two</p>")]).await.unwrap();
    let history = world.imported_revision(&page, 1000, hour(3), b"text 1000").await;
    let before = world.imported_revision(&page, 10, hour(3), b"text 10").await;
    world.buckets.import(&page, vec![before.clone(), history]).await.unwrap();
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 5);

    let again = world.put_revision_at(&page, 2, hour(2), &[("wikitext", "text 2")]).await.unwrap();
    assert_eq!((again.tid, again.created), (written[1].tid, false));
    let other = world.put_revision_at(&page, 2, hour(2), &[("wikitext", "other")]).await;
    assert!(matches!(other, Err(Error::Conflict(_))), "{other:?}");
    let again = world.put_render_at(&page, 2, hour(3), &[("html", "<p>two</p>")]).await.unwrap();
    assert_eq!((again.tid, again.created), (render.tid, false));
    let other = world.put_render_at(&page, 2, hour(3), &[("html", "other")]).await;
    assert!(matches!(other, Err(Error::Conflict(_))), "{other:?}");
    assert_eq!(world.buckets.import(&page, vec![before]).await.unwrap(), [ImportOutcome::Unchanged]);
    let stale = NewRevision {
        if_latest: Some(Parent::Revision(rev(3))),
        ..world.new_revision(&page, 20, &[("wikitext", "late")]).await
    };
    assert!(matches!(world.buckets.put_revision(&page, stale).await, Err(Error::NotLatest { .. })));
    world.assert_consistent().await;
}

async fn late_revision_is_listed_between_sealed_ones(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for number in [1, 2, 5, 9] {
        world.edit(&page, number..=number).await;
    }
    world.pass(seal_delay());
    world.seal().await;
    world.put_revision_at(&page, 4, hour(2), &[("wikitext", "four")]).await.unwrap();
    let listed = world.buckets.revisions(&page, None, 100).await.unwrap();
    let revs: Vec<_> = listed.items.iter().map(|line| line.record.rev.get()).collect();
    assert_eq!(revs, [9, 5, 4, 2, 1]);
    let before = world.read_everything(&page).await;
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(world.revisions_in_tables().await, 1);
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

async fn sealed_render_can_be_rewritten(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=3).await;
    world.pass(seal_delay());
    world.seal().await;
    let version = world.rewrite(&page, tids[0], "html", "<p>better</p>").await.unwrap();
    assert_eq!(version.tid, tids[0]);
    assert_eq!(world.read(&page, tids[0], "html").await, b"<p>better</p>");
    assert_eq!(world.read(&page, tids[0], "wikitext").await, super::text(1).into_bytes());
    let read = world.buckets.property(&page, tids[0], &name("html")).await.unwrap();
    assert_eq!(read.version, version);
    world.assert_consistent().await;
}

/// Renders that were added to sealed revisions, and bodies that were rewritten in sealed revisions, are
/// sealed later.
async fn writes_after_a_seal_are_sealed_by_the_next(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    let late = world.put_render(&page, 1, &[("html", "<p>late</p>")]).await.unwrap();
    world.pass(HOUR);
    world.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
    world.rewrite(&page, tids[2], "wikitext", "better").await.unwrap();
    world.put_render(&page, 3, &[("html", "<p>of better</p>")]).await.unwrap();
    let before = world.read_everything(&page).await;
    assert_eq!(world.seal().await.revisions, 0, "the writes are too young");
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 3);
    for world in [&world, &world.reopened().await] {
        assert_eq!(world.read_everything(&page).await, before);
        assert_eq!(world.read(&page, late.tid, "html").await, b"<p>late</p>");
        for table in
            [&schemas::REVISIONS, &schemas::RENDERS, &schemas::RENDER_CONTENT, &schemas::REVISION_CONTENT]
        {
            assert_eq!(world.rows(table).await.len(), 1, "{}: the latest", table.name());
        }
        world.assert_consistent().await;
    }
    assert_eq!(world.seal().await.revisions, 0, "nothing is left to be sealed");
    world.compact().await;
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

/// Writes to a page between any two steps of its seal. No acknowledged write is lost, and no replaced value
/// comes back.
async fn assert_write_during_a_seal_is_kept(store: impl Fn(Memory) -> AnyStore, written_since: bool) {
    for call in [Call::Scan, Call::Write] {
        for number in 1.. {
            let clock = Arc::new(rashomon_clock::ManualClock::new(crate::support::START));
            let memory = Memory::new(Arc::clone(&clock) as Arc<dyn rashomon_clock::Clock>);
            let faulty = Arc::new(Faulty::new(store(memory), Plan::empty()));
            let world = World::on(Arc::clone(&faulty) as AnyStore, Arc::clone(&clock), settings(), 1).await;
            let other = World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 2).await;
            let page = page("Main_Page");
            let tids = world.edit(&page, 1..=5).await;
            world.pass(seal_delay());
            if written_since {
                world.seal_and_write_again(&page).await;
            }
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(call, number, Fault::Pause(gate.clone())));
            let mut sealing = std::pin::pin!(world.try_seal());
            tokio::select! {
                sealed = &mut sealing => {
                    sealed.unwrap();
                    assert!(number > 3, "{call:?}");
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            other.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
            other.put_render(&page, 3, &[("html", "<p>again</p>")]).await.unwrap();
            other.put_revision_at(&page, 100, hour(1), &[("wikitext", "hundred")]).await.unwrap();
            gate.open();
            sealing.await.unwrap();
            let world = world.reopened().await;
            assert_eq!(world.read(&page, tids[1], "html").await, b"<p>better</p>", "{call:?} {number}");
            assert_eq!(world.read(&page, tids[1], "wikitext").await, super::text(2).into_bytes());
            let third = world.buckets.revision(&page, rev(3)).await.unwrap();
            assert_eq!(third.renders.len(), 2, "{call:?} {number}");
            let before = world.read_everything(&page).await;
            world.pass(seal_delay());
            world.seal().await;
            assert_eq!(
                world.rows(&schemas::RENDERS).await.len(),
                1,
                "{call:?} {number}: all but the latest are sealed"
            );
            assert_eq!(world.read_everything(&page).await, before, "{call:?} {number}");
            assert_eq!(world.latest_rev(&page).await, Some(100));
            assert_eq!(world.assert_consistent().await.revisions, 6, "{call:?} {number}");
        }
    }
}

/// A page is written to between any two steps of a compaction of its blocks.
#[tokio::test]
async fn write_during_a_compaction_is_kept() {
    for call in [Call::Scan, Call::Write] {
        for number in 1.. {
            let clock = Arc::new(rashomon_clock::ManualClock::new(crate::support::START));
            let memory = Memory::new(Arc::clone(&clock) as Arc<dyn rashomon_clock::Clock>);
            let faulty = Arc::new(Faulty::new(Arc::new(Cluster::new(memory)) as AnyStore, Plan::empty()));
            let world = World::on(Arc::clone(&faulty) as AnyStore, Arc::clone(&clock), settings(), 1).await;
            let other = World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 2).await;
            world.seal_in_parts().await;
            let page = page("Main_Page");
            let tid = world.buckets.revision(&page, rev(2)).await.unwrap().renders[0].tid;
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(call, number, Fault::Pause(gate.clone())));
            let mut compacting = std::pin::pin!(world.try_compact());
            tokio::select! {
                compacted = &mut compacting => {
                    compacted.unwrap();
                    assert!(number > 3, "{call:?}");
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            other.rewrite(&page, tid, "html", "<p>better</p>").await.unwrap();
            other.put_render(&page, 3, &[("html", "<p>again</p>")]).await.unwrap();
            other.put_revision_at(&page, 100, hour(1), &[("wikitext", "hundred")]).await.unwrap();
            gate.open();
            compacting.await.unwrap();
            let world = world.reopened().await;
            assert_eq!(world.read(&page, tid, "html").await, b"<p>better</p>", "{call:?} {number}");
            assert_eq!(world.read(&page, tid, "wikitext").await, super::text(2).into_bytes());
            assert_eq!(world.buckets.revision(&page, rev(3)).await.unwrap().renders.len(), 2);
            assert_eq!(world.latest_rev(&page).await, Some(100));
            world.assert_consistent().await;
        }
    }
}

#[tokio::test]
async fn write_during_a_seal_is_kept() {
    assert_write_during_a_seal_is_kept(|memory| Arc::new(memory), false).await;
}

#[tokio::test]
async fn write_of_another_process_during_a_seal_is_kept() {
    assert_write_during_a_seal_is_kept(|memory| Arc::new(Cluster::new(memory)), false).await;
}

#[tokio::test]
async fn write_during_a_second_seal_is_kept() {
    assert_write_during_a_seal_is_kept(|memory| Arc::new(memory), true).await;
    assert_write_during_a_seal_is_kept(|memory| Arc::new(Cluster::new(memory)), true).await;
}
