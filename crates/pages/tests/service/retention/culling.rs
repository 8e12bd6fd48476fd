//! The values that are culled, and the time of the cull (R1, R2, R4 to R8).

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{Cull, MemoryTimeline, Policy, RenderBase, Timeline, schemas};
use rashomon_tables::{Call, Counting, Fault, Faulty, Kind, Memory, Plan};

use crate::{
    retention::{DAY, HOUR, SECOND, policy, settings, with_retention},
    support::{Cluster, START, World, name, noise, on_every_store, page, rev},
};

on_every_store![
    superseded_render_stays_for_the_grace_and_is_culled_within_the_slack,
    late_revision_is_superseded_when_it_arrives,
    revision_superseded_by_a_concurrent_writer_is_culled,
    all_properties_of_a_render_are_culled_together,
    property_of_the_revision_is_culled_with_the_revision,
    rewrite_restarts_the_grace_period,
    cull_by_another_queue_entry_deletes_whole_renders,
    chunks_of_culled_bodies_are_collected,
    newest_revisions_are_kept,
    value_kept_below_the_watermark_is_culled_later,
    older_property_of_a_revision_is_culled_with_its_chunks,
    late_property_keeps_its_chunks_until_it_is_culled,
    cull_of_renders_keeps_the_newest_of_each_revision,
    culled_renders_are_no_mementos,
    write_culls_by_the_timeline,
    nothing_is_culled_early_without_the_timeline,
    second_cull_changes_nothing,
    repeat_of_a_culled_revision_is_recognized,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

async fn superseded_render_stays_for_the_grace_and_is_culled_within_the_slack(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    assert_eq!(world.sweep().await.renders, 0, "the latest is kept permanently");
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    // The page is never written again.
    world.pass(policy().slack);
    let sweep = world.sweep().await;
    assert_eq!((sweep.renders, sweep.bytes), (1, 9), "{sweep:?}");
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, first.tid, "wikitext").await, None);
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    assert_eq!(world.read(&page, second.tid, "data-parsoid").await, b"{}");
    let history = world.buckets.revisions(&page, None, 10).await.unwrap();
    assert_eq!(history.items.len(), 2, "records are kept");
    world.assert_consistent().await;
}

