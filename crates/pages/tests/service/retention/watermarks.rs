//! Cull watermarks are true, and stay true if clocks differ or the policy changes.

use std::num::{NonZeroU32, NonZeroUsize};

use rashomon_clock::Clock;
use rashomon_pages::Policy;
use rashomon_tables::{Call, Fault, Faulty, Plan};

use crate::{
    retention::{DAY, HOUR, SECOND, policy, settings, with_retention},
    support::{Cluster, CulledRow, World, on_every_store, page, rev},
};

on_every_store![
    culls_by_a_shorter_grace_are_known_under_a_longer_one,
    culls_by_a_shorter_grace_hide_nothing_after_the_clock_was_set_back,
    render_that_is_culled_before_its_revision_counts_once,
    render_that_is_culled_with_its_revision_counts_once,
];

const HTML: &[(&str, &str)] = &[("html", "<p>")];

/// Two culls, one after the other. The first is interrupted, and the clock of the second is behind.
#[tokio::test]
async fn cull_by_a_clock_behind_is_recorded() {
    let (world, faulty) = World::over_memory(|memory| Faulty::new(Cluster::new(memory), Plan::empty())).await;
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(10 * SECOND);
    world.put_render(&page, 1, &[("html", "<b>"), ("slot-notes", "late")]).await.unwrap();
    world.pass(2 * DAY);
    // Revision 2 is culled, but not the later render. The writes are the cursors of three empty shards, one
    // cull, and then the cull that fails.
    faulty.set_plan(Plan::empty().on(Call::Write, 5, Fault::Before));
    world.buckets.maintenance().sweep(NonZeroUsize::new(1000).unwrap()).await.unwrap_err();
    faulty.set_plan(Plan::empty());
    assert_eq!(world.typed_rows::<CulledRow>().await[0].rev, rev(3));
    world.clock.set(world.clock.now().saturating_sub(3 * SECOND));
    world.sweep().await;
    assert_eq!(world.read_if_kept(&page, first.tid, "slot-notes").await, None);
    world.assert_consistent().await;
}

/// A render was culled under a grace of an hour. Its revision is culled under a grace of a day, at a time at
/// which the longer grace would have kept the render.
async fn culls_by_a_shorter_grace_are_known_under_a_longer_one(world: World) {
    let page = page("Main_Page");
    let short = Policy { grace: HOUR, min_keep: NonZeroU32::new(2).unwrap(), ..policy() };
    let world = with_retention(world, short).await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(10 * HOUR);
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(HOUR);
    world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(8 * HOUR);
    assert_eq!(world.sweep().await.renders, 2);
    let world = with_retention(world, policy()).await;
    world.pass(8 * HOUR);
    world.rescan(&page).await;
    world.pass(20 * SECOND);
    let sweep = world.sweep().await;
    assert_eq!((sweep.renders, sweep.bytes), (0, 0), "the third render stays for its grace");
    for tid in [first.tid, second.tid] {
        assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
    }
    world.assert_consistent().await;
}

async fn culls_by_a_shorter_grace_hide_nothing_after_the_clock_was_set_back(world: World) {
    let page = page("Main_Page");
    let world = with_retention(world, Policy { grace: HOUR, ..policy() }).await;
    for number in [1, 3, 4] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(10 * HOUR);
    assert_eq!(world.sweep().await.renders, 2);
    world.clock.set(world.clock.now().saturating_sub(5 * HOUR));
    let world = world.restarted_with(settings(policy())).await;
    let late = world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(world.read_if_kept(&page, late.tid, "html").await.as_deref(), Some(b"<p>".as_slice()));
    let revision = world.buckets.revision(&page, rev(2)).await.unwrap();
    assert!(revision.renders[0].stored, "{revision:?}");
    world.assert_consistent().await;
}

async fn render_that_is_culled_before_its_revision_counts_once(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_render(&page, 1, &[("html", "<b></b>")]).await.unwrap();
    world.pass(2 * DAY);
    let sweep = world.sweep().await;
    assert_eq!((sweep.renders, sweep.bytes), (1, 3), "the first render");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    let dry = world.buckets.maintenance().dry_run(&page.domain, &page.bucket, &mut |_| {}).await.unwrap();
    let sweep = world.sweep().await;
    assert_eq!((sweep.renders, sweep.bytes), (1, 7), "the second render");
    assert_eq!((dry.renders_culled, dry.bytes_culled), (1, 7));
    let stats = world.buckets.maintenance().retention_stats();
    assert_eq!((stats.culled_renders, stats.culled_bytes), (2, 10));
    for tid in [first.tid, second.tid] {
        assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
    }
    world.assert_consistent().await;
}

/// A revision is culled. Then a policy that keeps more revisions culls the renders of this revision.
async fn render_that_is_culled_with_its_revision_counts_once(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    assert_eq!(world.sweep().await.renders, 2);
    let world = with_retention(world, Policy { min_keep: NonZeroU32::new(2).unwrap(), ..policy() }).await;
    let third = world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    let fourth = world.put_render(&page, 1, &[("html", "<u></u>")]).await.unwrap();
    world.pass(2 * DAY);
    let sweep = world.sweep().await;
    assert_eq!((sweep.renders, sweep.bytes), (1, 3), "the third render");
    for tid in [first.tid, second.tid, third.tid] {
        assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
    }
    world.assert_stored(fourth.tid, "html", true).await;
    world.assert_consistent().await;
}
