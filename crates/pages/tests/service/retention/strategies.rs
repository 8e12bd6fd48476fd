//! The promises R1 to R8 of `docs/retention.md` under the strategies other than `app-ttl`. If a strategy cannot
//! keep a promise, a test shows the exception. `docs/testing.md` has the table.

use rashomon_clock::Clock;
use rashomon_pages::{Current, Fill, Page, RenderBase, Strategy, Tid, schemas};
use rashomon_records::rows::{HistoricalKey, RowKey as _};
use rashomon_tables::Row;

use crate::{
    retention::{DAY, HOUR, SECOND, policy, policy_with, with_retention},
    support::{World, at, bytes, name, noise, on_every_store, page, rev},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// Makes the tests of one strategy.
macro_rules! under {
    ($($module:ident $strategy:expr => [$($test:ident),+ $(,)?];)+) => {
        $(mod $module {
            use super::*;

            $(async fn $test(world: World) {
                super::$test(world, $strategy).await;
            })+

            on_every_store![$($test),+];
        })+
    };
}

under! {
    two_table Strategy::TwoTable => [
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        superseded_value_is_readable_for_a_grace,
        values_superseded_by_two_writers_are_readable_for_a_grace,
        read_value_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        render_is_kept_and_culled_as_a_whole,
        replaced_value_gets_another_grace,
        strategy_uses_no_timeline,
        copies_last_long_enough_for_a_clock_ahead,
        value_replaced_by_a_clock_ahead_is_readable_for_a_grace,
        clock_jump_keeps_copies,
        large_bodies_are_copied_and_culled,
        values_of_another_strategy_are_found,
        imported_values_stay_for_a_grace,
        value_taken_over_by_a_render_is_found_among_copies,
    ];
    one_row_copied_on_update Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate) => [
        property_of_the_revision_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        superseded_value_is_readable_for_a_grace,
        values_superseded_by_two_writers_are_readable_for_a_grace,
        read_value_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        render_is_kept_and_culled_as_a_whole,
        replaced_value_gets_another_grace,
        strategy_uses_no_timeline,
        copies_last_long_enough_for_a_clock_ahead,
        value_replaced_by_a_clock_ahead_is_readable_for_a_grace,
        clock_jump_keeps_copies,
        large_bodies_are_copied_and_culled,
        values_of_another_strategy_are_found,
        imported_values_stay_for_a_grace,
        value_taken_over_by_a_render_is_found_among_copies,
        property_that_the_latest_lacks_is_deleted_by_the_write,
        property_is_found_by_revision,
    ];
    one_row_copied_on_read Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnRead) => [
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        value_not_read_recently_is_gone_when_superseded,
        read_value_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        property_that_the_latest_lacks_waits_for_the_sweep,
        strategy_uses_no_timeline,
        clock_jump_keeps_copied_values,
        values_of_another_strategy_are_found,
    ];
    one_row_written_through Strategy::TablePerQuery(Current::OneRow, Fill::WriteThrough) => [
        property_of_the_revision_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        value_not_read_recently_is_gone_when_superseded,
        value_read_before_its_copies_expire_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        property_that_the_latest_lacks_waits_for_the_sweep,
        strategy_uses_no_timeline,
        clock_jump_keeps_copied_values,
        values_of_another_strategy_are_found,
    ];
    wide_row_copied_on_update Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate) => [
        property_of_the_revision_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        superseded_value_is_readable_for_a_grace,
        values_superseded_by_two_writers_are_readable_for_a_grace,
        read_value_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        render_is_kept_and_culled_as_a_whole,
        replaced_value_gets_another_grace,
        strategy_uses_no_timeline,
        copies_last_long_enough_for_a_clock_ahead,
        value_replaced_by_a_clock_ahead_is_readable_for_a_grace,
        clock_jump_keeps_copies,
        large_bodies_are_copied_and_culled,
        values_of_another_strategy_are_found,
        imported_values_stay_for_a_grace,
        value_taken_over_by_a_render_is_found_among_copies,
        property_is_found_by_revision,
    ];
    wide_row_copied_on_read Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead) => [
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        value_not_read_recently_is_gone_when_superseded,
        read_value_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        render_is_kept_and_culled_as_a_whole,
        strategy_uses_no_timeline,
        clock_jump_keeps_copied_values,
        values_of_another_strategy_are_found,
    ];
    wide_row_written_through Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough) => [
        property_of_the_revision_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_is_kept,
        property_added_to_the_latest_revision_with_a_past_time_is_kept,
        value_not_read_recently_is_gone_when_superseded,
        value_read_before_its_copies_expire_is_readable_for_the_ttl,
        unread_superseded_value_is_culled,
        render_is_kept_and_culled_as_a_whole,
        strategy_uses_no_timeline,
        clock_jump_keeps_copied_values,
        values_of_another_strategy_are_found,
    ];
}

