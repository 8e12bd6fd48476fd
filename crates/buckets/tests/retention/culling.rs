//! What goes, and when (R1, R2, R4 to R8).

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use rashomon_buckets::{Cull, MemoryTimeline, NewRevision, Parent, Policy, RenderBase, Timeline, schemas};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Call, Counting, Fault, Faulty, Kind, Memory, Plan};

use crate::{
    DAY, HOUR, SECOND, policy, retaining, settings,
    support::{AnyStore, Cluster, START, World, noise, on_every_store, page, rev},
};

on_every_store![
    a_superseded_render_stays_for_the_grace_and_goes_within_the_slack,
    what_came_late_is_superseded_when_it_comes,
    what_two_writers_superseded_is_found_by_the_times_of_storing,
    all_properties_of_a_render_go_together,
    what_belongs_to_the_revision_goes_with_the_revision,
    a_replaced_property_gets_its_time_again,
    what_falls_due_together_goes_as_a_whole,
    large_bodies_are_collected,
    the_newest_stay,
    what_was_kept_below_what_was_culled_goes,
    where_only_renders_go_every_revision_keeps_its_newest,
    a_write_culls_by_the_timeline,
    nothing_is_culled_early_without_the_timeline,
    after_a_jump_of_the_clock_nothing_goes_for_a_grace,
    what_was_written_after_the_clock_was_set_back_goes,
    what_was_culled_before_the_clock_was_set_back_hides_nothing,
    after_a_jump_that_another_saw_nothing_goes_for_a_grace,
    what_was_culled_before_the_clock_was_set_back_while_nobody_ran_hides_nothing,
    what_a_clock_wrote_that_is_ahead_goes_too,
    culling_twice_is_culling_once,
    a_repeated_revision_is_known_after_its_bodies_went,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

async fn a_superseded_render_stays_for_the_grace_and_goes_within_the_slack(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    assert_eq!(world.sweep().await.renders, 0, "the latest stays for ever");
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
    assert_eq!(history.items.len(), 2, "records stay");
    world.assert_whole().await;
}

async fn what_came_late_is_superseded_when_it_comes(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
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
    // And one that comes below what has been culled already.
    let later = world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(later.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(later.tid, "html", false).await;
    world.assert_whole().await;
}

/// Both read 5, and write 6 and 7: neither knows that 6 was superseded.
async fn what_two_writers_superseded_is_found_by_the_times_of_storing(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
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

async fn all_properties_of_a_render_go_together(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
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
    world.assert_whole().await;
}

async fn what_belongs_to_the_revision_goes_with_the_revision(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "not with its first render");
    assert_eq!(world.read(&page, second.tid, "wikitext").await, b"text");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "that of the second");
}

async fn a_replaced_property_gets_its_time_again(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
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

/// Some came late, to where all has been culled: working off the one does not cut the other in two.
async fn what_falls_due_together_goes_as_a_whole(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
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
    // One note of a shard, where there are more: that of the first.
    world.buckets.sweep(std::num::NonZeroUsize::MIN).await.unwrap();
    world.assert_stored(other.tid, "html", false).await;
    world.assert_stored(other.tid, "meta", false).await;
}

async fn large_bodies_are_collected(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let large = noise(1, 2_500_000);
    let bodies = [("html", &large), ("wikitext", &large)];
    world.put_revision(&page, 1, &bodies).await.unwrap();
    world.put_revision(&page, 2, &bodies).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 12);
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 6);
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_whole().await;
}

async fn the_newest_stay(world: World) {
    let policy = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..policy() };
    let (world, page) = (retaining(world, policy).await, page("Main_Page"));
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
    world.assert_whole().await;
}

/// What was replaced below what had been culled, and was among the newest that a policy had come to keep when it fell
/// due, goes when it is one of them no longer.
async fn what_was_kept_below_what_was_culled_goes(world: World) {
    let keeping = |newest| Policy { min_keep: NonZeroU32::new(newest).unwrap(), ..policy() };
    let (world, page) = (retaining(world, keeping(1)).await, page("Main_Page"));
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
    let world = retaining(world, keeping(3)).await;
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
    world.assert_whole().await;
}

async fn where_only_renders_go_every_revision_keeps_its_newest(world: World) {
    let policy = Policy { cull: Cull::Renders, ..policy() };
    let (world, page) = (retaining(world, policy).await, page("Main_Page"));
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
    world.assert_whole().await;
}

