//! What is one strategy's alone: two-table's corner case and what it keeps, and what becomes of a delete or a row of
//! the latest that fails.

use std::num::NonZeroU32;

use rashomon_buckets::{Cull, Current, Fill, Policy, Strategy, schemas};
use rashomon_tables::{Call, Fault, Faulty, Plan, Row, Swap, Value};

use crate::{
    DAY, HOUR, SECOND, by, policy, retaining, settings,
    support::{World, on_every_store, page},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

on_every_store![
    two_table_does_not_keep_what_it_finds_among_the_current,
    two_table_keeps_the_newest_revisions,
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

/// A write that was cut off between its batch and the rows of the latest has not been acknowledged. It is read
/// all the same, and either the same again or the sweep finishes it before its copies expire.
#[tokio::test]
async fn a_row_that_was_not_set_is_set_later() {
    let one_row = by(Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate));
    for again in [true, false] {
        // The first three are those of the first revision; then data-parsoid is set, and html last.
        let plan = Plan::empty().on(Call::Swap, 5, Fault::Before);
        let (world, _) = World::with(|store| Faulty::new(store, plan), settings(one_row.clone())).await;
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
