//! What is one strategy's alone: two-table's corner case and what it keeps, and what becomes of a delete or a row of
//! the latest that fails.

use std::num::NonZeroU32;

use rashomon_buckets::{Cull, Current, Fill, Policy, Strategy, schemas};
use rashomon_tables::{Call, Fault, Faulty, Plan, Row, Swap, Value};

use crate::{
    retention::{DAY, HOUR, SECOND, by, policy, retaining, settings},
    support::{World, noise, on_every_store, page},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

on_every_store![
    two_table_does_not_keep_what_it_finds_among_the_current,
    two_table_keeps_the_newest_revisions,
    two_table_keeps_what_it_finds_among_the_current_while_its_copy_stands,
    where_only_renders_go_two_table_keeps_one_of_each_revision,
];

/// Not R3: what is found among the current ones is not copied, and goes with the next delete.
async fn two_table_does_not_keep_what_it_finds_among_the_current(world: World) {
    // No write deletes, so that what is superseded waits for the sweep.
    let never = Policy { delete_probability: 0.0, ..by(Strategy::TwoTable) };
    let (world, page) = (retaining(world, never).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY + 6 * HOUR);
    assert_eq!(world.places(first.tid, "html").await, ["render_content"], "its copy has expired");
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.sweep().await;
    world.pass(SECOND);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None, "less than a ttl after it was read");
}

/// R3: of what is found among the current ones, too, since nothing has deleted it there, the copy is what stays.
async fn two_table_keeps_what_it_finds_among_the_current_while_its_copy_stands(world: World) {
    let never = Policy { delete_probability: 0.0, ..by(Strategy::TwoTable) };
    let (world, page) = (retaining(world, never).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - HOUR);
    let places = world.places(first.tid, "html").await;
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
    let three = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..by(Strategy::TwoTable) };
    let (world, page) = (retaining(world, three).await, page("Main_Page"));
    let mut written = Vec::new();
    for number in 1..=5 {
        written.push(world.put_revision(&page, number, HTML).await.unwrap().tid);
    }
    world.pass(20 * DAY);
    world.sweep().await;
    for (tid, stays) in written.into_iter().zip([false, false, true, true, true]) {
        world.assert_stored(tid, "html", stays).await;
    }
    world.assert_whole().await;
}

async fn where_only_renders_go_two_table_keeps_one_of_each_revision(world: World) {
    let renders = Policy { cull: Cull::Renders, ..by(Strategy::TwoTable) };
    let (world, page) = (retaining(world, renders).await, page("Main_Page"));
    let one = world.put_revision(&page, 1, HTML).await.unwrap();
    let one_again = world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_stored(one.tid, "html", false).await;
    world.pass(20 * DAY);
    world.sweep().await;
    world.assert_stored(one_again.tid, "html", true).await;
    assert_eq!(world.read(&page, one_again.tid, "wikitext").await, b"text");
    world.assert_whole().await;
}

/// R5: a delete that fails is no error for the writer, and the sweep makes up for it.
#[tokio::test]
async fn a_delete_that_fails_only_delays() {
    // Of each revision a write is what two-table does, and the next its delete.
    let plan = Plan::empty().on(Call::Write, 3, Fault::Before);
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(by(Strategy::TwoTable))).await;
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.assert_stored(first.tid, "html", true).await;
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_somewhere(first.tid, "html", false).await;
    world.assert_whole().await;
}

/// R5 in option B, where the delete is part of the write: it fails with the write, and is done when that is done.
#[tokio::test]
async fn in_a_wide_row_a_delete_happens_with_its_write_or_not_at_all() {
    for fill in [Fill::CopyOnUpdate, Fill::CopyOnRead, Fill::WriteThrough] {
        for fault in [Fault::Before, Fault::After] {
            let wide_row = by(Strategy::TablePerQuery(Current::WideRow, fill));
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
            world.assert_whole().await;
        }
    }
}

/// A write that was cut off between its batch and the rows of the latest has not been acknowledged. It is read
/// all the same, and either the same again or the sweep finishes it before its copies expire.
#[tokio::test]
async fn a_row_that_was_not_set_is_set_later() {
    for (fill, again) in [
        (Fill::CopyOnUpdate, true),
        (Fill::CopyOnUpdate, false),
        (Fill::CopyOnRead, false),
        (Fill::WriteThrough, false),
    ] {
        let one_row = by(Strategy::TablePerQuery(Current::OneRow, fill));
        // The first three are those of the first revision; then data-parsoid is set, and html last.
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
        world.assert_whole().await;
    }
}

