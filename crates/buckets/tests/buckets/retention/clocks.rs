//! Clocks that jump, or differ (R8).

use std::{sync::Arc, time::Duration};

use rashomon_buckets::{NewRevision, Parent, Policy};
use rashomon_clock::Clock as _;
use rashomon_tables::{Call, Fault, Faulty, Plan};

use crate::{
    retention::{DAY, HOUR, SECOND, STRATEGIES, by, policy, retaining},
    support::{AnyStore, Cluster, START, World, on_every_store, page, rev},
};

on_every_store![
    after_a_jump_of_the_clock_nothing_goes_for_a_grace,
    what_was_written_after_the_clock_was_set_back_goes,
    what_was_culled_before_the_clock_was_set_back_hides_nothing,
    after_a_jump_that_another_saw_nothing_goes_for_a_grace,
    what_was_culled_before_the_clock_was_set_back_while_nobody_ran_hides_nothing,
    what_a_clock_wrote_that_is_ahead_goes_too,
    what_a_clock_culled_that_is_ahead_keeps_nothing_back,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

async fn after_a_jump_of_the_clock_nothing_goes_for_a_grace(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    world.sweep().await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(HOUR);
    // Held against each other once, so that the jump is seen.
    world.sweep().await;
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert!(world.sweep().await.paused);
    world.assert_stored(first.tid, "html", true).await;
    // By the clock as it is set now it was due long ago: whoever watches is told so.
    let watched = world.buckets.retention_stats();
    assert!(watched.paused && watched.overdue > 28 * DAY, "{watched:?}");
    world.pass(DAY + SECOND);
    assert!(!world.sweep().await.paused);
    world.assert_stored(first.tid, "html", false).await;
    let watched = world.buckets.retention_stats();
    assert!(!watched.paused && watched.overdue.is_zero(), "{watched:?}");
}

/// R8, for who begins after it: what was kept before he began counts.
async fn after_a_jump_that_another_saw_nothing_goes_for_a_grace(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.sweep().await;
    world.clock.set(world.clock.now().saturating_add(20 * DAY));
    world.sweep().await;
    world.pass(HOUR);
    let world = world.reopened().await;
    world.pass(DAY - HOUR - SECOND);
    assert!(world.sweep().await.paused);
    world.assert_stored(first.tid, "html", true).await;
    // Of which the clock of who saw it may be behind.
    world.pass(policy().skew + 2 * SECOND);
    assert!(!world.sweep().await.paused);
    world.assert_stored(first.tid, "html", false).await;
}

async fn what_was_written_after_the_clock_was_set_back_goes(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    world.sweep().await;
    world.clock.set(world.clock.now().saturating_sub(30 * DAY));
    world.sweep().await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

/// R8: what is written again where something was culled by a later clock can be read.
async fn what_was_culled_before_the_clock_was_set_back_hides_nothing(world: World) {
    hides_nothing(retaining(world, policy()).await, SetBack::WhileItRuns).await;
}

/// R8, for who begins after it.
async fn what_was_culled_before_the_clock_was_set_back_while_nobody_ran_hides_nothing(world: World) {
    hides_nothing(retaining(world, policy()).await, SetBack::WhileNobodyRuns).await;
}

/// The same on a cluster, where deletes are kept in mind.
#[tokio::test]
async fn on_a_cluster_what_was_culled_before_the_clock_was_set_back_hides_nothing() {
    for set_back in [SetBack::WhileItRuns, SetBack::WhileNobodyRuns] {
        let (world, _) = World::over_memory(Cluster::new).await;
        hides_nothing(retaining(world, policy()).await, set_back).await;
    }
}

/// Nor does what was taken back, or is by whoever finds it: a write on a condition that did not come.
#[tokio::test]
async fn what_was_taken_back_before_the_clock_was_set_back_hides_nothing() {
    for writes in 1..=2 {
        let (world, faulty) =
            World::over_memory(|store| Faulty::new(Arc::new(Cluster::new(store)) as AnyStore, Plan::empty()))
                .await;
        let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.pass(HOUR);
        let new = world.new_revision(&page, 2, HTML).await;
        let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(1))), ..new };
        // The second is that which takes it back.
        let plan = (1..=writes).fold(Plan::empty(), |plan, write| plan.on(Call::Write, write, Fault::Before));
        faulty.set_plan(plan);
        world.buckets.put_revision(&page, conditional).await.unwrap_err();
        faulty.set_plan(Plan::empty());
        world.clock.set(world.clock.now().saturating_sub(10 * DAY));
        let again = world.put_revision(&page, 2, &[("html", "again")]).await.unwrap();
        assert_eq!(world.read_latest(&page, "html").await, b"again");
        assert_eq!(world.read(&page, again.tid, "html").await, b"again");
        // On a condition, so that he sees to what was left.
        world.pass(60 * SECOND);
        let new = world.new_revision(&page, 3, HTML).await;
        let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(2))), ..new };
        world.buckets.put_revision(&page, conditional).await.unwrap();
        assert_eq!(world.read(&page, again.tid, "html").await, b"again");
        world.assert_whole().await;
    }
}

#[derive(PartialEq)]
enum SetBack {
    WhileItRuns,
    WhileNobodyRuns,
}

