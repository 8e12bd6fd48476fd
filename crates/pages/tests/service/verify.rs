//! `verify` finds all damage and nothing else, and the statistics add up.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, Timestamp};
use rashomon_pages::{Error, Tid, schemas};
use rashomon_records::rows::{
    ChunkRow, ColumnValue as _, RowKey as _, TidRow, TimeKey, TypedRow as _, partition_of,
};
use rashomon_tables::{Batch, Call, Fault, Faulty, Plan, Row, Schema, Value};

use crate::support::{AnyStore, World, at, column_mut, name, noise, page, page_of, rev};

/// A store with rows in each table that the tests damage: three pages, several renders, a body in chunks,
/// rewrites.
async fn world() -> (World, Arc<Faulty<AnyStore>>) {
    let (world, store) = World::over(|store| Faulty::new(store, Plan::empty())).await;
    let main = page("Main_Page");
    let large = noise(1, 1_000_001);
    let bodies = [("html", &b"html"[..]), ("meta", &large), ("wikitext", b"text")];
    let first = world.put_revision(&main, 5, &bodies).await.unwrap().tid;
    world.put_render(&main, 5, &[("html", "html again, again, again, again, again, again")]).await.unwrap();
    world.rewrite(&main, first, "html", "rewritten").await.unwrap();
    world.put_revision(&main, 6, &[("html", "six"), ("wikitext", "text")]).await.unwrap();
    world.put_revision(&page("Other"), 1, &[("html", "other")]).await.unwrap();
    let revision = world.imported_revision(&page_of("dewiki", "Seite"), 7, at(-50), b"Text").await;
    world.buckets.import(&page_of("dewiki", "Seite"), vec![revision]).await.unwrap();
    let info = rashomon_pages::PageInfo {
        as_of: rev(7),
        page_id: Some(1),
        namespace: None,
        redirect: None,
        restrictions: None,
    };
    world.buckets.catalog().put_page_info(&page_of("dewiki", "Seite"), &info).await.unwrap();
    let site = serde_json::from_str("{}").unwrap();
    world.buckets.catalog().put_site_info(&page("x").domain, &site).await.unwrap();
    (world, store)
}

async fn put(world: &World, table: &'static Schema, row: &Row) {
    world.pass(Duration::from_secs(1));
    let mut batch = Batch::new(row.key.partition.clone());
    batch.put(table, row.key.clustering.clone(), row.values.clone(), world.clock.now());
    world.store.write(Vec::new(), batch).await.unwrap();
}

async fn delete(world: &World, table: &'static Schema, row: &Row) {
    let mut batch = Batch::new(row.key.partition.clone());
    batch.delete(table, row.key.clustering.clone(), row.written_at);
    world.store.write(Vec::new(), batch).await.unwrap();
}

#[tokio::test]
async fn verify_finds_nothing_in_an_undamaged_store() {
    let (world, _) = world().await;
    let mut progress = Vec::new();
    let report = rashomon_pages::operations::verify(&world.buckets, &mut |now| progress.push(now.items))
        .await
        .unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.pages, report.revisions, report.renders), (3, 4, 5));
    assert_eq!(report.bodies, 2 + 2 + 1 + 2 + 1 + 1);
    assert!(progress.is_sorted() && progress.last() == Some(&report.bodies));
}

/// Tables that these tests leave out, for one of these reasons:
///
/// - The table has queue entries, leases, timelines or copies. If one is lost, no data is lost.
/// - Only retention, the archive or erasures use the table, or it has the time that has passed. The tests of retention
///   and of the archive test `current` and the tables of the archive.
/// - It has tokens. A lost token is refused.
/// - It belongs to key-value buckets, whose tests are in the crate `entries`.
/// - It has purges. No other row says that a purge is missing.
const TABLES_LEFT_OUT: [&str; 32] = [
    "chunk_sets",
    "heads",
    "due",
    "due_cursors",
    "purges",
    "purge_cursors",
    "retention_walks",
    "retention_clock",
    "seen_time",
    "revision_timeline",
    "render_timeline",
    "historical",
    "chunk_copies",
    "by_rev",
    "current",
    "culled",
    "culled_renders",
    "archive_index",
    "archive_blocks",
    "archive_notes",
    "archive_epochs",
    "erasures",
    "tokens",
    "token_uses",
    "buckets",
    "deleted_buckets",
    "bucket_entries",
    "entry_keys",
    "entry_parts",
    "entry_chunk_sets",
    "counters",
    "counter_requests",
];

/// The tables of further data from exports. A store need not have rows in these tables.
const OPTIONAL_TABLES: [&str; 2] = ["pages", "site_infos"];

#[tokio::test]
async fn verify_finds_a_lost_row() {
    let mut tables = 0;
    for table in schemas::all() {
        if TABLES_LEFT_OUT.contains(&table.name()) || OPTIONAL_TABLES.contains(&table.name()) {
            continue;
        }
        tables += 1;
        let rows = world().await.0.rows(table).await;
        assert!(!rows.is_empty(), "{} has rows to lose", table.name());
        for index in 0..rows.len() {
            let (world, _) = world().await;
            let row = world.rows(table).await.remove(index);
            delete(&world, table, &row).await;
            let problems = world.verify().await.problems;
            assert!(!problems.is_empty(), "{} {:?}", table.name(), row.key);
        }
    }
    assert_eq!(tables, 10);
}

