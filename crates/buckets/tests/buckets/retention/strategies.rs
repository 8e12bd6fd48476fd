//! The same promises under the other strategies, as far as they can keep them; and where one cannot, by its
//! nature, a test that shows just that. `docs/testing.md` has the table.

use rashomon_buckets::{Current, Fill, Page, RenderBase, Strategy, Tid, schemas};
use rashomon_clock::Clock;

use crate::{
    retention::{DAY, HOUR, SECOND, by, policy, retaining, tid_value},
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
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_is_superseded_can_be_read_for_a_grace,
        what_two_writers_superseded_can_be_read_for_a_grace,
        what_was_read_can_be_read_for_its_time,
        what_nobody_reads_goes,
        a_render_stays_and_goes_as_a_whole,
        what_is_replaced_gets_its_time_again,
        nothing_rests_on_the_timeline,
        copies_stand_long_enough_for_a_clock_that_is_ahead,
        what_a_clock_ahead_replaced_can_be_read_for_a_grace,
        a_jump_of_the_clock_expires_copies,
        large_bodies_are_copied_and_go,
        what_another_strategy_wrote_is_found,
        what_is_imported_stays_for_a_grace,
        what_is_taken_over_is_found_among_copies,
    ];
    one_row_copied_on_update Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate) => [
        what_its_revision_has_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_is_superseded_can_be_read_for_a_grace,
        what_two_writers_superseded_can_be_read_for_a_grace,
        what_was_read_can_be_read_for_its_time,
        what_nobody_reads_goes,
        a_render_stays_and_goes_as_a_whole,
        what_is_replaced_gets_its_time_again,
        nothing_rests_on_the_timeline,
        copies_stand_long_enough_for_a_clock_that_is_ahead,
        what_a_clock_ahead_replaced_can_be_read_for_a_grace,
        a_jump_of_the_clock_expires_copies,
        large_bodies_are_copied_and_go,
        what_another_strategy_wrote_is_found,
        what_is_imported_stays_for_a_grace,
        what_is_taken_over_is_found_among_copies,
        what_the_latest_lacks_goes_too,
        what_is_asked_for_by_revision_is_found,
    ];
    one_row_copied_on_read Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnRead) => [
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_nobody_read_lately_is_gone_when_superseded,
        what_was_read_can_be_read_for_its_time,
        what_nobody_reads_goes,
        what_the_latest_lacks_waits_for_the_sweep,
        nothing_rests_on_the_timeline,
        a_jump_of_the_clock_expires_what_was_copied,
        what_another_strategy_wrote_is_found,
    ];
    one_row_written_through Strategy::TablePerQuery(Current::OneRow, Fill::WriteThrough) => [
        what_its_revision_has_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_nobody_read_lately_is_gone_when_superseded,
        what_was_read_in_time_can_be_read_for_its_time,
        what_nobody_reads_goes,
        what_the_latest_lacks_waits_for_the_sweep,
        nothing_rests_on_the_timeline,
        a_jump_of_the_clock_expires_what_was_copied,
        what_another_strategy_wrote_is_found,
    ];
    wide_row_copied_on_update Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate) => [
        what_its_revision_has_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_is_superseded_can_be_read_for_a_grace,
        what_two_writers_superseded_can_be_read_for_a_grace,
        what_was_read_can_be_read_for_its_time,
        what_nobody_reads_goes,
        a_render_stays_and_goes_as_a_whole,
        what_is_replaced_gets_its_time_again,
        nothing_rests_on_the_timeline,
        copies_stand_long_enough_for_a_clock_that_is_ahead,
        what_a_clock_ahead_replaced_can_be_read_for_a_grace,
        a_jump_of_the_clock_expires_copies,
        large_bodies_are_copied_and_go,
        what_another_strategy_wrote_is_found,
        what_is_imported_stays_for_a_grace,
        what_is_taken_over_is_found_among_copies,
        what_is_asked_for_by_revision_is_found,
    ];
    wide_row_copied_on_read Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead) => [
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_nobody_read_lately_is_gone_when_superseded,
        what_was_read_can_be_read_for_its_time,
        what_nobody_reads_goes,
        a_render_stays_and_goes_as_a_whole,
        nothing_rests_on_the_timeline,
        a_jump_of_the_clock_expires_what_was_copied,
        what_another_strategy_wrote_is_found,
    ];
    wide_row_written_through Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough) => [
        what_its_revision_has_is_kept_with_a_render_that_was_read,
        latest_is_the_highest_and_stays,
        what_history_adds_to_the_latest_revision_stays,
        what_nobody_read_lately_is_gone_when_superseded,
        what_was_read_in_time_can_be_read_for_its_time,
        what_nobody_reads_goes,
        a_render_stays_and_goes_as_a_whole,
        nothing_rests_on_the_timeline,
        a_jump_of_the_clock_expires_what_was_copied,
        what_another_strategy_wrote_is_found,
    ];
}

