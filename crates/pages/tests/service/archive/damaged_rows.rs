//! Damaged rows of the tables. A damaged row affects no other row. It is reported, and is restored if its
//! content follows from other rows.

use std::sync::Arc;

use rashomon_pages::operations::{RepairReport, repair};
use rashomon_pages::{BucketName, DomainName, Page, StoreError, Tid, schemas};
use rashomon_records::rows::ColumnValue as _;
use rashomon_tables::{Call, Fault, Faulty, Key, Memory, Plan, Row, Schema, Value};

use super::{seal_delay, with_archive};
use crate::support::{DamagedStore, World, name, page, rev};

type Store = Faulty<DamagedStore<Memory>>;

/// Three pages of four revisions, in an archive in which nothing is sealed.
async fn world() -> (World, Arc<Store>, Vec<Vec<Tid>>) {
    let decorate = |store| Faulty::new(DamagedStore::new(store), Plan::empty());
    let (world, store) = World::over_memory(decorate).await;
    let world = with_archive(world).await;
    let mut tids = Vec::new();
    for title in ["A", "B", "C"] {
        tids.push(world.edit(&page(title), 1..=4).await);
    }
    (world, store, tids)
}

/// The row of a table whose key contains all these values.
async fn row(world: &World, table: &'static Schema, values: &[Value]) -> Row {
    let rows = world.rows(table).await;
    let has_all = |row: &&Row| {
        let key = || row.key.partition.iter().chain(&row.key.clustering);
        values.iter().all(|value| key().any(|other| other == value))
    };
    rows.iter().find(has_all).expect("the table has such a row").clone()
}

/// Damages the row of a table whose key contains all these values. Returns the key.
async fn damage(world: &World, store: &Store, table: &'static Schema, values: &[Value]) -> Key {
    let key = row(world, table, values).await.key;
    store.store().damage(table, key.clone());
    key
}