/// R1: the latest is the highest revision, and is kept permanently.
async fn latest_is_the_highest_and_is_kept(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    world.put_revision(&page, 5, HTML).await.unwrap();
    world.put_revision(&page, 3, HTML).await.unwrap();
    assert_eq!(world.latest_rev(&page).await, Some(5));
    world.pass(HOUR);
    world.put_revision(&page, 7, HTML).await.unwrap();
    let newest = world.put_render(&page, 7, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 6, HTML).await.unwrap();
    world.put_render(&page, 5, &[("html", "<i>"), ("data-parsoid", "[]")]).await.unwrap();
    for _ in 0..3 {
        world.pass(30 * DAY);
        world.sweep().await;
        assert_eq!(world.read_latest(&page, "html").await, b"<b>");
        assert_eq!(world.read_latest(&page, "data-parsoid").await, b"{}");
        assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
        assert_eq!(world.read(&page, newest.tid, "html").await, b"<b>");
        assert_eq!(world.read(&page, newest.tid, "wikitext").await, b"text");
    }
    assert_eq!(world.latest_rev(&page).await, Some(7));
    world.assert_consistent().await;
    let bodies = world.buckets.bodies(&page, &name("wikitext"), rev(1), rev(9)).await.unwrap();
    assert_eq!(bodies.keys().copied().collect::<Vec<_>>(), [rev(7)]);
}

/// R2, for a revision that was the latest for long, for a late revision, and for a render.
async fn superseded_value_is_readable_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let one = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(100 * DAY);
    let two = world.put_revision(&page, 2, HTML).await.unwrap();
    let two_again = world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 9, HTML).await.unwrap();
    let late = world.put_revision(&page, 4, HTML).await.unwrap();
    world.assert_stored(late.tid, "html", strategy == Strategy::TwoTable).await;
    world.sweep().await;
    world.pass(DAY - SECOND);
    world.sweep().await;
    for (tid, html) in [(one.tid, "<p>"), (two.tid, "<p>"), (two_again.tid, "<b>"), (late.tid, "<p>")] {
        world.assert_in_some_table(tid, "html", true).await;
        assert_eq!(world.read(&page, tid, "html").await, html.as_bytes());
        assert_eq!(world.read(&page, tid, "data-parsoid").await, b"{}");
        assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
    }
    world.assert_consistent().await;
}

/// R2 for two writers at once, whose writes arrive in the order 7, 6. No write copies 6 as a superseded
/// value, so each write copies its own values too, and none is lost.
async fn values_superseded_by_two_writers_are_readable_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let five = world.put_revision(&page, 5, HTML).await.unwrap();
    world.pass(100 * DAY);
    let seven = world.put_revision(&page, 7, HTML).await.unwrap();
    let six = world.put_revision(&page, 6, HTML).await.unwrap();
    world.put_revision(&page, 8, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    for tid in [five.tid, six.tid, seven.tid] {
        assert_eq!(world.read(&page, tid, "data-parsoid").await, b"{}");
    }
}

/// An exception to R2: if the write makes no copy, or the copy has expired, only recently read values are
/// kept.
async fn value_not_read_recently_is_gone_when_superseded(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(100 * DAY);
    world.sweep().await;
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_in_some_table(first.tid, "html", false).await;
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, first.tid, "wikitext").await, None);
    world.assert_consistent().await;
    // This render belongs to a revision that stays the latest.
    world.pass(100 * DAY);
    world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.assert_in_some_table(second.tid, "html", false).await;
    assert_eq!(world.read_latest(&page, "data-parsoid").await, b"{}");
    assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
    world.assert_consistent().await;
}

/// R3, for a superseded value and, if reads make the copies, for a value that was the latest when it was
/// read.
async fn read_value_is_readable_for_the_ttl(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(100 * DAY);
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    // This read may be answered from the cache.
    world.pass(20 * HOUR);
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    for _ in 0..4 {
        assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
        world.pass(HOUR);
        world.sweep().await;
        world.pass(DAY - HOUR - SECOND);
        world.sweep().await;
        assert_eq!(world.read(&page, first.tid, "data-parsoid").await, b"{}");
    }
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    world.assert_consistent().await;
}

