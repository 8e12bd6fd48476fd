//! A verification by blocks finds what a verification page by page finds, and counts the same.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use proptest::{prelude::*, sample::Index};
use rashomon_blocks::{Block, BlockBuilder, Limits, Settings as BlockSettings, Value as BlockValue};
use rashomon_pages::{Page, Settings, Tid, VerifyProgress, VerifyReport, schemas};
use rashomon_records::rows::{RowKey as _, TidRow, TimeKey, TypedRow as _, partition_of};
use rashomon_tables::{
    Batch, Counting, Decorator, Error as StoreError, Kind, Result, Row, Schema, TableStore, Walk, WalkPage,
};

use crate::{
    archive::damage::{overwrite, replace_block},
    statistics::{PAGES, Step, Wiki, sealed_wiki, steps},
    support::{AnyStore, IndexRow, World, at, block_bytes, block_on, cases, column_mut, rev},
};

/// A store without walks, as if damage prevented them. So a verification or a seal goes page by page.
#[derive(Debug)]
pub(crate) struct WalklessStore(pub(crate) AnyStore);

#[async_trait]
impl Decorator for WalklessStore {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.0
    }

    async fn walk(&self, _: Walk) -> Result<WalkPage> {
        Err(StoreError::Corrupt("no walk is possible".to_owned()))
    }
}

pub(crate) async fn reopened_on(world: &World, store: AnyStore) -> World {
    let settings: Settings = world.buckets.settings().clone();
    World::on(store, Arc::clone(&world.clock), settings, 77).await
}

/// The report of a verification page by page.
async fn page_by_page(world: &World) -> VerifyReport {
    let store = Arc::new(WalklessStore(Arc::clone(&world.store)));
    reopened_on(world, store).await.verify().await
}

/// The report of a verification of the archive alone, block by block, and page by page.
async fn of_archive(world: &World) -> [VerifyReport; 2] {
    let store = Arc::new(WalklessStore(Arc::clone(&world.store)));
    let deleted = BTreeSet::new();
    let mut reports = Vec::new();
    for world in [world.reopened().await, reopened_on(world, store).await] {
        let verified = world.buckets.maintenance().verify_archive(&deleted, &mut |_| {}).await;
        reports.push(verified.unwrap());
    }
    reports.try_into().unwrap()
}

fn problems(report: &VerifyReport) -> BTreeSet<&str> {
    report.problems.iter().map(String::as_str).collect()
}

/// Verifies by blocks. Asserts that the problems are those that a verification page by page finds, and that the counts
/// are the same if the store is sound.
async fn verified(world: &World, what: &str) -> VerifyReport {
    let report = world.reopened().await.verify().await;
    let plain = page_by_page(world).await;
    assert_eq!(problems(&report), problems(&plain), "{what}");
    let [archive, plain_archive] = of_archive(world).await;
    assert_eq!(problems(&archive), problems(&plain_archive), "archive, {what}");
    assert_eq!((report.blocks, archive.blocks), (plain.blocks, plain_archive.blocks), "{what}");
    if plain.problems.is_empty() {
        assert_eq!(report, plain, "{what}");
    }
    report
}

/// Deletes a row, also if it was written again since.
async fn delete(world: &World, table: &'static Schema, row: &Row) {
    let mut batch = Batch::new(row.key.partition.clone());
    let stored = world.rows(table).await.into_iter().find(|stored| stored.key == row.key).unwrap();
    batch.delete(table, row.key.clustering.clone(), stored.written_at);
    world.store.as_ref().write(Vec::new(), batch).await.unwrap();
}

/// Damage of a store that the random test chooses.
#[derive(Debug, Clone)]
enum Damage {
    FlippedBit(Index, Index, u8),
    /// A row of one of [`tables`] is lost.
    LostRow(usize, Index),
    /// A row of one of [`tables`] is damaged.
    DamagedRow(usize, Index),
    /// A number in an index row is higher by one.
    WrongIndex(Index, usize),
}

/// The tables whose rows are damaged.
fn tables() -> [&'static Schema; 9] {
    [
        &schemas::REVISIONS,
        &schemas::RENDERS,
        &schemas::REVISIONS_BY_TIME,
        &schemas::REVISIONS_BY_TID,
        &schemas::REVISION_CONTENT,
        &schemas::RENDER_CONTENT,
        &schemas::TITLES,
        &schemas::ARCHIVE_INDEX,
        &schemas::ARCHIVE_BLOCKS,
    ]
}

