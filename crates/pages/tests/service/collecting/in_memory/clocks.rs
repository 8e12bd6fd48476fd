//! A clock jumps while a large body is received, or during a seal, before the page references its new block.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{Error, NewProperty, NewRevision, Page, Settings, schemas};
use rashomon_tables::{Call, Error as StoreError, Fault, Faulty, Gate, Memory, Plan};

use crate::{
    archive::{DAY, HOUR, seal_delay, settings},
    support::{AnyStore, Cluster, START, World, bytes, name, noise, page, rev},
};

/// How far clocks jump: by more than the age at which chunks are collected.
const JUMP: Duration = Duration::from_secs(3 * 24 * 3600);

fn later_by(clock: &ManualClock, by: Duration) -> Timestamp {
    clock.now().saturating_add(by)
}

/// Two processes on one store, with a clock each.
async fn two_processes() -> (World, World) {
    let clocks = [ManualClock::new(START), ManualClock::new(START)].map(Arc::new);
    let memory = Memory::new(Arc::clone(&clocks[0]) as Arc<dyn Clock>);
    let store: AnyStore = Arc::new(Cluster::new(memory));
    let [one, other] = clocks;
    let one = World::on(Arc::clone(&store), one, Settings::default(), 1).await;
    (one, World::on(store, other, Settings::default(), 2).await)
}

/// Receives a large body, runs `meanwhile` before its last chunk, and stores the body.
async fn upload(world: &World, page: &Page, meanwhile: impl AsyncFnOnce()) -> rashomon_pages::Result<()> {
    let body = noise(1, 2_500_000);
    let (first, second) = body.split_at(2_100_000);
    let mut sink = world.buckets.stage(page, &name("html"));
    sink.write(first).await?;
    assert!(!world.rows(&schemas::CHUNKS).await.is_empty(), "some chunks are in the store");
    meanwhile().await;
    sink.write(second).await?;
    let html = NewProperty {
        name: name("html"),
        content_type: None,
        other_headers: std::collections::BTreeMap::new(),
        body: sink.finish().await?,
    };
    world.buckets.put_revision(page, NewRevision::new(rev(1), vec![html])).await.map(drop)
}

/// Panics if a write was acknowledged and its body is missing, or if it was refused and the page exists.
async fn assert_all_or_nothing(world: &World, page: &Page, stored: rashomon_pages::Result<()>) {
    match stored {
        Ok(()) => {
            let latest = world.buckets.latest(page, &name("html")).await.unwrap();
            assert!(bytes(&latest).await == noise(1, 2_500_000));
        }
        Err(Error::Store(StoreError::Unavailable(_))) => {
            assert_eq!(world.latest_rev(page).await, None);
        }
        Err(error) => panic!("{error}"),
    }
    world.assert_consistent().await;
}

#[tokio::test]
async fn jump_during_an_upload_loses_no_chunks() {
    let world = World::in_memory().await;
    let page = page("Main_Page");
    let stored = upload(&world, &page, async || {
        world.clock.set(later_by(&world.clock, JUMP));
        assert_eq!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 0);
    });
    assert_all_or_nothing(&world, &page, stored.await).await;
}

#[tokio::test]
async fn jump_in_another_process_loses_no_chunks() {
    let (one, other) = two_processes().await;
    let page = page("Main_Page");
    let stored = upload(&one, &page, async || {
        other.clock.set(later_by(&other.clock, JUMP));
        assert_eq!(other.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 0);
    })
    .await;
    assert!(stored.is_ok(), "the clock of the writing process is right");
    assert_all_or_nothing(&one, &page, stored).await;
}

/// A collector that starts after the jump deletes nothing either. The process that receives the body refuses to store
/// the body all the same, since it cannot know that.
#[tokio::test]
async fn upload_is_refused_if_all_clocks_jump_and_a_collector_starts_afterwards() {
    let (one, other) = two_processes().await;
    let page = page("Main_Page");
    let stored = upload(&one, &page, async || {
        for world in [&one, &other] {
            world.clock.set(later_by(&world.clock, JUMP));
        }
        assert_eq!(other.reopened().await.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 0);
    })
    .await;
    assert!(matches!(stored, Err(Error::Store(StoreError::Unavailable(_)))), "{stored:?}");
    assert_all_or_nothing(&one, &page, stored).await;
}

#[tokio::test]
async fn upload_that_takes_too_long_is_refused_by_either_clock() {
    for jumps_back in [false, true] {
        let world = World::in_memory().await;
        let page = page("Main_Page");
        let stored = upload(&world, &page, async || {
            world.pass(13 * HOUR);
            if jumps_back {
                world.clock.set(START);
            }
        })
        .await;
        assert!(matches!(stored, Err(Error::Store(StoreError::Unavailable(_)))), "{stored:?}");
        assert_all_or_nothing(&world, &page, stored).await;
    }
}

#[tokio::test]
async fn chunks_are_collected_when_their_time_has_passed_after_a_jump() {
    let world = World::in_memory().await;
    drop(world.stage(&page("Main_Page"), &[("html", noise(1, 2_500_000))]).await);
    world.clock.set(later_by(&world.clock, JUMP));
    world.pass(DAY - HOUR);
    assert_eq!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 0);
    world.pass(2 * HOUR);
    assert_eq!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 1);
}

/// A seal halts at a call of the store. Then the clocks of all processes jump, and another process collects
/// garbage.
#[tokio::test]
async fn jump_during_a_seal_loses_no_revision() {
    for restarts in [false, true] {
        for number in 1.. {
            let clock = Arc::new(ManualClock::new(START));
            let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
            let cluster: AnyStore = Arc::new(Cluster::new(memory));
            let faulty = Arc::new(Faulty::new(Arc::clone(&cluster), Plan::empty()));
            let world = World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 1).await;
            let other = World::on(cluster, Arc::clone(&world.clock), settings(), 2).await;
            let page = page("Main_Page");
            world.edit(&page, 1..=3).await;
            world.pass(seal_delay());
            let before = world.read_everything(&page).await;
            let gate = Gate::new();
            faulty.set_plan(Plan::empty().on(Call::Scan, number, Fault::Pause(gate.clone())));
            let mut seal = std::pin::pin!(world.try_seal());
            tokio::select! {
                sealed = &mut seal => {
                    sealed.unwrap();
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            world.clock.set(later_by(&world.clock, JUMP));
            let other = if restarts { other.reopened().await } else { other };
            other.buckets.maintenance().collect_orphans(DAY).await.unwrap();
            gate.open();
            match seal.await {
                Ok(_) | Err(Error::Store(StoreError::Unavailable(_) | StoreError::Corrupt(_))) => {}
                Err(error) => panic!("{error}"),
            }
            let world = world.reopened().await;
            assert_eq!(world.read_everything(&page).await, before, "restarts: {restarts}, {number}");
            world.assert_consistent().await;
        }
    }
}