/// R3, for a value that was superseded before its copies expired.
async fn value_read_before_its_copies_expire_is_readable_for_the_ttl(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 2, HTML).await.unwrap();
    for _ in 0..4 {
        world.pass(DAY - SECOND);
        world.sweep().await;
        assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
        assert_eq!(world.read(&page, first.tid, "data-parsoid").await, b"{}");
    }
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
}

/// R3, for a property of the revision. The property is copied with the render that was superseded last, or with the
/// render that added the property.
async fn property_of_the_revision_is_kept_with_a_render_that_was_read(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(HOUR);
    let again = [("html", "<b>"), ("data-parsoid", "[]"), ("slot-notes", "n")];
    world.put_render(&page, 1, &again).await.unwrap();
    for _ in 0..3 {
        world.pass(DAY - SECOND);
        assert_eq!(world.read(&page, first.tid, "slot-notes").await, b"n");
    }
    world.pass(DAY - SECOND);
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
}

/// R4, for a page that is never written again.
async fn unread_superseded_value_is_culled(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let mut superseded = vec![world.put_revision(&page, 1, HTML).await.unwrap().tid];
    world.pass(HOUR);
    superseded.push(world.put_revision(&page, 4, HTML).await.unwrap().tid);
    superseded.push(world.put_render(&page, 4, &[("html", "<b>")]).await.unwrap().tid);
    let latest = world.put_revision(&page, 5, HTML).await.unwrap();
    let late = world.put_revision(&page, 3, HTML).await.unwrap().tid;
    world.assert_in_some_table(late, "html", true).await;
    superseded.push(late);
    world.pass(DAY + policy().slack);
    world.sweep().await;
    for tid in superseded {
        world.assert_in_some_table(tid, "html", false).await;
        world.assert_in_some_table(tid, "data-parsoid", false).await;
        assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
        assert_eq!(world.read_if_kept(&page, tid, "wikitext").await, None);
    }
    for table in [&*schemas::HISTORICAL, &*schemas::BY_REV] {
        assert!(world.rows(table).await.is_empty(), "{}", table.name());
    }
    let current = world.rows(&schemas::CURRENT).await.len();
    let content =
        world.rows(&schemas::RENDER_CONTENT).await.len() + world.rows(&schemas::REVISION_CONTENT).await.len();
    assert_eq!(current + content, HTML.len(), "the latest is stored once");
    assert_eq!(world.read(&page, latest.tid, "html").await, b"<p>");
    world.assert_consistent().await;
}

/// R6: all properties of a render are in the same tables at any time.
async fn render_is_kept_and_culled_as_a_whole(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(20 * HOUR);
    let second = world.put_render(&page, 1, &[("html", "<b>"), ("meta", "{}")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    for _ in 0..20 {
        world.pass(2 * HOUR);
        world.sweep().await;
        let all =
            [world.tables_with(first.tid, "html").await, world.tables_with(first.tid, "data-parsoid").await];
        assert_eq!(all[0], all[1]);
        let all = [
            world.tables_with(second.tid, "html").await,
            world.tables_with(second.tid, "data-parsoid").await,
        ];
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], world.tables_with(second.tid, "meta").await);
    }
    world.assert_in_some_table(first.tid, "html", false).await;
}

/// R6: a replaced value can be read for another grace, with its whole render, whether the render is the
/// latest or not.
async fn replaced_value_gets_another_grace(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"mended");
    world.assert_stored(first.tid, "html", true).await;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await.as_deref(), Some(&b"mended"[..]));
    world.rewrite(&page, first.tid, "html", "again").await.unwrap();
    world.rewrite(&page, first.tid, "wikitext", "other").await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    world.assert_in_some_table(first.tid, "html", true).await;
    world.assert_in_some_table(first.tid, "data-parsoid", true).await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"again");
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"other");
    world.assert_consistent().await;
    world.pass(10 * DAY);
    world.sweep().await;
    world.assert_in_some_table(first.tid, "html", false).await;
    world.assert_consistent().await;
}

/// R7, which holds because these strategies have no timeline.
async fn strategy_uses_no_timeline(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    for number in 1..=3 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
        world.pass(HOUR);
    }
    assert!(world.rows(&schemas::REVISION_TIMELINE).await.is_empty());
    assert!(world.rows(&schemas::RENDER_TIMELINE).await.is_empty());
}

/// R8, for clocks that differ.
async fn copies_last_long_enough_for_a_clock_ahead(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(policy().slack + HOUR);
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.clock.set(now);
    world.put_revision(&page, 2, HTML).await.unwrap();
    let needed = world.clock.now().saturating_add(DAY).saturating_add(policy().skew);
    let copies = world.rows(&schemas::HISTORICAL).await;
    let is_of_first = |row: &&Row| HistoricalKey::of(row).unwrap().tid == first.tid;
    let of_first: Vec<_> = copies.iter().filter(is_of_first).collect();
    assert_eq!(of_first.len(), HTML.len());
    assert!(of_first.iter().all(|row| row.expires_at >= Some(needed)), "{of_first:?}");
}