/// A writer that goes away between the rows of the latest leaves the html that was: html is set last.
#[tokio::test]
async fn html_is_set_after_what_belongs_to_it() {
    for number in 4..=6 {
        // The first three are those of the first revision.
        let plan = Plan::empty().on(Call::Swap, number, Fault::Before);
        let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
        let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
        let page = page("Main_Page");
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap_err();
        let rows = world.rows(&schemas::CURRENT).await;
        let html = rows.iter().find(|row| row.key.clustering == [Value::from("html")]).unwrap();
        assert_eq!(html.values[6], Some(Value::Int(1)), "the call that failed is number {number}");
    }
}

/// R5: where the row of what the latest lacks cannot be cleared, the writer is none the wiser, and the sweep does it.
#[tokio::test]
async fn a_row_that_was_not_cleared_is_cleared_later() {
    // Four rows are set for the first revision and three for the second; then that of meta is cleared.
    let plan = Plan::empty().on(Call::Swap, 8, Fault::Before);
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
    let page = page("Main_Page");
    let with_meta = [HTML, &[("meta", "{}")]].concat();
    let first = world.put_revision(&page, 1, &with_meta).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert!(world.places(first.tid, "meta").await.contains(&"current"), "it was to be cleared");
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_somewhere(first.tid, "meta", false).await;
    world.assert_whole().await;
}

/// The same of a large body, whose chunks then stay as well.
#[tokio::test]
async fn a_large_row_that_was_not_set_is_set_later() {
    let plan = Plan::empty().on(Call::Swap, 6, Fault::Before);
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row)).await;
    let page = page("Main_Page");
    let large = noise(1, 2_500_000);
    world.put_revision(&page, 1, HTML).await.unwrap();
    let new = [("html", &large[..]), ("data-parsoid", b"[]"), ("wikitext", b"new")];
    world.put_revision(&page, 2, &new).await.unwrap_err();
    world.pass(DAY + HOUR);
    world.sweep().await;
    world.pass(100 * DAY);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, large);
    world.assert_whole().await;
}

/// R2 of what was cut off before its rows were set, and superseded before the sweep finished it.
#[tokio::test]
async fn what_was_not_set_can_be_read_for_a_grace() {
    let plan = Plan::empty().on(Call::Swap, 4, Fault::Before);
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
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

/// R2 and R4 of the latest that lies in its one row, once another strategy writes what supersedes it: neither write
/// copies it.
#[tokio::test]
async fn what_lies_in_the_row_of_the_latest_stays_for_a_grace() {
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    for by_a_render in [true, false] {
        let (world, page) = (retaining(World::in_memory().await, one_row.clone()).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        // Its copies expire, and its note waits for the sweep.
        world.pass(2 * DAY);
        let world = retaining(world, policy()).await;
        match by_a_render {
            true => world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap(),
            false => world.put_revision(&page, 2, HTML).await.unwrap(),
        };
        world.pass(DAY - SECOND);
        world.sweep().await;
        assert_eq!(world.places(first.tid, "html").await, ["current"]);
        assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
        world.pass(4 * DAY);
        world.sweep().await;
        world.assert_somewhere(first.tid, "html", false).await;
        world.assert_whole().await;
    }
}

/// The one row that the latest lies in is missed when it is lost, and looked at byte by byte.
#[tokio::test]
async fn a_row_of_the_latest_that_is_lost_or_altered_is_found() {
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    let (world, page) = (retaining(World::in_memory().await, one_row).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    world.assert_whole().await;
    for row in world.rows(&schemas::CURRENT).await {
        let set = async |expected: Option<&Row>, new: Option<Row>| {
            let swapped = world.store.swap(&schemas::CURRENT, &row.key, expected, new).await.unwrap();
            assert_eq!(swapped, Swap::Applied);
        };
        set(Some(&row), None).await;
        assert_eq!(world.verify().await.problems.len(), 1, "{:?}", row.key);
        let mut altered = row.clone();
        altered.values[1] = Some(Value::Int(1000));
        set(None, Some(altered.clone())).await;
        assert!(!world.verify().await.problems.is_empty(), "{:?}", row.key);
        set(Some(&altered), Some(row.clone())).await;
        world.assert_whole().await;
    }
}