async fn hides_nothing(mut world: World, set_back: SetBack) {
    let page = page("Main_Page");
    for number in [1, 2, 4] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    let kept = world.put_revision(&page, 5, HTML).await.unwrap();
    for html in ["<b>", "<i>"] {
        world.put_render(&page, 5, &[("html", html)]).await.unwrap();
    }
    world.pass(20 * DAY);
    let swept = world.sweep().await;
    assert_eq!(swept.renders, 5, "{swept:?}");
    world.clock.set(world.clock.now().saturating_sub(10 * DAY));
    if set_back == SetBack::WhileNobodyRuns {
        world = world.reopened().await;
    }
    assert!(world.sweep().await.notes == 0);
    let late = world.put_revision(&page, 3, HTML).await.unwrap();
    let render = world.put_render(&page, 2, &[("html", "<u>"), ("data-parsoid", "[]")]).await.unwrap();
    let new = world.new_revision(&page, 6, HTML).await;
    let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(5))), ..new };
    let newest = world.buckets.put_revision(&page, conditional).await.unwrap();
    let of_history = START.saturating_sub(DAY);
    let imported = world.put_render_at(&page, 5, of_history, &[("html", "<s>")]).await.unwrap();
    for (tid, html) in [(late.tid, "<p>"), (render.tid, "<u>"), (newest.tid, "<p>"), (imported.tid, "<s>")] {
        assert_eq!(world.read_if_kept(&page, tid, "html").await.as_deref(), Some(html.as_bytes()));
    }
    for number in [2, 3, 6] {
        let revision = world.buckets.revision(&page, rev(number)).await.unwrap();
        assert!(revision.renders[0].stored, "{revision:?}");
    }
    assert_eq!(world.read_if_kept(&page, kept.tid, "html").await, None);
    world.assert_whole().await;
}

/// The second render is written later than the third, which supersedes it.
async fn what_a_clock_wrote_that_is_ahead_goes_too(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let now = world.clock.now();
    world.pass(policy().skew);
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.clock.set(now.saturating_add(SECOND));
    world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(DAY + policy().skew + SECOND);
    world.sweep().await;
    world.assert_stored(second.tid, "html", true).await;
    // Where others write too, either may have been written early, and goes as much later.
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", false).await;
}

/// R4: what a clock that is ahead culled is no reason for one that is behind to leave what is due by its own.
async fn what_a_clock_culled_that_is_ahead_keeps_nothing_back(world: World) {
    let culling = Policy { delete_probability: 1.0, ..policy() };
    let (world, page) = (retaining(world, culling).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    // The second is noted in no timeline, which has one entry a minute.
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(DAY + policy().slack);
    let now = world.clock.now();
    world.pass(policy().skew);
    world.put_render(&page, 1, &[("html", "<u>")]).await.unwrap();
    world.buckets.settle().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", true).await;
    world.clock.set(now);
    world.sweep().await;
    world.assert_stored(second.tid, "html", false).await;
}

/// What a write deletes of what is below it, by a clock that is ahead, is not what comes after it.
#[tokio::test]
async fn what_is_imported_by_a_clock_that_is_behind_is_there() {
    for strategy in STRATEGIES {
        let (world, _) = World::over_memory(Cluster::new).await;
        let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
        world.put_revision(&page, 1, HTML).await.unwrap();
        let now = world.clock.now();
        world.pass(policy().skew);
        world.put_revision(&page, 5, HTML).await.unwrap();
        world.clock.set(now);
        let imported = world.history(&page, 3, START.saturating_sub(DAY), b"text 3").await;
        let tid = imported.renders[0].tid;
        world.buckets.import(&page, vec![imported]).await.unwrap();
        let read = world.read_if_kept(&page, tid, "wikitext").await;
        assert_eq!(read.as_deref(), Some(&b"text 3"[..]), "{strategy:?}");
    }
}

/// A copy that has expired by the clock of who replaces a property stands by one that is behind.
#[tokio::test]
async fn what_was_replaced_is_read_from_no_copy_by_a_clock_that_is_behind() {
    let properties = [("html", "wikitext"), ("wikitext", "html")];
    for (strategy, (replaced, other)) in STRATEGIES.iter().flat_map(|of| properties.map(|pair| (*of, pair))) {
        let (world, _) = World::over_memory(Cluster::new).await;
        let policy = Policy { grace: HOUR, ttl: HOUR, ..by(strategy) };
        let (world, page) = (retaining(world, policy).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        // Where reading copies, it copies all of it.
        world.read(&page, first.tid, replaced).await;
        world.pass(2 * HOUR);
        let now = world.clock.now();
        world.pass(SECOND);
        world.rewrite(&page, first.tid, replaced, "replaced").await.unwrap();
        world.clock.set(now.saturating_sub(SECOND));
        world.put_revision(&page, 2, HTML).await.unwrap();
        // Reading what was not replaced copies what can be read of the rest again.
        for property in [other, replaced] {
            let read = world.read_if_kept(&page, first.tid, property).await;
            let is_it = |read: Vec<u8>| property == other || read == b"replaced";
            assert!(read.is_none_or(is_it), "{property}, {strategy:?}");
        }
    }
}

/// What is copied for a reader at the very time at which it was replaced is kept.
#[tokio::test]
async fn what_is_read_when_it_is_replaced_is_kept() {
    let (world, _) = World::over_memory(Cluster::new).await;
    let policy = Policy { ttl: 2 * DAY, skew: Duration::ZERO, ..policy() };
    let (world, page) = (retaining(world, policy).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.rewrite(&page, first.tid, "html", "replaced").await.unwrap();
    world.clock.set(world.clock.now().saturating_add(Duration::from_micros(1)));
    assert_eq!(world.read(&page, first.tid, "html").await, b"replaced");
    world.pass(2 * DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await.as_deref(), Some(&b"replaced"[..]));
}