/// R2: a process whose clock is ahead replaces a value, and its copies, just before the value is superseded.
/// The value is still copied.
async fn value_replaced_by_a_clock_ahead_is_readable_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * HOUR);
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.clock.set(now);
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await.as_deref(), Some(&b"mended"[..]));
    assert_eq!(world.read(&page, first.tid, "data-parsoid").await, b"{}");
}

/// R8: a copy stays readable after a clock jump, until its time has certainly passed.
async fn clock_jump_keeps_copies(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.sweep().await;
    world.pass(HOUR);
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.sweep().await;
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert!(world.sweep().await.paused);
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    // While the clock cannot be trusted, a superseded value is not deleted.
    let second = world.buckets.latest_render(&page).await.unwrap().tid;
    world.put_revision(&page, 3, HTML).await.unwrap();
    let is_one_row = matches!(strategy, Strategy::TablePerQuery(Current::OneRow, _));
    world.assert_stored(second, "html", !is_one_row).await;
    assert_eq!(world.read(&page, second, "html").await, b"<p>");
}

/// R8, for strategies under which only recently written or read values have copies.
async fn clock_jump_keeps_copied_values(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.sweep().await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
}

/// R1: a render with a past timestamp adds a property to the latest revision. The property belongs to the
/// latest render, although the added render is not the latest.
async fn property_added_to_the_latest_revision_with_a_past_time_is_kept(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_render_at(&page, 1, at(-1000), &[("html", "<b>"), ("wikitext", "text")]).await.unwrap();
    for _ in 0..3 {
        world.pass(DAY + HOUR);
        world.sweep().await;
        assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
        assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    }
    world.assert_consistent().await;
}

async fn large_bodies_are_copied_and_culled(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let large = noise(1, 2_500_000);
    let bodies = [("html", &large), ("wikitext", &large)];
    let first = world.put_revision(&page, 1, &bodies).await.unwrap();
    world.pass(10 * DAY);
    world.put_revision(&page, 2, &bodies).await.unwrap();
    world.pass(DAY - SECOND);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.read(&page, first.tid, "html").await, large);
    assert_eq!(world.read(&page, first.tid, "wikitext").await, large);
    // The reads may have copied the bodies again.
    world.pass(3 * DAY);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 6, "the chunks of the latest");
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_consistent().await;
}

/// Rescans the bucket of the page, as a server does when it starts.
async fn rescanned(world: World, page: &Page) -> World {
    world.rescan(page).await;
    world
}

/// Values that were stored under any strategy are found under the next strategy, without retention, and under
/// the first strategy again.
async fn values_of_another_strategy_are_found(world: World, strategy: Strategy) {
    let page = page("Main_Page");
    let zero = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(SECOND);
    let world = rescanned(with_retention(world, policy()).await, &page).await;
    let one = world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(SECOND);
    let world = rescanned(with_retention(world, policy_with(strategy)).await, &page).await;
    let two = world.put_revision(&page, 3, HTML).await.unwrap();
    for tid in [zero.tid, one.tid, two.tid] {
        // A strategy whose writes do not copy superseded values may lose them.
        let kept = world.read_if_kept(&page, tid, "html").await;
        let copies = !matches!(strategy, Strategy::TablePerQuery(_, Fill::WriteThrough | Fill::CopyOnRead));
        assert!(kept.is_some() || (!copies && tid != two.tid), "{tid}");
    }
    for next in [policy(), policy_with(Strategy::TwoTable), policy_with(strategy), policy()] {
        world.pass(SECOND);
        let world = rescanned(with_retention(world.reopened().await, next.clone()).await, &page).await;
        assert_eq!(world.read_latest(&page, "html").await, b"<p>");
        assert_eq!(world.read(&page, two.tid, "wikitext").await, b"text");
        world.rewrite(&page, two.tid, "html", format!("<p>{:?}", next.strategy)).await.unwrap();
        assert_eq!(world.read_latest(&page, "html").await, format!("<p>{:?}", next.strategy).as_bytes());
        world.rewrite(&page, two.tid, "html", "<p>").await.unwrap();
        world.assert_consistent().await;
        world.pass(2 * DAY);
        world.sweep().await;
    }
    world.pass(SECOND);
    let off = world.restarted_with(rashomon_pages::Settings::default()).await;
    assert_eq!(off.read_latest(&page, "data-parsoid").await, b"{}");
    off.put_revision(&page, 4, HTML).await.unwrap();
    assert_eq!(off.read(&page, two.tid, "html").await, b"<p>");
    let world = rescanned(with_retention(off, policy()).await, &page).await;
    world.pass(5 * DAY);
    world.sweep().await;
    world.assert_in_some_table(two.tid, "html", false).await;
    world.assert_consistent().await;
}

