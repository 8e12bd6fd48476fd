//! Clocks that jump, or that differ (R8).

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock as _, ManualClock};
use rashomon_pages::{NewRevision, Parent, Policy, schemas};
use rashomon_tables::{Call, Fault, Faulty, Plan};

use crate::{
    retention::{DAY, HOUR, SECOND, STRATEGIES, policy, policy_with, with_retention},
    support::{AnyStore, Cluster, START, World, on_every_store, page, rev},
};

on_every_store![
    clock_jump_pauses_culls_for_a_grace,
    render_written_after_the_clock_was_set_back_is_culled,
    culls_before_the_clock_was_set_back_hide_nothing,
    clock_jump_seen_by_another_process_pauses_culls_for_a_grace,
    culls_before_the_clock_was_set_back_while_no_server_ran_hide_nothing,
    render_written_by_a_clock_ahead_is_culled,
    cull_by_a_clock_ahead_does_not_delay_later_culls,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

async fn clock_jump_pauses_culls_for_a_grace(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    world.sweep().await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(HOUR);
    // This sweep compares the clocks, so that the next one detects the jump.
    world.sweep().await;
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert!(world.sweep().await.paused);
    world.assert_stored(first.tid, "html", true).await;
    // By the new time of the clock the entry is long overdue, and the statistics show this.
    let stats = world.buckets.maintenance().retention_stats();
    assert!(stats.paused && stats.overdue > 28 * DAY, "{stats:?}");
    world.pass(DAY + SECOND);
    assert!(!world.sweep().await.paused);
    world.assert_stored(first.tid, "html", false).await;
    let stats = world.buckets.maintenance().retention_stats();
    assert!(!stats.paused && stats.overdue.is_zero(), "{stats:?}");
}

/// R8, for a server that starts after the jump: the server waits for the rest of the grace.
async fn clock_jump_seen_by_another_process_pauses_culls_for_a_grace(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
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
    // The clock of the process that detected the jump may be behind.
    world.pass(policy().skew + 2 * SECOND);
    assert!(!world.sweep().await.paused);
    world.assert_stored(first.tid, "html", false).await;
}

/// R8: a server starts ten days after the last one has stopped, or its clock was set ahead meanwhile.
#[tokio::test]
async fn time_that_no_process_saw_culls_nothing() {
    for trusts_clock in [false, true] {
        let (world, _) = World::over_memory(|store| store).await;
        let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap();
        world.pass(HOUR);
        world.sweep().await;
        world.buckets.parts().records.store_seen_time(true).await.unwrap();
        let started = world.clock.now().saturating_add(10 * DAY);
        let clock = Arc::new(ManualClock::new_unwatched(started));
        let settings = world.buckets.settings().clone();
        let later = World::on(world.store.clone(), clock, settings, 2).await;
        if trusts_clock {
            later.clock.trust();
            assert!(!later.sweep().await.paused);
            later.assert_stored(first.tid, "html", false).await;
            continue;
        }
        for wait in [Duration::ZERO, DAY - 2 * HOUR] {
            later.pass(wait);
            assert!(later.sweep().await.paused);
            later.assert_stored(first.tid, "html", true).await;
        }
        later.pass(HOUR + policy().slack);
        assert!(!later.sweep().await.paused);
        later.assert_stored(first.tid, "html", false).await;
    }
}

/// The time that the next process starts with is stored about once a minute, and when the store is closed.
#[tokio::test]
async fn seen_time_is_stored() {
    let (world, _) = World::over_memory(|store| store).await;
    let records = world.buckets.parts().records;
    let rows = async || world.rows(&schemas::SEEN_TIME).await;
    for (wait, is_last, stores) in [(0, false, true), (10, false, false), (10, true, true), (60, false, true)]
    {
        world.pass(wait * SECOND);
        let before = rows().await;
        records.store_seen_time(is_last).await.unwrap();
        assert_eq!(before != rows().await, stores, "after {wait} s");
    }
    // A jump is no seen time.
    let seen = rows().await;
    world.clock.set(world.clock.now().saturating_add(DAY));
    records.store_seen_time(true).await.unwrap();
    assert_eq!(seen, rows().await);
}

/// A process runs with a clock that was set back. When the clock is right again, what it stored is not old.
#[tokio::test]
async fn time_by_which_the_clock_was_set_back_has_not_passed() {
    let (world, _) = World::over_memory(|store| store).await;
    let settings = world.buckets.settings().clone();
    let seen_time = async |world: &World| world.buckets.parts().records.store_seen_time(false).await.unwrap();
    seen_time(&world).await;
    let right = world.clock.now();
    let back = right.saturating_sub(30 * DAY);
    let later = |now, seed| {
        World::on(world.store.clone(), Arc::new(ManualClock::new_unwatched(now)), settings.clone(), seed)
    };
    let second = later(back, 2).await;
    assert_eq!(second.clock.passed().seen(), back);
    seen_time(&second).await;
    let third = later(right, 3).await;
    assert_eq!(third.clock.passed().seen(), back);
    // A process also notices that its clock is set back while it runs.
    third.clock.set(back.saturating_sub(DAY));
    seen_time(&third).await;
    assert_eq!(later(right, 4).await.clock.passed().seen(), back.saturating_sub(DAY));
}

async fn render_written_after_the_clock_was_set_back_is_culled(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
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

/// R8: a value can be read although a clock that was ahead has culled the values around it.
async fn culls_before_the_clock_was_set_back_hide_nothing(world: World) {
    assert_culls_before_the_clock_was_set_back_hide_nothing(
        with_retention(world, policy()).await,
        SetBack::WhileAServerRuns,
    )
    .await;
}

/// R8, for a server that starts after the clock was set back.
async fn culls_before_the_clock_was_set_back_while_no_server_ran_hide_nothing(world: World) {
    assert_culls_before_the_clock_was_set_back_hide_nothing(
        with_retention(world, policy()).await,
        SetBack::WhileNoServerRuns,
    )
    .await;
}

/// R8 on a cluster, where deletes leave tombstones.
#[tokio::test]
async fn culls_before_the_clock_was_set_back_hide_nothing_on_a_cluster() {
    for set_back in [SetBack::WhileAServerRuns, SetBack::WhileNoServerRuns] {
        let (world, _) = World::over_memory(Cluster::new).await;
        assert_culls_before_the_clock_was_set_back_hide_nothing(
            with_retention(world, policy()).await,
            set_back,
        )
        .await;
    }
}

/// A conditional write that failed is rolled back, by its writer or by a later writer. The deletes of the
/// roll-back hide no later write.
#[tokio::test]
async fn rolled_back_write_hides_nothing_after_the_clock_is_set_back() {
    for writes in 1..=2 {
        let (world, faulty) =
            World::over_memory(|store| Faulty::new(Arc::new(Cluster::new(store)) as AnyStore, Plan::empty()))
                .await;
        let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.pass(HOUR);
        let new = world.new_revision(&page, 2, HTML).await;
        let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(1))), ..new };
        // The second write is the roll-back.
        let plan = (1..=writes).fold(Plan::empty(), |plan, write| plan.on(Call::Write, write, Fault::Before));
        faulty.set_plan(plan);
        world.buckets.put_revision(&page, conditional).await.unwrap_err();
        faulty.set_plan(Plan::empty());
        world.clock.set(world.clock.now().saturating_sub(10 * DAY));
        let again = world.put_revision(&page, 2, &[("html", "again")]).await.unwrap();
        assert_eq!(world.read_latest(&page, "html").await, b"again");
        assert_eq!(world.read(&page, again.tid, "html").await, b"again");
        // A conditional write first rolls back the incomplete write.
        world.pass(60 * SECOND);
        let new = world.new_revision(&page, 3, HTML).await;
        let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(2))), ..new };
        world.buckets.put_revision(&page, conditional).await.unwrap();
        assert_eq!(world.read(&page, again.tid, "html").await, b"again");
        world.assert_consistent().await;
    }
}