/// R1.
async fn latest_is_the_highest_and_stays(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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
    world.assert_whole().await;
    let bodies = world.buckets.bodies(&page, &name("wikitext"), rev(1), rev(9)).await.unwrap();
    assert_eq!(bodies.keys().copied().collect::<Vec<_>>(), [rev(7)]);
}

/// R2, of a page that stood for long, of a revision that came late, and of a render.
async fn what_is_superseded_can_be_read_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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
        world.assert_somewhere(tid, "html", true).await;
        assert_eq!(world.read(&page, tid, "html").await, html.as_bytes());
        assert_eq!(world.read(&page, tid, "data-parsoid").await, b"{}");
        assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
    }
    world.assert_whole().await;
}

/// R2: both read 5, and write 6 and 7. The copy that each makes of its own saves the other's.
async fn what_two_writers_superseded_can_be_read_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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

/// Not R2: without a copy at the write, or with one from long ago, nothing stays but what was read lately.
async fn what_nobody_read_lately_is_gone_when_superseded(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(100 * DAY);
    world.sweep().await;
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_somewhere(first.tid, "html", false).await;
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, first.tid, "wikitext").await, None);
    world.assert_whole().await;
    // The same of a render of a revision that stays.
    world.pass(100 * DAY);
    world.put_render(&page, 2, &[("html", "<b>")]).await.unwrap();
    world.assert_somewhere(second.tid, "html", false).await;
    assert_eq!(world.read_latest(&page, "data-parsoid").await, b"{}");
    assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
    world.assert_whole().await;
}

/// R3, of what was superseded, and (where reading is what copies) of what was the latest when it was read.
async fn what_was_read_can_be_read_for_its_time(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(100 * DAY);
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    // Once more, from memory.
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
    world.assert_whole().await;
}

/// R3, of what was superseded before its copies expired.
async fn what_was_read_in_time_can_be_read_for_its_time(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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

/// R3, of what a revision has: it is copied with whichever of its renders was superseded last, or brought it.
async fn what_its_revision_has_is_kept_with_a_render_that_was_read(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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

/// R4, on a page that is never written again.
async fn what_nobody_reads_goes(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let mut gone = vec![world.put_revision(&page, 1, HTML).await.unwrap().tid];
    world.pass(HOUR);
    gone.push(world.put_revision(&page, 4, HTML).await.unwrap().tid);
    gone.push(world.put_render(&page, 4, &[("html", "<b>")]).await.unwrap().tid);
    let latest = world.put_revision(&page, 5, HTML).await.unwrap();
    let late = world.put_revision(&page, 3, HTML).await.unwrap().tid;
    world.assert_somewhere(late, "html", true).await;
    gone.push(late);
    world.pass(DAY + policy().slack);
    world.sweep().await;
    for tid in gone {
        world.assert_somewhere(tid, "html", false).await;
        world.assert_somewhere(tid, "data-parsoid", false).await;
        assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
        assert_eq!(world.read_if_kept(&page, tid, "wikitext").await, None);
    }
    for table in [&*schemas::HISTORICAL, &*schemas::BY_REV] {
        assert!(world.rows(table).await.is_empty(), "{}", table.name());
    }
    let current = world.rows(&schemas::CURRENT).await.len();
    let content =
        world.rows(&schemas::RENDER_CONTENT).await.len() + world.rows(&schemas::REVISION_CONTENT).await.len();
    assert_eq!(current + content, HTML.len(), "the latest, once");
    assert_eq!(world.read(&page, latest.tid, "html").await, b"<p>");
    world.assert_whole().await;
}

/// R6.
async fn a_render_stays_and_goes_as_a_whole(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(20 * HOUR);
    let second = world.put_render(&page, 1, &[("html", "<b>"), ("meta", "{}")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    for _ in 0..20 {
        world.pass(2 * HOUR);
        world.sweep().await;
        let all = [world.places(first.tid, "html").await, world.places(first.tid, "data-parsoid").await];
        assert_eq!(all[0], all[1]);
        let all = [world.places(second.tid, "html").await, world.places(second.tid, "data-parsoid").await];
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], world.places(second.tid, "meta").await);
    }
    world.assert_somewhere(first.tid, "html", false).await;
}

/// R6: what is replaced can be read for another grace, with all of its render, whether it is the latest or not.
async fn what_is_replaced_gets_its_time_again(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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
    world.assert_somewhere(first.tid, "html", true).await;
    world.assert_somewhere(first.tid, "data-parsoid", true).await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"again");
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"other");
    world.assert_whole().await;
    world.pass(10 * DAY);
    world.sweep().await;
    world.assert_somewhere(first.tid, "html", false).await;
    world.assert_whole().await;
}

