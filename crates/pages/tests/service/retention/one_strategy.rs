//! The behaviour of single strategies: the values that two-table keeps, and the results of a failed delete or
//! a failed write of a `current` row.

use std::num::NonZeroU32;

use rashomon_pages::{Cull, Current, Fill, Policy, Strategy, schemas};
use rashomon_records::rows::TypedRow as _;
use rashomon_tables::{Call, Fault, Faulty, Plan, Row, Swap};

use crate::{
    retention::{DAY, HOUR, SECOND, policy, policy_with, settings, with_retention},
    support::{CurrentRow, World, name, noise, on_every_store, page, rev},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

on_every_store![
    two_table_does_not_copy_a_value_that_it_reads_from_the_content_table,
    two_table_keeps_the_newest_revisions,
    two_table_keeps_a_read_value_while_its_copy_exists,
    two_table_keeps_one_render_of_each_revision_if_only_renders_are_culled,
];

/// An exception to R3: a value that a read finds in the content table is not copied, and the next delete
/// deletes it.
async fn two_table_does_not_copy_a_value_that_it_reads_from_the_content_table(world: World) {
    // No write deletes, so superseded values wait for the sweep.
    let never = Policy { delete_probability: 0.0, ..policy_with(Strategy::TwoTable) };
    let (world, page) = (with_retention(world, never).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY + 6 * HOUR);
    assert_eq!(world.tables_with(first.tid, "html").await, ["render_content"], "the copy has expired");
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.sweep().await;
    world.pass(SECOND);
    assert_eq!(
        world.read_if_kept(&page, first.tid, "html").await,
        None,
        "the value is gone less than a ttl after the read"
    );
}

/// R3: the value is still in the content table too, since nothing has deleted it there. The read extends the
/// copy.
async fn two_table_keeps_a_read_value_while_its_copy_exists(world: World) {
    let never = Policy { delete_probability: 0.0, ..policy_with(Strategy::TwoTable) };
    let (world, page) = (with_retention(world, never).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - HOUR);
    let places = world.tables_with(first.tid, "html").await;
    assert!(places.contains(&"render_content") && places.contains(&"historical"), "{places:?}");
    for property in ["html", "wikitext"] {
        world.read(&page, first.tid, property).await;
    }
    for _ in 0..2 {
        world.pass(DAY - SECOND);
        world.sweep().await;
        world.assert_stored(first.tid, "html", false).await;
        for (property, body) in [("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")] {
            assert_eq!(world.read(&page, first.tid, property).await, body.as_bytes());
        }
    }
}

async fn two_table_keeps_the_newest_revisions(world: World) {
    let three = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..policy_with(Strategy::TwoTable) };
    let (world, page) = (with_retention(world, three).await, page("Main_Page"));
    let mut written = Vec::new();
    for number in 1..=5 {
        written.push(world.put_revision(&page, number, HTML).await.unwrap().tid);
    }
    world.pass(20 * DAY);
    world.sweep().await;
    for (tid, stays) in written.into_iter().zip([false, false, true, true, true]) {
        world.assert_stored(tid, "html", stays).await;
    }
    world.assert_consistent().await;
}

async fn two_table_keeps_one_render_of_each_revision_if_only_renders_are_culled(world: World) {
    let renders = Policy { cull: Cull::Renders, ..policy_with(Strategy::TwoTable) };
    let (world, page) = (with_retention(world, renders).await, page("Main_Page"));
    let one = world.put_revision(&page, 1, HTML).await.unwrap();
    let one_again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_stored(one.tid, "html", false).await;
    world.pass(20 * DAY);
    world.sweep().await;
    world.assert_stored(one_again.tid, "html", true).await;
    assert_eq!(world.read(&page, one_again.tid, "wikitext").await, b"text");
    world.assert_consistent().await;
}