const INDEX_NUMBERS: [&str; 5] = ["first_rev", "revisions", "renders", "raw_bytes", "left_out"];

fn damage() -> impl Strategy<Value = Damage> {
    let (row, table) = (any::<Index>, 0..tables().len());
    prop_oneof![
        (row(), row(), 0..8_u8).prop_map(|(block, place, bit)| Damage::FlippedBit(block, place, bit)),
        (table.clone(), row()).prop_map(|(table, row)| Damage::LostRow(table, row)),
        (table, row()).prop_map(|(table, row)| Damage::DamagedRow(table, row)),
        (row(), 0..INDEX_NUMBERS.len()).prop_map(|(row, column)| Damage::WrongIndex(row, column)),
    ]
}

async fn apply(wiki: &Wiki, damage: &Damage) {
    let world = &wiki.world;
    let chosen = async |table: &'static Schema, row: &Index| {
        let mut rows = world.rows(table).await;
        (!rows.is_empty()).then(|| rows.swap_remove(row.index(rows.len())))
    };
    match damage {
        Damage::FlippedBit(block, place, bit) => {
            let Some(row) = chosen(&schemas::ARCHIVE_BLOCKS, block).await else { return };
            let mut bytes = block_bytes(&row).to_vec();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            replace_block(world, &row, bytes).await;
        }
        Damage::LostRow(table, row) => {
            let table = tables()[*table];
            let Some(row) = chosen(table, row).await else { return };
            delete(world, table, &row).await;
        }
        Damage::DamagedRow(table, row) => {
            let table = tables()[*table];
            let Some(row) = chosen(table, row).await else { return };
            wiki.store.damage(table, row.key);
        }
        Damage::WrongIndex(row, column) => {
            let Some(row) = chosen(&schemas::ARCHIVE_INDEX, row).await else { return };
            let mut values = row.values.clone();
            let value = column_mut(&schemas::ARCHIVE_INDEX, &mut values, INDEX_NUMBERS[*column]);
            if let Some(rashomon_tables::Value::Int(number)) = value {
                *number += 1;
            }
            overwrite(world, &schemas::ARCHIVE_INDEX, &row, values).await;
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn blocks_show_what_pages_show(
        steps in steps(),
        damage in proptest::option::of(damage()),
    ) {
        block_on(async {
            let mut wiki = Wiki::new().await;
            for step in &steps {
                wiki.take(step).await;
            }
            verified(&wiki.world, "undamaged").await;
            if let Some(damage) = &damage {
                apply(&wiki, damage).await;
                verified(&wiki.world, "damaged").await;
            }
        });
    }
}

/// Asserts that there are problems, and that one of them contains this text.
fn assert_found(report: &VerifyReport, text: &str) {
    let is_found = report.problems.iter().any(|problem| problem.contains(text));
    assert!(is_found, "{text}: {:#?}", report.problems);
}

/// Writes a block again, and changes an entry: the first one for which `change` returns `true`.
fn rewritten(bytes: &[u8], change: impl Fn(&[u8], &mut dyn FnMut(&str, BlockValue)) -> bool) -> Vec<u8> {
    let block = Block::open(bytes, Limits::default()).unwrap();
    let (streams, entries) = (block.streams().unwrap(), block.entries().unwrap());
    let settings = BlockSettings { version: block.version(), ..BlockSettings::default() };
    let mut builder = BlockBuilder::new(settings, block.columns().to_vec(), 0).unwrap();
    let mut is_changed = false;
    for (entry, content) in entries.iter().zip(block.iter()) {
        let (mut values, content) = (entry.values.clone(), content.unwrap().bytes.unwrap());
        if !is_changed {
            let mut set = |name: &str, value| {
                let column = block.columns().iter().position(|column| column.name == name).unwrap();
                values[column] = value;
            };
            is_changed = change(&content, &mut set);
        }
        builder.push(&streams[entry.stream], &content, &values).unwrap();
    }
    assert!(is_changed);
    builder.finish().unwrap()
}

#[tokio::test]
async fn each_kind_of_damage_of_sealed_pages_is_found() {
    let (wiki, _) = sealed_wiki().await;
    let world = &wiki.world;
    let sound = verified(world, "sound").await;
    assert_eq!((sound.pages, sound.revisions, sound.blocks), (PAGES as u64, 3 * PAGES as u64, 3));
    assert_eq!(sound.problems, Vec::<String>::new());

    for row in world.rows(&schemas::ARCHIVE_BLOCKS).await {
        let block = block_bytes(&row);
        let mut flipped = block.to_vec();
        flipped[block.len() / 2] ^= 1;
        // Each of these blocks is intact, and its index rows are right.
        let wrong_sha1 = rewritten(&block, |content, set| {
            set("size", BlockValue::Integer(content.len() as i64));
            set("sha1", BlockValue::Bytes(vec![7; 20]));
            !content.is_empty()
        });
        let wrong_properties = rewritten(&block, |_, set| {
            set("properties", BlockValue::Bytes(b"{}".to_vec()));
            true
        });
        let wrong_first_tid = rewritten(&block, |_, set| {
            let tid = Tid::new(at(7), 7).as_time_uuid().to_ordered_bytes();
            set("first_tid", BlockValue::Bytes(tid.to_vec()));
            true
        });
        for (bytes, what, text) in [
            (flipped, "a flipped bit", "block"),
            (wrong_sha1, "another SHA-1", "its bytes do not match the stored size and SHA-1"),
            (wrong_properties, "other properties", "has no index entry"),
            (wrong_first_tid, "another first tid", "the first render of revision"),
        ] {
            replace_block(world, &row, bytes).await;
            assert_found(&verified(world, what).await, text);
        }
        replace_block(world, &row, block.to_vec()).await;
    }

    let index = world.rows(&schemas::ARCHIVE_INDEX).await;
    let first = IndexRow::from_row(&index[0]).unwrap();
    let wrong = IndexRow { last_time: at(99), ..first.clone() };
    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], wrong.values()).await;
    assert_found(&verified(world, "a wrong range").await, "does not match the block");
    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], first.values()).await;

    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], vec![None; index[0].values.len()]).await;
    assert_found(&verified(world, "an unreadable index").await, "a row of archive_index cannot be decoded");
    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], first.values()).await;
    wiki.store.damage(&schemas::ARCHIVE_INDEX, index[0].key.clone());
    assert_found(&verified(world, "a damaged index").await, "archive_index is damaged on purpose");
    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], first.values()).await;

    delete(world, &schemas::ARCHIVE_INDEX, &index[0]).await;
    assert_found(&verified(world, "a lost index").await, "the index of the page does not name that block");
    overwrite(world, &schemas::ARCHIVE_INDEX, &index[0], first.values()).await;

    // A page of the same bucket that is not in the block.
    let absent = Page { title: rashomon_pages::Title::new("Absent").unwrap(), ..page_of_index(&index[0]) };
    let mut batch = Batch::new(partition_of(&absent));
    let written_at = index[0].written_at;
    batch.put(&schemas::ARCHIVE_INDEX, index[0].key.clustering.clone(), first.values(), written_at);
    world.store.as_ref().write(Vec::new(), batch).await.unwrap();
    assert_found(&verified(world, "a page that is not in the block").await, "does not contain the page");
    delete(world, &schemas::ARCHIVE_INDEX, &Row { key: key_of(&absent, &index[0]), ..index[0].clone() })
        .await;

    let title = world.rows(&schemas::TITLES).await.remove(0);
    delete(world, &schemas::TITLES, &title).await;
    assert_found(&verified(world, "a lost title").await, "its title is missing from the catalog");
    overwrite(world, &schemas::TITLES, &title, Vec::new()).await;
    let domain = world.rows(&schemas::DOMAINS).await.remove(0);
    delete(world, &schemas::DOMAINS, &domain).await;
    assert_found(&verified(world, "a lost domain").await, "or its domain from the catalog");
    overwrite(world, &schemas::DOMAINS, &domain, Vec::new()).await;

    let page = page_of_index(&index[0]);
    for (what, table, clustering, values, text) in [
        (
            "a time of no revision",
            &*schemas::REVISIONS_BY_TIME,
            TimeKey { timestamp: at(1), rev: rev(9) }.clustering(),
            Vec::new(),
            "the index by time lists revision 9",
        ),
        (
            "a tid of no render",
            &*schemas::REVISIONS_BY_TID,
            vec![Tid::new(at(77), 7).as_time_uuid().into()],
            TidRow { tid: Tid::new(at(77), 7), rev: rev(1) }.values(),
            "is missing, but the index by tid names it",
        ),
        (
            "a page info",
            &*schemas::PAGES,
            Vec::new(),
            vec![Some("no json".into())],
            "pages cannot be decoded",
        ),
    ] {
        let row = Row {
            key: rashomon_tables::Key::new(partition_of(&page), clustering),
            values,
            written_at: index[0].written_at,
            expires_at: None,
        };
        overwrite(world, table, &row, row.values.clone()).await;
        assert_found(&verified(world, what).await, text);
        wiki.store.damage(table, row.key.clone());
        let damaged = verified(world, &format!("a damaged row: {what}")).await;
        assert_found(&damaged, &format!("{} is damaged on purpose", table.name()));
        overwrite(world, table, &row, row.values.clone()).await;
        delete(world, table, &row).await;
    }
    assert_eq!(verified(world, "restored").await, sound);
}