/// Columns whose values do not follow from other values in the store. Only a store with checksums detects
/// changes of these columns.
const UNVERIFIED_COLUMNS: [(&str, &str); 8] = [
    ("revisions", "parent"),
    ("revisions", "user"),
    ("revisions", "comment"),
    ("revisions", "minor"),
    ("revisions", "stored_at"),
    ("revisions", "digest"),
    ("renders", "stored_at"),
    ("renders", "digest"),
];

/// Returns other values of the same type.
fn altered_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Text(text) => vec![
            Value::Text(String::new()),
            Value::Text(format!("{text}x")),
            Value::Text(text.replace(|c: char| c.is_ascii_digit(), "7")),
        ],
        Value::Int(number) => vec![Value::Int(number + 1), Value::Int(-1), Value::Int(i64::MAX)],
        Value::Timestamp(time) => vec![Value::Timestamp(Timestamp::from_micros(time.as_micros() + 1))],
        Value::TimeUuid(_) => vec![Tid::new(at(99), 99).to_value()],
        Value::Blob(bytes) => {
            let mut other = bytes.to_vec();
            if let Some(last) = other.last_mut() {
                *last ^= 1;
            }
            vec![Value::Blob(other.into()), Value::Blob(bytes.slice(..bytes.len() / 2))]
        }
    }
}