/// R5: a failed delete is not an error for the writer, and the sweep deletes the value later.
#[tokio::test]
async fn failed_delete_is_completed_by_the_sweep() {
    // Under two-table, each revision is one write, and the delete is another. So the third write is the
    // delete.
    let plan = Plan::empty().on(Call::Write, 3, Fault::Before);
    let (world, _) =
        World::with(|store| Faulty::new(store, plan), settings(policy_with(Strategy::TwoTable))).await;
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_stored(first.tid, "html", true).await;
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_in_some_table(first.tid, "html", false).await;
    world.assert_consistent().await;
}

/// R5 in option B, where the delete is part of the write: both happen, or neither.
#[tokio::test]
async fn wide_row_delete_happens_with_its_write_or_not_at_all() {
    for fill in [Fill::CopyOnUpdate, Fill::CopyOnRead, Fill::WriteThrough] {
        for fault in [Fault::Before, Fault::After] {
            let wide_row = policy_with(Strategy::TablePerQuery(Current::WideRow, fill));
            let (world, store) =
                World::with(|store| Faulty::new(store, Plan::empty()), settings(wide_row)).await;
            let page = page("Main_Page");
            let first = world.put_revision(&page, 1, HTML).await.unwrap();
            store.set_plan(Plan::empty().on(Call::Write, 1, fault.clone()));
            world.put_revision(&page, 2, HTML).await.unwrap_err();
            store.set_plan(Plan::empty());
            let world = world.reopened().await;
            let has_happened = world.latest_rev(&page).await == Some(2);
            assert_eq!(has_happened, matches!(fault, Fault::After), "{fill:?}");
            world.assert_stored(first.tid, "html", !has_happened).await;
            world.put_revision(&page, 2, HTML).await.unwrap();
            world.assert_stored(first.tid, "html", false).await;
            world.assert_consistent().await;
        }
    }
}

/// A write that is interrupted between its batch and its `current` rows is not acknowledged, but can be read.
/// A repeat of the write, or the sweep, sets the rows before the copies expire.
#[tokio::test]
async fn current_row_of_an_interrupted_write_is_set_later() {
    for (fill, again) in [
        (Fill::CopyOnUpdate, true),
        (Fill::CopyOnUpdate, false),
        (Fill::CopyOnRead, false),
        (Fill::WriteThrough, false),
    ] {
        let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, fill));
        // The first three swaps belong to the first revision. Of the second, data-parsoid is set, wikitext
        // fails, and html, the last, is not reached.
        let plan = Plan::empty().on(Call::Swap, 5, Fault::Before);
        let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
        let page = page("Main_Page");
        world.put_revision(&page, 1, HTML).await.unwrap();
        let new: &[(&str, &str)] = &[("html", "<b>"), ("data-parsoid", "[]"), ("wikitext", "new")];
        world.pass(HOUR);
        world.put_revision(&page, 2, new).await.unwrap_err();
        assert_eq!(world.read_latest(&page, "html").await, b"<b>");
        assert_eq!(world.read_latest(&page, "wikitext").await, b"new");
        if again {
            assert!(!world.put_revision(&page, 2, new).await.unwrap().created);
        } else {
            world.pass(DAY + HOUR);
            world.sweep().await;
        }
        world.pass(100 * DAY);
        assert_eq!(world.read_latest(&page, "html").await, b"<b>");
        assert_eq!(world.read_latest(&page, "data-parsoid").await, b"[]");
        assert_eq!(world.read_latest(&page, "wikitext").await, b"new");
        world.assert_consistent().await;
    }
}

/// A writer that is interrupted while it sets the `current` rows leaves the old html, since html is set last.
#[tokio::test]
async fn html_is_the_last_current_row_to_be_set() {
    for number in 4..=6 {
        // The first three swaps belong to the first revision.
        let plan = Plan::empty().on(Call::Swap, number, Fault::Before);
        let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
        let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
        let page = page("Main_Page");
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap_err();
        let rows = world.typed_rows::<CurrentRow>().await;
        let html = rows.iter().find(|row| row.property == name("html")).unwrap();
        assert_eq!(html.rev, rev(1), "the call that failed is number {number}");
    }
}