async fn titles(world: &World) -> Vec<String> {
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let titles = world.buckets.catalog().titles(&domain, &bucket, None, 10).await.unwrap();
    titles.items.iter().map(|title| title.as_str().to_owned()).collect()
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn damaged_title_is_listed_and_the_next_write_restores_it() {
        let (world, store, _) = world().await;
        damage(&world, &store, &schemas::TITLES, &["B".into()]).await;
        damage(&world, &store, &schemas::DOMAINS, &["enwiki".into()]).await;
        assert_eq!(titles(&world).await, ["A", "B", "C"]);
        assert_eq!(world.buckets.catalog().domains().await.unwrap().len(), 1);
        let found = world.buckets.found_damage();
        assert_eq!(found.iter().map(|found| found.table).collect::<Vec<_>>(), ["domains", "titles"]);
        assert!(world.buckets.found_damage().is_empty(), "damage is reported once");
        world.put_revision(&page("B"), 5, &[("wikitext", "five")]).await.unwrap();
        assert_eq!(store.store().damaged_row_count(), 0);
        world.assert_consistent().await;
    }

    #[tokio::test]
    async fn damaged_title_of_no_page_is_not_listed() {
        let (world, store, _) = world().await;
        let mut key = row(&world, &schemas::TITLES, &["B".into()]).await.key;
        // Simulates a flipped bit in the key: the row has another title now.
        let mut batch = rashomon_tables::Batch::new(key.partition.clone());
        batch.delete(&schemas::TITLES, key.clustering.clone(), rashomon_clock::Timestamp::MAX);
        key.clustering = vec!["b".into()];
        batch.put(&schemas::TITLES, key.clustering.clone(), Vec::new(), rashomon_clock::Timestamp::EPOCH);
        rashomon_tables::TableStore::write(&*store, Vec::new(), batch).await.unwrap();
        store.store().damage(&schemas::TITLES, key);
        assert_eq!(titles(&world).await, ["A", "C"]);
        assert_eq!(world.buckets.found_damage().len(), 1);
        let repaired = repair(&world.buckets, false).await.unwrap();
        assert_eq!(repaired.repairs.len(), 2, "{repaired:?}");
        assert_eq!(titles(&world).await, ["A", "B", "C"]);
        world.assert_consistent().await;
    }

    #[tokio::test]
    async fn all_but_damaged_revisions_are_sealed() {
        let (world, store, tids) = world().await;
        damage(&world, &store, &schemas::TITLES, &["A".into()]).await;
        damage(&world, &store, &schemas::REVISIONS, &["A".into(), Value::Int(2)]).await;
        damage(&world, &store, &schemas::RENDERS, &["B".into(), Value::Int(1)]).await;
        let of_body = ["C".into(), "wikitext".into(), Value::Int(3)];
        damage(&world, &store, &schemas::REVISION_CONTENT, &of_body).await;
        world.pass(seal_delay());
        let sealed = world.seal().await;
        assert_eq!((sealed.revisions, sealed.damaged()), (3 * 3 - 3, 3), "{sealed:?}");
        for (title, number) in [("A", 1), ("A", 3), ("B", 2), ("B", 3), ("C", 1), ("C", 2)] {
            let at = ["A", "B", "C"].iter().position(|other| *other == title).unwrap();
            let tid = tids[at][number - 1];
            assert!(!world.read(&page(title), tid, "wikitext").await.is_empty(), "{title} {number}");
        }
        // The damaged rows have stayed in their tables.
        assert_eq!(store.store().damaged_row_count(), 4);
        let report = world.verify().await;
        for table in ["titles", "revisions", "renders", "revision_content"] {
            let is_named = |problem: &String| problem.contains(&format!("{table} is damaged on purpose"));
            assert!(report.problems.iter().any(is_named), "{table}: {report:?}");
        }
    }

    #[tokio::test]
    async fn revision_list_has_damaged_revisions_by_their_numbers() {
        let (world, store, tids) = world().await;
        let of: Page = page("A");
        damage(&world, &store, &schemas::REVISIONS, &["A".into(), Value::Int(2)]).await;
        damage(&world, &store, &schemas::RENDERS, &["A".into(), Value::Int(3)]).await;
        for sealed in [false, true] {
            for limit in [1, 2, 100] {
                let (mut lines, mut after) = (Vec::new(), None);
                loop {
                    let listing = world.buckets.revisions(&of, after, limit).await.unwrap();
                    assert!(listing.items.len() <= limit);
                    let line = |line: &rashomon_pages::RevisionSummary| {
                        (line.record.rev.get(), line.damaged, line.unreadable, line.renders)
                    };
                    lines.extend(listing.items.iter().map(line));
                    after = listing.next;
                    if after.is_none() {
                        break;
                    }
                }
                let expected =
                    [(4, false, false, 1), (3, true, false, 1), (2, true, true, 0), (1, false, false, 1)];
                assert_eq!(lines, expected, "{limit} {sealed}");
            }
            assert_eq!(world.buckets.revisions(&of, None, 9).await.unwrap().items[1].tid, tids[0][2]);
            world.pass(seal_delay());
            world.seal().await;
        }
        // A read of the damaged revision fails, and all other revisions can be read.
        let error = world.buckets.revision(&of, rev(2)).await.unwrap_err();
        assert!(matches!(error, rashomon_pages::Error::Store(StoreError::Corrupt(_))), "{error:?}");
        world.buckets.revision(&of, rev(1)).await.unwrap();
        world.buckets.latest(&of, &name("wikitext")).await.unwrap();
    }

    /// Asserts that rows whose content follows from other rows are restored. `seal` says whether the
    /// revisions of the pages are sealed.
    async fn assert_repaired(seal: bool) {
        let (world, store, tids) = world().await;
        if seal {
            world.pass(seal_delay());
            assert_eq!(world.seal().await.revisions, 9);
        }
        let tid = tids[0][3].to_value();
        damage(&world, &store, &schemas::TITLES, &["A".into()]).await;
        damage(&world, &store, &schemas::TITLES, &["C".into()]).await;
        damage(&world, &store, &schemas::DOMAINS, &["enwiki".into()]).await;
        damage(&world, &store, &schemas::REVISIONS_BY_TID, &["A".into(), tid]).await;
        damage(&world, &store, &schemas::REVISIONS_BY_TIME, &["B".into(), Value::Int(4)]).await;
        assert!(!world.verify().await.problems.is_empty());
        let planned = repair(&world.buckets, true).await.unwrap();
        assert_eq!(store.store().damaged_row_count(), 5, "a dry run changes nothing");
        assert_eq!(planned.repairs.len(), 5, "{planned:?}");
        // A repair that is interrupted after one of its writes is continued by the next.
        for _ in 0..5 {
            store.set_plan(Plan::empty().on(Call::Write, 2, Fault::Before));
            let before = store.store().damaged_row_count();
            let repaired = repair(&world.buckets, false).await;
            assert_eq!(store.store().damaged_row_count(), before.saturating_sub(1), "{repaired:?}");
        }
        store.set_plan(Plan::empty());
        assert_eq!(repair(&world.buckets, false).await.unwrap(), RepairReport::default());
        let world = world.reopened().await;
        world.assert_consistent().await;
        for page in ["A", "B", "C"].map(page) {
            assert_eq!(world.buckets.revisions(&page, None, 9).await.unwrap().items.len(), 4);
        }
    }

    #[tokio::test]
    async fn repair_restores_rows_that_follow_from_other_rows() {
        assert_repaired(false).await;
    }

    #[tokio::test]
    async fn repair_restores_rows_that_follow_from_sealed_revisions() {
        assert_repaired(true).await;
    }

    #[tokio::test]
    async fn repair_invents_no_rows() {
        let (world, store, _) = world().await;
        damage(&world, &store, &schemas::REVISIONS, &["A".into(), Value::Int(2)]).await;
        damage(&world, &store, &schemas::RENDERS, &["B".into(), Value::Int(1)]).await;
        let of_body = ["C".into(), "wikitext".into(), Value::Int(3)];
        damage(&world, &store, &schemas::REVISION_CONTENT, &of_body).await;
        assert_eq!(repair(&world.buckets, false).await.unwrap(), RepairReport::default());
        assert_eq!(store.store().damaged_row_count(), 3);
        assert_eq!(world.verify().await.problems.iter().filter(|it| it.contains("on purpose")).count(), 3);
    }
}