async fn late_revision_is_superseded_when_it_arrives(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    world.put_revision(&page, 5, HTML).await.unwrap();
    world.pass(10 * DAY);
    let late = world.put_revision(&page, 3, HTML).await.unwrap();
    world.sweep().await;
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(late.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(late.tid, "html", false).await;
    assert_eq!(world.latest_rev(&page).await, Some(5));
    // This late revision is below the cull watermark.
    let later = world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(later.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(later.tid, "html", false).await;
    world.assert_consistent().await;
}

/// The writes of two concurrent writers arrive in the order 7, 6. Revision 6 is superseded when it arrives,
/// although no later write supersedes it.
async fn revision_superseded_by_a_concurrent_writer_is_culled(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    world.put_revision(&page, 5, HTML).await.unwrap();
    world.pass(HOUR);
    let seven = world.put_revision(&page, 7, HTML).await.unwrap();
    world.pass(HOUR);
    let six = world.put_revision(&page, 6, HTML).await.unwrap();
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_stored(six.tid, "html", false).await;
    world.assert_stored(seven.tid, "html", true).await;
}

async fn all_properties_of_a_render_are_culled_together(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_render(&page, 1, &[("html", "<b>"), ("meta", "{}")]).await.unwrap();
    let third = world.put_render(&page, 1, &[("html", "<i>")]).await.unwrap();
    world.pass(DAY + policy().slack);
    world.sweep().await;
    for (tid, property, stays) in [
        (first.tid, "html", false),
        (first.tid, "data-parsoid", false),
        (second.tid, "html", false),
        (second.tid, "data-parsoid", false),
        (second.tid, "meta", false),
        (third.tid, "html", true),
        (third.tid, "data-parsoid", true),
        (third.tid, "meta", true),
    ] {
        world.assert_stored(tid, property, stays).await;
    }
    world.assert_consistent().await;
}

async fn property_of_the_revision_is_culled_with_the_revision(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    assert_eq!(
        world.rows(&schemas::REVISION_CONTENT).await.len(),
        1,
        "the property is not culled with the first render"
    );
    assert_eq!(world.read(&page, second.tid, "wikitext").await, b"text");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "the property of the second revision");
}

async fn rewrite_restarts_the_grace_period(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.assert_stored(first.tid, "data-parsoid", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(first.tid, "data-parsoid", false).await;
}

/// Some revisions are written late, below the cull watermark. A sweep that processes the queue entry of one
/// such revision does not cull a part of another.
async fn cull_by_another_queue_entry_deletes_whole_renders(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_revision(&page, 9, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.put_revision(&page, 8, &[("html", "<p>")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.put_revision(&page, 3, &[("html", "<p>")]).await.unwrap();
    world.pass(SECOND);
    let other = world.put_revision(&page, 5, &[("html", "<p>"), ("meta", "{}")]).await.unwrap();
    world.pass(SECOND);
    world.put_revision(&page, 6, &[("html", "<p>")]).await.unwrap();
    world.pass(2 * DAY);
    // The sweep processes only one queue entry of the shard, that of revision 3, although there are more.
    world.buckets.maintenance().sweep(std::num::NonZeroUsize::MIN).await.unwrap();
    world.assert_stored(other.tid, "html", false).await;
    world.assert_stored(other.tid, "meta", false).await;
}

async fn chunks_of_culled_bodies_are_collected(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let large = noise(1, 2_500_000);
    let bodies = [("html", &large), ("wikitext", &large)];
    world.put_revision(&page, 1, &bodies).await.unwrap();
    world.put_revision(&page, 2, &bodies).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 12);
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 6);
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_consistent().await;
}

async fn newest_revisions_are_kept(world: World) {
    let policy = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..policy() };
    let (world, page) = (with_retention(world, policy).await, page("Main_Page"));
    let mut written = Vec::new();
    for number in 1..=5 {
        written.push(world.put_revision(&page, number, HTML).await.unwrap());
    }
    let again = world.put_render(&page, 4, &[("html", "<b>")]).await.unwrap();
    world.pass(20 * DAY);
    world.sweep().await;
    for (index, stays) in [false, false, true, false, true].into_iter().enumerate() {
        world.assert_stored(written[index].tid, "html", stays).await;
    }
    world.assert_stored(again.tid, "html", true).await;
    world.assert_consistent().await;
}

/// A value is rewritten below the cull watermark. When it becomes eligible, a new policy keeps it among the
/// newest. It is culled when it is no longer among the newest.
async fn value_kept_below_the_watermark_is_culled_later(world: World) {
    let keeping = |newest| Policy { min_keep: NonZeroU32::new(newest).unwrap(), ..policy() };
    let (world, page) = (with_retention(world, keeping(1)).await, page("Main_Page"));
    let mut replaced = Vec::new();
    for number in [1, 2, 9] {
        replaced.push(world.put_revision(&page, number, HTML).await.unwrap().tid);
    }
    replaced.pop();
    world.pass(2 * DAY);
    for tid in &replaced {
        world.rewrite(&page, *tid, "html", "mended").await.unwrap();
    }
    world.sweep().await;
    let world = with_retention(world, keeping(3)).await;
    world.pass(2 * DAY);
    world.sweep().await;
    for number in [7, 8] {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.pass(2 * DAY);
        world.sweep().await;
        for (tid, stays) in replaced.iter().zip([false, number == 7]) {
            world.assert_stored(*tid, "html", stays).await;
            world.assert_stored(*tid, "data-parsoid", stays).await;
        }
    }
    world.assert_consistent().await;
}

/// A property of the revision is culled by its own write time, with its chunks, although another property was
/// added to the revision later.
async fn older_property_of_a_revision_is_culled_with_its_chunks(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let large = noise(1, 1_500_000);
    let bodies: [(&str, &[u8]); 2] = [("html", b"<p>"), ("slot-notes", &large)];
    let first = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    world.put_revision(&page, 6, HTML).await.unwrap();
    world.pass(2 * DAY);
    let render = world.put_render(&page, 5, &[("html", "<b>"), ("wikitext", "late")]).await.unwrap().tid;
    world.sweep().await;
    assert_eq!(world.read_if_kept(&page, first, "slot-notes").await, None);
    // A policy keeps the revision from now on. The culled property stays deleted, and the later property is kept.
    let keeping = Policy { min_keep: NonZeroU32::new(4).unwrap(), ..policy() };
    let world = with_retention(world, keeping).await;
    world.pass(2 * DAY);
    world.sweep().await;
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    assert_eq!(world.read_if_kept(&page, render, "slot-notes").await, None);
    assert_eq!(world.read(&page, render, "wikitext").await, b"late");
    world.assert_consistent().await;
}

/// A property is added to a revision late. Its chunks are not deleted before the property, even if a higher
/// revision is culled before the late property becomes eligible.
async fn late_property_keeps_its_chunks_until_it_is_culled(world: World) {
    let mut settings = settings(Policy { delete_probability: 1.0, ..policy() });
    settings.retention.sample = Duration::ZERO;
    let (world, page) = (world.restarted_with(settings).await, page("Main_Page"));
    for number in [3, 5, 6] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    world.sweep().await;
    let large = noise(1, 1_500_000);
    let bodies: [(&str, &[u8]); 3] = [("html", b"<b>"), ("data-parsoid", b"[]"), ("slot-late", &large)];
    let late = world.put_render(&page, 3, &bodies).await.unwrap().tid;
    world.put_revision(&page, 7, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.pass(DAY + HOUR);
    world.put_revision(&page, 8, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    let keeping = Policy { min_keep: NonZeroU32::new(10).unwrap(), ..policy() };
    let world = with_retention(world, keeping).await;
    world.pass(2 * DAY);
    world.sweep().await;
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    assert_eq!(world.read(&page, late, "slot-late").await, large);
    world.assert_consistent().await;
}

async fn cull_of_renders_keeps_the_newest_of_each_revision(world: World) {
    let policy = Policy { cull: Cull::Renders, ..policy() };
    let (world, page) = (with_retention(world, policy).await, page("Main_Page"));
    let one = world.put_revision(&page, 1, HTML).await.unwrap();
    let two = world.put_revision(&page, 2, HTML).await.unwrap();
    let two_again = world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 3, HTML).await.unwrap();
    let one_again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(20 * DAY);
    world.sweep().await;
    world.assert_stored(one.tid, "html", false).await;
    world.assert_stored(one_again.tid, "html", true).await;
    world.assert_stored(two.tid, "html", false).await;
    world.assert_stored(two_again.tid, "html", true).await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 3);
    world.assert_consistent().await;
}

/// The timemap lists, and the timegate selects, only renders that can be read.
async fn culled_renders_are_no_mementos(mut world: World) {
    for (cull, of_html, of_wikitext) in [(policy().cull, 1, 1), (Cull::Renders, 3, 4)] {
        world = with_retention(world, Policy { cull, ..policy() }).await;
        let (page, begun) = (page(&format!("{cull:?}")), world.clock.now());
        for number in 1..=3 {
            world.put_revision(&page, number, HTML).await.unwrap();
            world.pass(HOUR);
            if number == 2 {
                world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
                world.pass(HOUR);
            }
        }
        world.pass(DAY + policy().slack);
        world.sweep().await;
        for (property, expected) in [("html", of_html), ("wikitext", of_wikitext)] {
            let listed = world.buckets.mementos(&page, &name(property), None, 10).await.unwrap().items;
            assert_eq!(listed.len(), expected, "{cull:?} {property}");
            for memento in &listed {
                world.read(&page, memento.tid, property).await;
            }
            for hours in 0..4 {
                let time = Some(begun.saturating_add(HOUR * hours));
                let memento = world.buckets.memento(&page, &name(property), time).await.unwrap();
                assert!(listed.contains(&memento), "{cull:?} {property} {hours}");
            }
        }
    }
}

async fn write_culls_by_the_timeline(world: World) {
    let mut settings = settings(Policy { delete_probability: 1.0, ..policy() });
    settings.retention.sample = Duration::ZERO;
    let (world, page) = (world.restarted_with(settings).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    let again = world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.pass(2 * DAY);
    world.assert_stored(first.tid, "html", true).await;
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.assert_stored(first.tid, "html", false).await;
    // This render was superseded just now.
    world.assert_stored(again.tid, "html", true).await;
    world.put_render(&page, 2, &[("html", "<i>")]).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.assert_stored(second.tid, "html", false).await;
    world.assert_stored(again.tid, "html", true).await;
    world.assert_consistent().await;
}

async fn nothing_is_culled_early_without_the_timeline(world: World) {
    let timeline = Arc::new(MemoryTimeline::new(Arc::clone(&world.clock) as Arc<dyn Clock>, 100));
    let mut settings = settings(Policy { delete_probability: 1.0, ..policy() });
    settings.retention.timeline = Some(Arc::clone(&timeline) as Arc<dyn Timeline>);
    settings.retention.sample = Duration::ZERO;
    let (world, page) = (world.restarted_with(settings).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(timeline.revision(&page, world.clock.now()).await.unwrap(), Some(rev(1)));
    timeline.clear();
    world.pass(2 * DAY);
    let third = world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.assert_stored(first.tid, "html", true).await;
    world.assert_stored(second.tid, "html", true).await;
    // The sweep does not need the timeline.
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", true).await;
    world.assert_stored(third.tid, "html", true).await;
}

async fn second_cull_changes_nothing(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    for number in 1..=4 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
    }
    world.pass(2 * DAY);
    assert_eq!(world.sweep().await.renders, 7);
    let once = world.dump().await;
    // Another process starts again at the beginning of the queue.
    for cursor in world.rows(&schemas::DUE_CURSORS).await {
        let mut forget = rashomon_tables::Batch::new(cursor.key.partition.clone());
        forget.delete(&schemas::DUE_CURSORS, Vec::new(), world.clock.now());
        world.store.write(Vec::new(), forget).await.unwrap();
    }
    // A write at exactly the time of a delete would stay deleted.
    world.pass(Duration::from_micros(1));
    let other = world.reopened().await;
    assert_eq!(other.sweep().await.renders, 0);
    let without_cursors = |dump: Vec<String>| {
        dump.into_iter().filter(|line| !line.starts_with("due_cursors")).collect::<Vec<_>>()
    };
    assert_eq!(without_cursors(other.dump().await), without_cursors(once));
}

async fn repeat_of_a_culled_revision_is_recognized(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    let again = world.put_revision(&page, 1, HTML).await.unwrap();
    assert_eq!((again.tid, again.created), (first.tid, false));
    world.assert_stored(first.tid, "html", false).await;
    let taken_over = world.put_render_on(&page, RenderBase::Render(first.tid), &[("html", "x")]).await;
    assert!(taken_over.unwrap_err().to_string().contains("is not stored any more"));
}

/// After days without a sweep, the next sweep does not scan each hour of these days, since each scan is a
/// request on a cluster.
#[tokio::test]
async fn sweep_after_days_does_not_scan_every_hour() {
    let (world, counting) = World::with(Counting::new, settings(policy())).await;
    let page = page("Main_Page");
    world.sweep().await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    for renders in [1, 0] {
        world.clock.advance(20 * DAY);
        let before = counting.counts();
        assert_eq!(world.sweep().await.renders, renders);
        world.assert_stored(first.tid, "html", false).await;
        let scans = (counting.counts() - &before).of(schemas::DUE.name(), Kind::Scan).operations;
        // The hours of a day in each shard, and the queue entries.
        assert!((16 * 24..16 * 60).contains(&scans), "{scans}");
    }
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(DAY + policy().slack);
    assert_eq!(world.sweep().await.renders, 1, "a later queue entry is found");
}

/// A failed cull is not an error for the writer, and the sweep culls later.
#[tokio::test]
async fn failed_cull_is_completed_by_the_sweep() {
    // The fourth write is the cull that the third write starts.
    let plan = Plan::empty().on(Call::Write, 4, Fault::Before);
    let always = settings(Policy { delete_probability: 1.0, ..policy() });
    let (world, _) = World::with(|store| Faulty::new(store, plan), always).await;
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.pass(2 * DAY);
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.maintenance().drain_background_culls().await;
    world.assert_stored(first.tid, "html", true).await;
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

/// The statistics count the renders that a failed sweep has culled, and show the other entries as overdue.
#[tokio::test]
async fn failed_sweep_shows_in_the_statistics() {
    let mut most_overdue = Duration::ZERO;
    for number in 1.. {
        let (world, store) = World::with(|store| Faulty::new(store, Plan::empty()), settings(policy())).await;
        for title in ["One", "Two"] {
            let page = page(title);
            world.put_revision(&page, 1, HTML).await.unwrap();
            world.put_revision(&page, 2, HTML).await.unwrap();
        }
        world.sweep().await;
        world.pass(2 * DAY);
        store.set_plan(Plan::empty().on(Call::Write, number, Fault::Before));
        let interrupted = world.buckets.maintenance().sweep(NonZeroUsize::new(1000).unwrap()).await;
        most_overdue = most_overdue.max(world.buckets.maintenance().retention_stats().overdue);
        store.set_plan(Plan::empty());
        world.sweep().await;
        let stats = world.buckets.maintenance().retention_stats();
        assert_eq!((stats.culled_renders, stats.overdue), (2, Duration::ZERO), "{number}: {stats:?}");
        if interrupted.is_ok() {
            break;
        }
    }
    assert!(most_overdue > DAY / 2, "{most_overdue:?}");
}

/// Under a page lease, rows get a write time that is earlier than the time at which they are stored. If a
/// cull deletes such a row by its write time, together with older rows, the cull records this.
#[tokio::test]
async fn render_with_an_early_write_time_is_culled_and_not_reported_as_lost() {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
    let (world, page) = (World::on(store, clock, settings(policy()), 1).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_revision(&page, 9, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(2 * policy().skew);
    // This render adds a property to its revision.
    let early = world.put_render(&page, 1, &[("html", "<b>"), ("wikitext", "text")]).await.unwrap();
    world.pass(DAY + policy().skew);
    assert_eq!(world.sweep().await.renders, 1, "the queue entry is that of revision 2");
    assert_eq!(world.read_if_kept(&page, early.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, early.tid, "wikitext").await, None);
    let revision = world.buckets.revision(&page, rev(1)).await.unwrap();
    assert!(revision.renders.iter().all(|render| !render.stored), "{revision:?}");
    world.assert_consistent().await;
}