fn page_of_index(row: &Row) -> Page {
    rashomon_records::rows::page_of(&row.key.partition).unwrap()
}

fn key_of(page: &Page, row: &Row) -> rashomon_tables::Key {
    rashomon_tables::Key::new(partition_of(page), row.key.clustering.clone())
}

/// The chunks of a body in chunks are read although the revision is in a block.
#[tokio::test]
async fn lost_chunk_of_a_sealed_revision_is_found() {
    let mut wiki = Wiki::new().await;
    for page in 0..PAGES {
        wiki.take(&Step::Edit(page, 3)).await;
    }
    wiki.take(&Step::Seal(true)).await;
    // The fourth revision is in chunks, and the fifth, which is larger, stays in chunks.
    for _ in 0..2 {
        wiki.take(&Step::EditLarge(0)).await;
    }
    wiki.take(&Step::Seal(true)).await;
    let report = verified(&wiki.world, "bodies in chunks").await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.blocks, 4);
    // Some of the chunks are of the body that is in the block now.
    for chunk in wiki.world.rows(&schemas::CHUNKS).await {
        delete(&wiki.world, &schemas::CHUNKS, &chunk).await;
    }
    assert_found(&verified(&wiki.world, "lost chunks").await, "of a large body is missing");
}

/// The calls of the store are as many as the blocks, however many pages the blocks have.
#[tokio::test]
async fn each_block_is_read_once_and_no_page_by_itself() {
    let (wiki, _) = sealed_wiki().await;
    let counting = Arc::new(Counting::new(Arc::clone(&wiki.world.store)));
    let world = reopened_on(&wiki.world, Arc::clone(&counting) as AnyStore).await;
    let before = counting.counts();
    let mut shown = VerifyProgress::default();
    let report = rashomon_pages::operations::verify(&world.buckets, &mut |now| shown = now).await.unwrap();
    assert_eq!((report.problems, report.pages), (Vec::new(), PAGES as u64));
    assert_eq!((shown.items, shown.position, shown.total), (report.bodies, 7, Some(7)));
    let counts = counting.counts() - &before;
    let of = |table: &Schema, kind| counts.of(table.name(), kind).operations;
    assert_eq!((report.blocks, of(&schemas::ARCHIVE_BLOCKS, Kind::Scan)), (3, 3));
    for table in tables().into_iter().filter(|table| table.name() != schemas::ARCHIVE_BLOCKS.name()) {
        let calls = [Kind::Walk, Kind::Scan, Kind::Get, Kind::Partitions].map(|kind| of(table, kind));
        assert_eq!(calls, [1, 0, 0, 0], "{}", table.name());
    }
    let before = counting.counts();
    world.buckets.maintenance().verify_archive(&BTreeSet::new(), &mut |now| shown = now).await.unwrap();
    assert_eq!((shown.items, shown.position, shown.total), (3, 3, Some(3)));
    let counts = counting.counts() - &before;
    let of = |table: &Schema, kind| counts.of(table.name(), kind).operations;
    assert_eq!(of(&schemas::ARCHIVE_BLOCKS, Kind::Scan), 3);
    assert_eq!(of(&schemas::ARCHIVE_INDEX, Kind::Scan) + of(&schemas::ARCHIVE_INDEX, Kind::Get), 0);
}