/// An import stores the same rows under every strategy. A write does not delete a value that no write has
/// copied.
async fn imported_values_stay_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let mut history = Vec::new();
    for number in 1..=5 {
        history.push(
            world.imported_revision(&page, number, at(number), format!("text {number}").as_bytes()).await,
        );
    }
    world.buckets.import(&page, history).await.unwrap();
    assert_eq!(world.read_latest(&page, "wikitext").await, b"text 5");
    world.put_revision(&page, 6, HTML).await.unwrap();
    world.put_revision(&page, 7, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    let imported = |number| Tid::imported(&page, rev(number), at(number));
    for number in 1..=5 {
        let text = format!("text {number}");
        assert_eq!(world.read(&page, imported(number), "wikitext").await, text.as_bytes());
    }
    world.pass(3 * DAY);
    world.sweep().await;
    assert_eq!(world.read_if_kept(&page, imported(4), "wikitext").await, None);
    world.assert_consistent().await;
}

/// A render of an older revision takes over a body that exists only as a copy.
async fn value_taken_over_by_a_render_is_found_among_copies(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    let again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    assert_eq!(world.read(&page, again.tid, "data-parsoid").await, b"{}");
    assert_eq!(world.read(&page, again.tid, "wikitext").await, b"text");
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    let on_first =
        world.put_render_on(&page, RenderBase::Render(first.tid), &[("meta", "{}")]).await.unwrap();
    assert_eq!(world.read(&page, on_first.tid, "html").await, b"<p>");
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
}

/// A write clears the `current` row of a property that the new render does not have.
async fn property_that_the_latest_lacks_is_deleted_by_the_write(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>"), ("meta", "{}")]).await.unwrap();
    for number in 2..=30 {
        world.put_revision(&page, number, HTML).await.unwrap();
        assert!(!world.tables_with(first.tid, "meta").await.contains(&"current"));
        world.pass(2 * HOUR);
        world.sweep().await;
    }
    assert_eq!(world.tables_with(first.tid, "meta").await, Vec::<&str>::new());
    assert!(world.buckets.latest(&page, &name("meta")).await.is_err());
    world.assert_consistent().await;
}

/// A write that copies no superseded values does not clear a `current` row that it does not set.
async fn property_that_the_latest_lacks_waits_for_the_sweep(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>"), ("meta", "{}")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert!(world.tables_with(first.tid, "meta").await.contains(&"current"));
    world.pass(DAY + policy().slack);
    world.sweep().await;
    assert_eq!(world.tables_with(first.tid, "meta").await, Vec::<&str>::new());
    assert!(world.buckets.latest(&page, &name("meta")).await.is_err());
    world.assert_consistent().await;
}

async fn property_is_found_by_revision(world: World, strategy: Strategy) {
    let (world, page) = (with_retention(world, policy_with(strategy)).await, page("Main_Page"));
    let html = name("html");
    let newest_with = async |number| world.buckets.newest_with(&page, rev(number), &html).await.unwrap();
    world.put_revision(&page, 1, HTML).await.unwrap();
    let again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    assert_eq!(newest_with(1).await, again.tid);
    world.pass(10 * DAY);
    assert_eq!(newest_with(1).await, again.tid, "the copies of the latest have expired");
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(newest_with(1).await, again.tid);
    assert_eq!(world.rows(&schemas::BY_REV).await.len(), 2 * HTML.len());
    let of_first = world.buckets.property(&page, again.tid, &html).await.unwrap();
    assert_eq!(bytes(&of_first).await, b"<b>");
    let is_in_by_rev = async || world.tables_with(again.tid, "html").await.contains(&"by_rev");
    world.put_render_at(&page, 1, at(-100), HTML).await.unwrap();
    assert!(is_in_by_rev().await, "a late render does not take its place");
    assert_eq!(newest_with(1).await, again.tid);
    // A rewrite deletes the old value from the table.
    world.rewrite(&page, again.tid, "html", "mended").await.unwrap();
    assert!(!is_in_by_rev().await);
    assert_eq!(world.read(&page, newest_with(1).await, "html").await, b"mended");
}