async fn a_write_culls_by_the_timeline(world: World) {
    let mut settings = settings(Policy { delete_probability: 1.0, ..policy() });
    settings.retention.sample = Duration::ZERO;
    let (world, page) = (world.under(settings).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    let again = world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.buckets.settle().await;
    world.pass(2 * DAY);
    world.assert_stored(first.tid, "html", true).await;
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.settle().await;
    world.assert_stored(first.tid, "html", false).await;
    // Superseded just now.
    world.assert_stored(again.tid, "html", true).await;
    world.put_render(&page, 2, &[("html", "<i>")]).await.unwrap();
    world.buckets.settle().await;
    world.assert_stored(second.tid, "html", false).await;
    world.assert_stored(again.tid, "html", true).await;
    world.assert_whole().await;
}

async fn nothing_is_culled_early_without_the_timeline(world: World) {
    let timeline = Arc::new(MemoryTimeline::new(Arc::clone(&world.clock) as Arc<dyn Clock>, 100));
    let mut settings = settings(Policy { delete_probability: 1.0, ..policy() });
    settings.retention.timeline = Some(Arc::clone(&timeline) as Arc<dyn Timeline>);
    settings.retention.sample = Duration::ZERO;
    let (world, page) = (world.under(settings).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(timeline.revision(&page, world.clock.now()).await.unwrap(), Some(rev(1)));
    timeline.clear();
    world.pass(2 * DAY);
    let third = world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.settle().await;
    world.assert_stored(first.tid, "html", true).await;
    world.assert_stored(second.tid, "html", true).await;
    // The sweep does not need it.
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    world.assert_stored(second.tid, "html", true).await;
    world.assert_stored(third.tid, "html", true).await;
}

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

async fn culling_twice_is_culling_once(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    for number in 1..=4 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
    }
    world.pass(2 * DAY);
    assert_eq!(world.sweep().await.renders, 7);
    let once = world.dump().await;
    // Another process that has not got that far, with the queue from its beginning.
    for cursor in world.rows(&schemas::DUE_CURSORS).await {
        let mut forget = rashomon_tables::Batch::new(cursor.key.partition.clone());
        forget.delete(&schemas::DUE_CURSORS, Vec::new(), world.clock.now());
        world.store.write(Vec::new(), forget).await.unwrap();
    }
    // What is deleted in a moment stays deleted in it.
    world.pass(Duration::from_micros(1));
    let other = world.reopened().await;
    assert_eq!(other.sweep().await.renders, 0);
    let without_cursors = |dump: Vec<String>| {
        dump.into_iter().filter(|line| !line.starts_with("due_cursors")).collect::<Vec<_>>()
    };
    assert_eq!(without_cursors(other.dump().await), without_cursors(once));
}

async fn a_repeated_revision_is_known_after_its_bodies_went(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    let again = world.put_revision(&page, 1, HTML).await.unwrap();
    assert_eq!((again.tid, again.created), (first.tid, false));
    world.assert_stored(first.tid, "html", false).await;
    let taken_over = world.put_render_on(&page, RenderBase::Render(first.tid), &[("html", "x")]).await;
    assert!(taken_over.unwrap_err().to_string().contains("is gone"));
}

/// Who begins after some days does not ask for each hour of them: on a cluster each is a request.
#[tokio::test]
async fn a_sweep_after_days_looks_up_which_hours_have_notes() {
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
        // The hours of a day in each shard, and the notes.
        assert!((16 * 24..16 * 60).contains(&scans), "{scans}");
    }
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(DAY + policy().slack);
    assert_eq!(world.sweep().await.renders, 1, "what is noted after that is found");
}

/// A cull that fails is no error for the writer, and is made up for.
#[tokio::test]
async fn a_cull_that_fails_only_delays() {
    // The fourth write is the cull that the third begins.
    let plan = Plan::empty().on(Call::Write, 4, Fault::Before);
    let always = settings(Policy { delete_probability: 1.0, ..policy() });
    let (world, _) = World::with(|store| Faulty::new(store, plan), always).await;
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.buckets.settle().await;
    world.pass(2 * DAY);
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.buckets.settle().await;
    world.assert_stored(first.tid, "html", true).await;
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

/// What a sweep did that failed halfway counts, and what it did not get to is overdue.
#[tokio::test]
async fn a_sweep_that_fails_is_seen_by_whoever_watches() {
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
        let cut_off = world.buckets.sweep(NonZeroUsize::new(1000).unwrap()).await;
        most_overdue = most_overdue.max(world.buckets.retention_stats().overdue);
        store.set_plan(Plan::empty());
        world.sweep().await;
        let watched = world.buckets.retention_stats();
        assert_eq!((watched.culled_renders, watched.overdue), (2, Duration::ZERO), "{number}: {watched:?}");
        if cut_off.is_ok() {
            break;
        }
    }
    assert!(most_overdue > DAY / 2, "{most_overdue:?}");
}

/// Under a reservation rows get an earlier time than they are stored at. What goes by that with what was stored
/// then is known to have gone.
#[tokio::test]
async fn what_was_written_early_and_goes_early_is_gone_and_not_damaged() {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
    let (world, page) = (World::on(store, clock, settings(policy()), 1).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_revision(&page, 9, HTML).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(2 * policy().skew);
    // One that brings what its revision lacks.
    let early = world.put_render(&page, 1, &[("html", "<b>"), ("wikitext", "text")]).await.unwrap();
    world.pass(DAY + policy().skew);
    assert_eq!(world.sweep().await.renders, 1, "the note is that of revision 2");
    assert_eq!(world.read_if_kept(&page, early.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, early.tid, "wikitext").await, None);
    let revision = world.buckets.revision(&page, rev(1)).await.unwrap();
    assert!(revision.renders.iter().all(|render| !render.stored), "{revision:?}");
    world.assert_whole().await;
}