/// R7, which is kept by having none.
async fn nothing_rests_on_the_timeline(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    for number in 1..=3 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
        world.pass(HOUR);
    }
    assert!(world.rows(&schemas::REVISION_TIMELINE).await.is_empty());
    assert!(world.rows(&schemas::RENDER_TIMELINE).await.is_empty());
}

/// R8, of clocks that differ.
async fn copies_stand_long_enough_for_a_clock_that_is_ahead(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(policy().slack + HOUR);
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.clock.set(now);
    world.put_revision(&page, 2, HTML).await.unwrap();
    let needed = world.clock.now().saturating_add(DAY).saturating_add(policy().skew);
    let copies = world.rows(&schemas::HISTORICAL).await;
    let tid = tid_value(first.tid);
    let of_first: Vec<_> = copies.iter().filter(|row| row.key.clustering[1] == tid).collect();
    assert_eq!(of_first.len(), HTML.len());
    assert!(of_first.iter().all(|row| row.expires_at >= Some(needed)), "{of_first:?}");
}

/// R2: what a clock that is ahead replaced just before it was superseded, in its copies too, is copied all the same.
async fn what_a_clock_ahead_replaced_can_be_read_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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

/// Not R8, of a clock that jumps: rows expire by it, whether it is right or not. What is for good stays.
async fn a_jump_of_the_clock_expires_copies(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.sweep().await;
    world.pass(HOUR);
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.sweep().await;
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert!(world.sweep().await.paused);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    // What a write supersedes while the clock cannot be trusted is deleted by nobody.
    let second = world.buckets.latest_render(&page).await.unwrap().tid;
    world.put_revision(&page, 3, HTML).await.unwrap();
    let is_one_row = matches!(strategy, Strategy::TablePerQuery(Current::OneRow, _));
    world.assert_stored(second, "html", !is_one_row).await;
    assert_eq!(world.read(&page, second, "html").await, b"<p>");
}

/// Not R8 either, where only what was written or read lately has copies.
async fn a_jump_of_the_clock_expires_what_was_copied(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.sweep().await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.clock.set(world.clock.now().saturating_add(30 * DAY));
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
}

/// R1: what a render of history brings of the latest revision belongs to the latest, though the render does not.
async fn what_history_adds_to_the_latest_revision_stays(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_render_at(&page, 1, at(-1000), &[("html", "<b>"), ("wikitext", "text")]).await.unwrap();
    for _ in 0..3 {
        world.pass(DAY + HOUR);
        world.sweep().await;
        assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
        assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    }
    world.assert_whole().await;
}

async fn large_bodies_are_copied_and_go(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let large = noise(1, 2_500_000);
    let bodies = [("html", &large), ("wikitext", &large)];
    let first = world.put_revision(&page, 1, &bodies).await.unwrap();
    world.pass(10 * DAY);
    world.put_revision(&page, 2, &bodies).await.unwrap();
    world.pass(DAY - SECOND);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.read(&page, first.tid, "html").await, large);
    assert_eq!(world.read(&page, first.tid, "wikitext").await, large);
    // The read may have copied it once more.
    world.pass(3 * DAY);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 6, "those of the latest");
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_whole().await;
}

/// What stands is noted as due, as a server does when it starts.
async fn walked(world: World, page: &Page) -> World {
    world.walk(page).await;
    world
}