/// Whether a server runs when the clock is set back.
#[derive(PartialEq)]
enum SetBack {
    WhileAServerRuns,
    WhileNoServerRuns,
}

async fn assert_culls_before_the_clock_was_set_back_hide_nothing(mut world: World, set_back: SetBack) {
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
    if set_back == SetBack::WhileNoServerRuns {
        world = world.reopened().await;
    }
    assert!(world.sweep().await.entries == 0);
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
    world.assert_consistent().await;
}

/// The second render has a later write time than the third, which supersedes it.
async fn render_written_by_a_clock_ahead_is_culled(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let now = world.clock.now();
    world.pass(policy().skew);
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.clock.set(now.saturating_add(SECOND));
    world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(DAY + policy().skew + SECOND);
    world.sweep().await;
    world.assert_stored(second.tid, "html", true).await;
    // With several writers, both renders may have early write times, so they are culled later.
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", false).await;
}

/// R4: a process whose clock is ahead has culled. A process whose clock is behind still culls the values that
/// are eligible by its own clock.
async fn cull_by_a_clock_ahead_does_not_delay_later_culls(world: World) {
    let culling = Policy { delete_probability: 1.0, ..policy() };
    let (world, page) = (with_retention(world, culling).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    // The second render has no entry in the timeline, which has one entry a minute.
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(DAY + policy().slack);
    let now = world.clock.now();
    world.pass(policy().skew);
    world.put_render(&page, 1, &[("html", "<u>")]).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", true).await;
    world.clock.set(now);
    world.sweep().await;
    world.assert_stored(second.tid, "html", false).await;
}

/// A write by a clock that is ahead deletes lower values. This does not hide a lower revision that is
/// imported later.
#[tokio::test]
async fn import_by_a_clock_behind_is_readable() {
    for strategy in STRATEGIES {
        let (world, _) = World::over_memory(Cluster::new).await;
        let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
        world.put_revision(&page, 1, HTML).await.unwrap();
        let now = world.clock.now();
        world.pass(policy().skew);
        world.put_revision(&page, 5, HTML).await.unwrap();
        world.clock.set(now);
        let imported = world.imported_revision(&page, 3, START.saturating_sub(DAY), b"text 3").await;
        let tid = imported.renders[0].tid;
        world.buckets.import(&page, vec![imported]).await.unwrap();
        let read = world.read_if_kept(&page, tid, "wikitext").await;
        assert_eq!(read.as_deref(), Some(&b"text 3"[..]), "{strategy:?}");
    }
}

/// A copy has expired by the clock of the process that replaces a property, and is still valid by a clock
/// that is behind.
#[tokio::test]
async fn replaced_value_is_not_read_from_a_copy_by_a_clock_behind() {
    let properties = [("html", "wikitext"), ("wikitext", "html")];
    for (strategy, (replaced, other)) in STRATEGIES.iter().flat_map(|of| properties.map(|pair| (*of, pair))) {
        let (world, _) = World::over_memory(Cluster::new).await;
        let policy = Policy { grace: HOUR, ttl: HOUR, ..policy_with(strategy) };
        let (world, page) = (with_retention(world, policy).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        // If reads make copies, this read copies the whole render.
        world.read(&page, first.tid, replaced).await;
        world.pass(2 * HOUR);
        let now = world.clock.now();
        world.pass(SECOND);
        world.rewrite(&page, first.tid, replaced, "replaced").await.unwrap();
        world.clock.set(now.saturating_sub(SECOND));
        world.put_revision(&page, 2, HTML).await.unwrap();
        // A read of the other property may copy the whole render again.
        for property in [other, replaced] {
            let read = world.read_if_kept(&page, first.tid, property).await;
            let is_allowed = |read: Vec<u8>| property == other || read == b"replaced";
            assert!(read.is_none_or(is_allowed), "{property}, {strategy:?}");
        }
    }
}

/// A read copy that is made at exactly the time of a rewrite is kept.
#[tokio::test]
async fn read_copy_made_at_the_time_of_a_rewrite_is_kept() {
    let (world, _) = World::over_memory(Cluster::new).await;
    let policy = Policy { ttl: 2 * DAY, skew: Duration::ZERO, ..policy() };
    let (world, page) = (with_retention(world, policy).await, page("Main_Page"));
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