/// R5: a failure to clear the row of a property that the latest lacks is not an error for the writer, and the
/// sweep clears the row later.
#[tokio::test]
async fn current_row_that_a_write_failed_to_clear_is_cleared_later() {
    // Four rows are set for the first revision and three for the second. Then the row of meta is cleared.
    let plan = Plan::empty().on(Call::Swap, 8, Fault::Before);
    let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
    let page = page("Main_Page");
    let with_meta = [HTML, &[("meta", "{}")]].concat();
    let first = world.put_revision(&page, 1, &with_meta).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert!(world.tables_with(first.tid, "meta").await.contains(&"current"), "the row was not cleared");
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_in_some_table(first.tid, "meta", false).await;
    world.assert_consistent().await;
}

/// The `current` row of a large body is set later too, and its chunks stay.
#[tokio::test]
async fn current_row_of_an_interrupted_write_of_a_large_body_is_set_later() {
    let plan = Plan::empty().on(Call::Swap, 6, Fault::Before);
    let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
    let page = page("Main_Page");
    let large = noise(1, 2_500_000);
    world.put_revision(&page, 1, HTML).await.unwrap();
    let new = [("html", &large[..]), ("data-parsoid", b"[]"), ("wikitext", b"new")];
    world.put_revision(&page, 2, &new).await.unwrap_err();
    world.pass(DAY + HOUR);
    world.sweep().await;
    world.pass(100 * DAY);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_consistent().await;
}

/// R2 for a write that was interrupted before it set its rows, and superseded before the sweep set them.
#[tokio::test]
async fn value_of_an_interrupted_write_is_readable_for_a_grace() {
    let plan = Plan::empty().on(Call::Swap, 4, Fault::Before);
    let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap_err();
    let second = world.buckets.latest_render(&page).await.unwrap().tid;
    world.pass(20 * HOUR);
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    for (property, body) in HTML {
        assert_eq!(world.read(&page, second, property).await, body.as_bytes());
    }
}

/// R2 and R4 for a latest value in its `current` row, when a write of another strategy supersedes it. No
/// write copies the value.
#[tokio::test]
async fn value_in_a_current_row_stays_for_a_grace() {
    let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    for by_a_render in [true, false] {
        let (world, page) =
            (with_retention(World::in_memory().await, one_row.clone()).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        // The copies of the value expire, and its queue entry waits for the sweep.
        world.pass(2 * DAY);
        let world = with_retention(world, policy()).await;
        match by_a_render {
            true => world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap(),
            false => world.put_revision(&page, 2, HTML).await.unwrap(),
        };
        world.pass(DAY - SECOND);
        world.sweep().await;
        assert_eq!(world.tables_with(first.tid, "html").await, ["current"]);
        assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
        world.pass(4 * DAY);
        world.sweep().await;
        world.assert_in_some_table(first.tid, "html", false).await;
        world.assert_consistent().await;
    }
}

/// `verify` reports a lost `current` row, and checks the bytes of each row.
#[tokio::test]
async fn verify_finds_a_lost_or_altered_row_of_the_latest() {
    let one_row = policy_with(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, page) = (with_retention(World::in_memory().await, one_row).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    world.assert_consistent().await;
    for row in world.rows(&schemas::CURRENT).await {
        let set = async |expected: Option<&Row>, new: Option<Row>| {
            let swapped =
                world.store.swap(Vec::new(), &schemas::CURRENT, &row.key, expected, new).await.unwrap();
            assert_eq!(swapped, Swap::Applied);
        };
        set(Some(&row), None).await;
        assert_eq!(world.verify().await.problems.len(), 1, "{:?}", row.key);
        let typed = CurrentRow::from_row(&row).unwrap();
        let altered = Row { values: CurrentRow { size: 1000, ..typed }.values(), ..row.clone() };
        set(None, Some(altered.clone())).await;
        assert!(!world.verify().await.problems.is_empty(), "{:?}", row.key);
        set(Some(&altered), Some(row.clone())).await;
        world.assert_consistent().await;
    }
}