/// Whatever wrote it, it is found: under the next strategy, under none, and back.
async fn what_another_strategy_wrote_is_found(world: World, strategy: Strategy) {
    let page = page("Main_Page");
    let zero = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(SECOND);
    let world = walked(retaining(world, policy()).await, &page).await;
    let one = world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(SECOND);
    let world = walked(retaining(world, by(strategy)).await, &page).await;
    let two = world.put_revision(&page, 3, HTML).await.unwrap();
    for tid in [zero.tid, one.tid, two.tid] {
        // What writes without copies takes the place of is theirs to lose.
        let kept = world.read_if_kept(&page, tid, "html").await;
        let copies = !matches!(strategy, Strategy::TablePerQuery(_, Fill::WriteThrough | Fill::CopyOnRead));
        assert!(kept.is_some() || (!copies && tid != two.tid), "{tid}");
    }
    for next in [policy(), by(Strategy::TwoTable), by(strategy), policy()] {
        world.pass(SECOND);
        let world = walked(retaining(world.reopened().await, next.clone()).await, &page).await;
        assert_eq!(world.read_latest(&page, "html").await, b"<p>");
        assert_eq!(world.read(&page, two.tid, "wikitext").await, b"text");
        world.rewrite(&page, two.tid, "html", format!("<p>{:?}", next.strategy)).await.unwrap();
        assert_eq!(world.read_latest(&page, "html").await, format!("<p>{:?}", next.strategy).as_bytes());
        world.rewrite(&page, two.tid, "html", "<p>").await.unwrap();
        world.assert_whole().await;
        world.pass(2 * DAY);
        world.sweep().await;
    }
    world.pass(SECOND);
    let off = world.under(rashomon_buckets::Settings::default()).await;
    assert_eq!(off.read_latest(&page, "data-parsoid").await, b"{}");
    off.put_revision(&page, 4, HTML).await.unwrap();
    assert_eq!(off.read(&page, two.tid, "html").await, b"<p>");
    let world = walked(retaining(off, policy()).await, &page).await;
    world.pass(5 * DAY);
    world.sweep().await;
    world.assert_somewhere(two.tid, "html", false).await;
    world.assert_whole().await;
}

/// A history lies where it would in any strategy; what a write did not copy, no write deletes.
async fn what_is_imported_stays_for_a_grace(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let mut history = Vec::new();
    for number in 1..=5 {
        history.push(world.history(&page, number, at(number), format!("text {number}").as_bytes()).await);
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
    world.assert_whole().await;
}

/// A render of an older revision takes over what lies among the copies alone.
async fn what_is_taken_over_is_found_among_copies(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
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

/// The row of a property that newer renders do not have.
async fn what_the_latest_lacks_goes_too(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>"), ("meta", "{}")]).await.unwrap();
    for number in 2..=30 {
        world.put_revision(&page, number, HTML).await.unwrap();
        assert!(!world.places(first.tid, "meta").await.contains(&"current"));
        world.pass(2 * HOUR);
        world.sweep().await;
    }
    assert_eq!(world.places(first.tid, "meta").await, Vec::<&str>::new());
    assert!(world.buckets.latest(&page, &name("meta")).await.is_err());
    world.assert_whole().await;
}

/// Where a write copies nothing, it takes nothing out of a row that it does not set.
async fn what_the_latest_lacks_waits_for_the_sweep(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>"), ("meta", "{}")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert!(world.places(first.tid, "meta").await.contains(&"current"));
    world.pass(DAY + policy().slack);
    world.sweep().await;
    assert_eq!(world.places(first.tid, "meta").await, Vec::<&str>::new());
    assert!(world.buckets.latest(&page, &name("meta")).await.is_err());
    world.assert_whole().await;
}

async fn what_is_asked_for_by_revision_is_found(world: World, strategy: Strategy) {
    let (world, page) = (retaining(world, by(strategy)).await, page("Main_Page"));
    let html = name("html");
    let newest_with = async |number| world.buckets.newest_with(&page, rev(number), &html).await.unwrap();
    world.put_revision(&page, 1, HTML).await.unwrap();
    let again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    assert_eq!(newest_with(1).await, again.tid);
    world.pass(10 * DAY);
    assert_eq!(newest_with(1).await, again.tid, "the latest, whose copies have expired");
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(newest_with(1).await, again.tid);
    assert_eq!(world.rows(&schemas::BY_REV).await.len(), 2 * HTML.len());
    let of_first = world.buckets.property(&page, again.tid, &html).await.unwrap();
    assert_eq!(bytes(&of_first).await, b"<b>");
    let lies_by_rev = async || world.places(again.tid, "html").await.contains(&"by_rev");
    world.put_render_at(&page, 1, at(-100), HTML).await.unwrap();
    assert!(lies_by_rev().await, "what comes late does not take its place");
    assert_eq!(newest_with(1).await, again.tid);
    // What is replaced is not found there as it was.
    world.rewrite(&page, again.tid, "html", "mended").await.unwrap();
    assert!(!lies_by_rev().await);
    assert_eq!(world.read(&page, newest_with(1).await, "html").await, b"mended");
}