#[tokio::test]
async fn verify_finds_an_altered_value() {
    for table in schemas::all() {
        if TABLES_LEFT_OUT.contains(&table.name()) || OPTIONAL_TABLES.contains(&table.name()) {
            continue;
        }
        for column in table.values().iter().map(|column| column.name) {
            if UNVERIFIED_COLUMNS.contains(&(table.name(), column)) {
                continue;
            }
            let (world, _) = world().await;
            for row in world.rows(table).await {
                let stored = column_mut(table, &mut row.values.clone(), column).clone();
                let values = stored.as_ref().map(altered_values).unwrap_or_default();
                for value in values.into_iter().filter(|value| stored.as_ref() != Some(value)) {
                    let mut damaged = row.clone();
                    *column_mut(table, &mut damaged.values, column) = Some(value.clone());
                    put(&world, table, &damaged).await;
                    let problems = world.verify().await.problems;
                    let what = format!("{column} of {} {:?}: {value:?}", table.name(), row.key);
                    assert!(!problems.is_empty(), "{what}");
                    put(&world, table, &row).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn verify_finds_index_rows_without_their_revision_or_render() {
    let page = page("Main_Page");
    let by_time = |second, number| {
        let key = TimeKey { timestamp: at(second), rev: rev(number) };
        (&*schemas::REVISIONS_BY_TIME, key.clustering(), Vec::new())
    };
    let by_tid = |number| {
        let row = TidRow { tid: Tid::new(at(77), 7), rev: rev(number) };
        (&*schemas::REVISIONS_BY_TID, row.clustering(), row.values())
    };
    for (what, (table, clustering, values)) in [
        ("a time of no revision", by_time(0, 9)),
        ("a time of another revision", by_time(9, 5)),
        ("a tid of no render", by_tid(5)),
        ("a tid of no revision", by_tid(9)),
    ] {
        let (world, _) = world().await;
        let mut batch = Batch::new(partition_of(&page));
        batch.put(table, clustering, values, at(1));
        world.store.write(Vec::new(), batch).await.unwrap();
        assert!(!world.verify().await.problems.is_empty(), "{what}");
    }
}

/// A problem names its place in words, and not by a raw key of the store.
#[tokio::test]
async fn verify_describes_problems_in_words() {
    let place = "domain enwiki, bucket page, title Main_Page";
    for (table, expected) in [
        (&*schemas::RENDER_CONTENT, vec!["property html of render ", " of revision 5 is missing"]),
        (&*schemas::REVISION_CONTENT, vec!["property wikitext of revision 5 is missing"]),
        (&*schemas::REVISIONS_BY_TIME, vec!["revision 5 cannot be found by its time"]),
        (&*schemas::REVISIONS_BY_TID, vec!["render ", " of revision 5 cannot be found by its tid"]),
    ] {
        let (world, _) = world().await;
        for row in world.rows(table).await {
            delete(&world, table, &row).await;
        }
        let problems = world.verify().await.problems;
        let names = |problem: &&String| {
            problem.starts_with(place) && expected.iter().all(|part| problem.contains(part))
        };
        assert!(problems.iter().any(|problem| names(&problem)), "{}: {problems:?}", table.name());
    }
    let (world, _) = world().await;
    for table in [&*schemas::RENDERS, &*schemas::RENDER_CONTENT, &*schemas::SITE_INFOS] {
        for mut row in world.rows(table).await {
            row.values.iter_mut().for_each(|value| *value = None);
            put(&world, table, &row).await;
        }
    }
    let problems = world.verify().await.problems;
    let render = format!("a row of renders cannot be decoded: {place}, revision 6, render ");
    for expected in [&render, "a row of site_infos cannot be decoded: domain enwiki"] {
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
    for raw in ["Key {", "Text(", "Int(", "TimeUuid(", "Blob("] {
        assert!(!problems.iter().any(|problem| problem.contains(raw)), "{raw}: {problems:?}");
    }
}

/// Unreferenced chunks are not damage. Garbage collection deletes them when they are old enough.
#[tokio::test]
async fn unreferenced_chunks_are_counted() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (world, _) = world().await;
    let main = page("Main_Page");
    let orphans = async || world.buckets.maintenance().count_orphans(HOUR).await.unwrap();
    world.pass(2 * HOUR);
    assert_eq!(orphans().await, 0, "all stored chunks are referenced");
    // Two bodies are received and not stored. A stored body is replaced, and so is unreferenced too.
    for seed in [2, 3] {
        world.stage(&main, &[("meta", noise(seed, 1_000_001))]).await;
    }
    let newest = world.buckets.newest_render(&main, rev(5)).await.unwrap().tid;
    world.rewrite(&main, newest, "meta", "{}").await.unwrap();
    assert_eq!(orphans().await, 0, "the unreferenced chunks are too young");
    world.pass(2 * HOUR);
    assert_eq!(orphans().await, 3);
    world.assert_consistent().await;
    assert_eq!(orphans().await, 3, "counting does not delete them");
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(orphans().await, 0);
}

#[tokio::test]
async fn verify_finds_unreadable_page_and_site_infos() {
    for table in [&*schemas::PAGES, &*schemas::SITE_INFOS] {
        let (world, _) = world().await;
        let mut row = world.rows(table).await.remove(0);
        *column_mut(table, &mut row.values, "info") = Some("no json".into());
        put(&world, table, &row).await;
        assert_eq!(world.verify().await.problems.len(), 1, "{}", table.name());
    }
}

#[tokio::test]
async fn damage_on_one_page_does_not_hide_damage_on_another() {
    let (world, _) = world().await;
    for row in world.rows(&schemas::REVISIONS).await {
        let mut damaged = row.clone();
        *column_mut(&schemas::REVISIONS, &mut damaged.values, "properties") = Some("no json".into());
        put(&world, &schemas::REVISIONS, &damaged).await;
    }
    let problems = world.verify().await.problems;
    for title in ["Main_Page", "Other", "Seite"] {
        assert!(problems.iter().any(|problem| problem.contains(title)), "{title}: {problems:?}");
    }
}

#[tokio::test]
async fn verify_fails_if_the_store_is_unavailable() {
    let (world, store) = world().await;
    store.set_plan(Plan::empty());
    world.assert_consistent().await;
    for call in [Call::Get, Call::Scan, Call::Partitions] {
        let calls = store.calls(call);
        for number in 1..=calls {
            store.set_plan(Plan::empty().on(call, number, Fault::Before));
            let result = rashomon_pages::operations::verify(&world.buckets, &mut |_| {}).await;
            assert!(
                matches!(result, Err(Error::Store(rashomon_tables::Error::Unavailable(_)))),
                "{call:?} {number}: {result:?}"
            );
        }
        store.set_plan(Plan::empty());
        world.assert_consistent().await;
    }
}

#[tokio::test]
async fn statistics_add_up() {
    let (world, _) = world().await;
    let stats =
        rashomon_pages::operations::stats(&world.buckets, &page("x").domain, &mut |_| {}).await.unwrap().page;
    assert_eq!((stats.pages, stats.revisions, stats.renders), (2, 3, 4));
    let bodies = |property: &str| {
        let stats = &stats.properties[&name(property)];
        (stats.bodies, stats.raw_bytes)
    };
    assert_eq!(bodies("meta"), (2, 2_000_002));
    assert_eq!(bodies("wikitext"), (2, 8));
    let html = "rewritten".len() + "html again, again, again, again, again, again".len() + 3 + 5;
    assert_eq!(bodies("html"), (4, html as u64));
    let sum = |of: fn(&rashomon_pages::operations::PropertyStats) -> u64| {
        stats.properties.values().map(of).sum::<u64>()
    };
    assert_eq!(stats.raw_bytes, sum(|stats| stats.raw_bytes));
    assert_eq!(stats.stored_bytes, sum(|stats| stats.stored_bytes));
    let chunks: usize = world.typed_rows::<ChunkRow>().await.iter().map(|chunk| chunk.value.len()).sum();
    assert_eq!(stats.properties[&name("meta")].stored_bytes, chunks as u64);
    assert!(stats.properties[&name("html")].stored_bytes < html as u64, "repeated text is compressed");
    let german =
        rashomon_pages::operations::stats(&world.buckets, &page_of("dewiki", "x").domain, &mut |_| {})
            .await
            .unwrap()
            .page;
    assert_eq!((german.pages, german.revisions, german.renders, german.raw_bytes), (1, 1, 1, 4));
}
