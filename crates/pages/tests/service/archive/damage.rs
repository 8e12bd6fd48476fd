//! Damaged blocks, and damaged rows of pages that are sealed.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_clock::ManualClock;
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{BucketName, Error, Page, Revision, SealOptions, StoreError, Tid, schemas};
use rashomon_records::rows::{ColumnValue as _, RevisionBodyKey, RowKey as _, TypedRow as _, partition_of};
use rashomon_tables::{
    Batch, Call, Decorator, Fault, Faulty, Memory, Mutation, Plan, Result, Row, Scan, Schema,
    TableStore as _, Value,
};

use super::{seal_delay, with_archive};
use crate::support::{
    AnyStore, IndexRow, START, World, at, block_bytes, block_id, column_mut, name, on_every_store, page,
    page_of, rev, with_block_bytes,
};

on_every_store! {
    damaged_bytes_of_a_block_are_an_error_and_never_other_content,
    verify_finds_lost_rows_of_the_archive,
    verify_examines_each_index_row,
    revisions_behind_a_damaged_part_are_returned,
    erase_in_a_damaged_block_succeeds_if_unreadable_revisions_are_given_up,
    unreadable_block_is_given_up,
    damaged_row_prevents_only_the_seal_of_its_revision,
    revisions_around_a_damaged_row_are_sealed,
    late_render_of_a_revision_in_an_unreadable_block_stays_in_the_tables,
}

async fn damaged_bytes_of_a_block_are_an_error_and_never_other_content(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=20).await;
    world.pass(seal_delay());
    world.seal().await;
    let before = world.read_everything(&page).await;
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let block = block_bytes(&row);
    let mut found = 0;
    for place in (0..block.len()).step_by(97) {
        let mut damaged = block.to_vec();
        damaged[place] ^= 0x10;
        replace_block(&world, &row, damaged).await;
        let world = world.reopened().await;
        for (index, tid) in tids.iter().enumerate() {
            match world.buckets.property(&page, *tid, &name("html")).await {
                Ok(property) => {
                    let html = format!("<p>{}</p>", super::text(index as i64 + 1));
                    assert_eq!(crate::support::bytes(&property).await, html.into_bytes(), "at {place}");
                }
                Err(Error::Store(StoreError::Corrupt(_))) => found += 1,
                Err(error) => panic!("at {place}: {error}"),
            }
        }
        let problems = world.verify().await.problems;
        assert!(!problems.is_empty(), "at {place}");
        assert!(
            !problems.iter().any(|problem| problem.contains("its index entry")),
            "at {place}: {problems:#?}"
        );
    }
    assert!(found > 0);
    replace_block(&world, &row, block.to_vec()).await;
    assert_eq!(world.reopened().await.read_everything(&page).await, before);
}

/// Replaces the bytes of a block.
pub(crate) async fn replace_block(world: &World, row: &Row, bytes: Vec<u8>) {
    overwrite(world, &schemas::ARCHIVE_BLOCKS, row, with_block_bytes(row, bytes)).await;
}

/// Replaces the values of a row. The write time is later than that of the stored row, since a cluster keeps
/// the greater value of two writes at the same time.
pub(crate) async fn overwrite(world: &World, table: &'static Schema, row: &Row, values: Vec<Option<Value>>) {
    let stored = world.rows(table).await.into_iter().find(|stored| stored.key == row.key);
    let written_at = stored.map_or(row.written_at, |stored| stored.written_at);
    let mut batch = Batch::new(row.key.partition.clone());
    let later = written_at.saturating_add(Duration::from_micros(1));
    batch.put(table, row.key.clustering.clone(), values, later);
    world.store.as_ref().write(Vec::new(), batch).await.unwrap();
}

/// An index row with wrong values is found although another block of the page is missing.
async fn verify_examines_each_index_row(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for revisions in [1..=20, 21..=40] {
        world.edit(&page, revisions).await;
        world.pass(seal_delay());
        world.seal().await;
    }
    let index = world.rows(&schemas::ARCHIVE_INDEX).await;
    let [first, second] = &index[..] else { panic!("two blocks") };
    let first = IndexRow::from_row(first).unwrap();
    let is_first = |row: &Row| block_id(row) == first.block;
    let block = world
        .rows(&schemas::ARCHIVE_BLOCKS)
        .await
        .into_iter()
        .find(is_first)
        .expect("the first block is stored");
    let mut lost = Batch::new(block.key.partition.clone());
    lost.delete(&schemas::ARCHIVE_BLOCKS, block.key.clustering.clone(), block.written_at);
    world.store.as_ref().write(Vec::new(), lost).await.unwrap();
    let altered = IndexRow { revisions: 1000, ..IndexRow::from_row(second).unwrap() };
    overwrite(&world, &schemas::ARCHIVE_INDEX, second, altered.values()).await;
    let problems = world
        .reopened()
        .await
        .buckets
        .maintenance()
        .verify_archive(&std::collections::BTreeSet::new(), &mut |_| {})
        .await
        .unwrap()
        .problems;
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems[0].contains("is incomplete") && problems[1].contains("does not match the block"),
        "{problems:#?}"
    );
}

/// A read skips the damaged part of a block, so that the rest of the block has fewer rows than a result page.
/// Revisions after the damaged part are still read.
async fn revisions_behind_a_damaged_part_are_returned(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for (revisions, sealed) in [(1..=10_i64, 9), (11..=530, 520)] {
        for number in revisions {
            let wikitext = format!("{number} {}", number * number * 1_000_003);
            world.put_revision(&page, number, &[("wikitext", &wikitext)]).await.unwrap();
        }
        world.pass(seal_delay());
        assert_eq!(world.seal().await.revisions, sealed);
    }
    let domain = page.domain.clone();
    let stats = rashomon_pages::operations::stats(&world.buckets, &domain, &mut |_| {}).await.unwrap().page;
    let row =
        (world.rows(&schemas::ARCHIVE_BLOCKS).await.into_iter()).max_by_key(Row::size).expect("two blocks");
    let block = block_bytes(&row);
    let mut found = false;
    for place in (0..block.len()).step_by(block.len() / 64) {
        let mut damaged = block.to_vec();
        damaged[place] ^= 0x10;
        replace_block(&world, &row, damaged).await;
        let world = world.reopened().await;
        world.buckets.maintenance().skip_damage();
        let bodies =
            world.buckets.bodies(&page, &name("wikitext"), Revision::MIN, Revision::MAX).await.unwrap();
        let lost = world.buckets.maintenance().skipped_damage();
        if lost.iter().all(|lost| lost.count == 1) && (25..520).contains(&lost.len()) {
            found = true;
            assert!(bodies.len() + lost.len() >= 500, "at {place}");
            let counted =
                rashomon_pages::operations::stats(&world.buckets, &domain, &mut |_| {}).await.unwrap().page;
            assert_eq!(counted.revisions, 530);
            let bodies =
                |stats: &rashomon_pages::operations::PageStats| stats.properties[&name("wikitext")].bodies;
            assert_eq!(bodies(&counted) + lost.len() as u64, bodies(&stats), "at {place}: {}", lost.len());
            assert_eq!(counted.archive.unwrap().damaged_blocks, 1);
            break;
        }
    }
    assert!(found, "some damage loses a part of the revisions");
}

/// The revisions from 1 to 19 whose text can be read. Panics if a text is not as it was written.
async fn readable_revisions(world: &World, page: &rashomon_pages::Page) -> Vec<i64> {
    let bodies = world.buckets.bodies(page, &name("wikitext"), Revision::MIN, Revision::MAX).await.unwrap();
    let mut readable = Vec::new();
    for (rev, property) in bodies.into_iter().filter(|(rev, _)| rev.get() < 20) {
        let text = crate::support::bytes(&property).await;
        assert_eq!(text, own_text(rev.get()).into_bytes(), "{rev}");
        readable.push(rev.get());
    }
    readable
}

/// A text that has nothing in common with that of another revision, so that damage loses some of them.
fn own_text(number: i64) -> String {
    (1..=50)
        .map(|word| format!("{:x} ", (number * 1_000_003 + word).wrapping_mul(0x9e37_79b9_7f4a)))
        .collect()
}

async fn erase_in_a_damaged_block_succeeds_if_unreadable_revisions_are_given_up(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for number in 1..=20 {
        world.put_revision(&page, number, &[("wikitext", &own_text(number))]).await.unwrap();
    }
    world.pass(seal_delay());
    world.seal().await;
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let block = block_bytes(&row);
    let mut found = None;
    for place in (0..block.len()).step_by(11) {
        let mut damaged = block.to_vec();
        damaged[place] ^= 0x10;
        replace_block(&world, &row, damaged).await;
        let world = world.reopened().await;
        world.buckets.maintenance().skip_damage();
        let readable = readable_revisions(&world, &page).await;
        let lost = world.buckets.maintenance().skipped_damage();
        if lost.iter().all(|lost| lost.count == 1) && (3..17).contains(&readable.len()) {
            found = Some((world, readable));
            break;
        }
    }
    let (world, before) = found.expect("some texts do not depend on the damaged bytes");
    let (kept, lost): (Vec<i64>, Vec<i64>) = (1..20).partition(|number| before.contains(number));
    for erased in [kept[1], lost[1]] {
        let refused =
            rashomon_pages::operations::erase(&world.buckets, &page, rev(erased), EraseOptions::default())
                .await;
        assert!(matches!(refused, Err(Error::Store(StoreError::Corrupt(_)))), "{refused:?}");
        let read = world.buckets.newest_with(&page, rev(erased), &name("wikitext")).await;
        assert!(matches!(read, Err(Error::Erased { .. })), "{read:?}");
    }
    // With the option, the first erase deletes the damaged block, and so the unreadable revisions in the block.
    let options = EraseOptions { give_up_damaged: true, ..EraseOptions::default() };
    let erased = rashomon_pages::operations::erase(&world.buckets, &page, rev(kept[1]), options.clone())
        .await
        .unwrap();
    let given_up: Vec<_> = erased.given_up.iter().map(|(_, rev)| rev.get()).collect();
    // A revision that was marked as erased earlier is not reported as given up.
    let expected: Vec<_> = lost.iter().copied().filter(|number| *number != lost[1]).collect();
    assert_eq!((given_up, erased.blocks), (expected.clone(), 1));
    assert!(erased.given_up.iter().all(|(title, _)| *title == page.title));
    let again =
        rashomon_pages::operations::erase(&world.buckets, &page, rev(lost[1]), options).await.unwrap();
    assert!(again.again && again.given_up.is_empty() && again.blocks == 0, "{again:?}");
    let world = world.reopened().await;
    let left: Vec<_> = before.into_iter().filter(|number| *number != kept[1]).collect();
    assert_eq!(readable_revisions(&world, &page).await, left);
    for number in expected {
        let missing = world.buckets.revision(&page, rev(number)).await;
        assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
    }
    assert!(world.rows(&schemas::ARCHIVE_BLOCKS).await.iter().all(|other| other.key != row.key));
    world.assert_consistent().await;
}

async fn unreadable_block_is_given_up(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    world.edit(&one, 1..=4).await;
    world.edit(&two, 1..=3).await;
    world.pass(seal_delay());
    world.seal().await;
    // The block of these revisions is undamaged, and is kept.
    world.edit(&one, 5..=9).await;
    world.pass(seal_delay());
    let first = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    world.seal().await;
    assert_eq!(world.buckets.maintenance().give_up_unreadable(&one, rev(2)).await.unwrap(), []);
    let block = block_bytes(&first);
    replace_block(&world, &first, block[..100].to_vec()).await;
    let world = world.reopened().await;
    assert_eq!(world.buckets.maintenance().give_up_unreadable(&one, rev(6)).await.unwrap(), []);
    let given_up = world.buckets.maintenance().give_up_unreadable(&one, rev(2)).await.unwrap();
    let given_up: Vec<_> = (given_up.iter())
        .map(|one| (one.page.clone(), one.revisions.0.get(), one.revisions.1.get(), one.count))
        .collect();
    assert_eq!(given_up, [(two.clone(), 1, 2, 2), (one.clone(), 1, 3, 3)]);
    let world = world.reopened().await;
    assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await.len(), 1);
    world.assert_consistent().await;
    assert_eq!(world.buckets.maintenance().give_up_unreadable(&one, rev(2)).await.unwrap(), []);
    for (page, left) in [(&one, vec![4, 5, 6, 7, 8, 9]), (&two, vec![3])] {
        let bodies =
            world.buckets.bodies(page, &name("wikitext"), Revision::MIN, Revision::MAX).await.unwrap();
        assert_eq!(bodies.into_keys().map(Revision::get).collect::<Vec<_>>(), left);
    }
}

/// Damages one row of each table in turn. The other pages are sealed, and a revision that stays in the tables
/// is not counted as sealed.
async fn damaged_row_prevents_only_the_seal_of_its_revision(world: World) {
    let world = with_archive(world).await;
    let tables: [&'static Schema; 5] = [
        &schemas::REVISIONS,
        &schemas::RENDERS,
        &schemas::REVISION_CONTENT,
        &schemas::RENDER_CONTENT,
        &schemas::ARCHIVE_INDEX,
    ];
    for (domain, table) in ["r", "s", "t", "u", "v"].into_iter().zip(tables) {
        let pages = ["First", "Middle", "Third"].map(|title| page_of(&format!("{domain}wiki"), title));
        let seal = || async {
            let options = SealOptions::default();
            world
                .buckets
                .maintenance()
                .seal(&pages[0].domain, &BucketName::page(), options, &mut |_| {})
                .await
                .unwrap()
        };
        world.edit(&pages[1], 1..=3).await;
        world.pass(seal_delay());
        assert_eq!(seal().await.revisions, 2);
        for page in &pages {
            world.edit(page, 4..=7).await;
        }
        world.pass(seal_delay());
        let [first, middle, third] = &pages;
        let before = [
            world.read_everything(first).await,
            world.read_everything(middle).await,
            world.read_everything(third).await,
        ];
        // This is the middle row of the middle page.
        let mut of_page = world.rows(table).await;
        of_page.retain(|row| row.key.partition == partition_of(&pages[1]));
        let row = &of_page[of_page.len() / 2];
        overwrite(&world, table, row, vec![None; row.values.len()]).await;
        let what = table.name();
        // Without its index, no revision of the page is sealed. A damaged row of another table prevents only
        // the seal of its own revision.
        let stays = if table.name() == schemas::ARCHIVE_INDEX.name() { 4 } else { 1 };
        let sealed = seal().await;
        let all = 3 + 4 + 3;
        let counts = (sealed.pages, sealed.revisions, sealed.left, sealed.damaged());
        assert_eq!(counts, (3, all - stays, 0, stays), "{what}");
        let sealed = seal().await;
        assert_eq!((sealed.pages, sealed.revisions, sealed.left, sealed.kept), (3, 0, 0, stays), "{what}");
        let rows = world.rows(&schemas::REVISIONS).await;
        let in_tables =
            |page: &Page| rows.iter().filter(|row| row.key.partition == partition_of(page)).count();
        assert_eq!(pages.each_ref().map(in_tables), [1, 1 + stays as usize, 1], "{what}");
        overwrite(&world, table, row, row.values.clone()).await;
        assert_eq!(seal().await.revisions, stays, "{what}");
        let world = world.reopened().await;
        for (page, before) in pages.iter().zip(before) {
            assert_eq!(world.read_everything(page).await, before, "{what}");
        }
    }
    world.assert_consistent().await;
}

async fn revisions_around_a_damaged_row_are_sealed(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    for number in 1..=300 {
        world.put_revision(&one, number, &[("wikitext", format!("{number}"))]).await.unwrap();
    }
    world.edit(&two, 1..=3).await;
    world.pass(seal_delay());
    let row = world.rows(&schemas::REVISION_CONTENT).await.into_iter().find(|row| {
        row.key.partition == partition_of(&one) && RevisionBodyKey::of(row).unwrap().rev == rev(200)
    });
    let row = row.expect("the text of revision 200");
    let before = world.read_everything(&one).await;
    overwrite(&world, &schemas::REVISION_CONTENT, &row, vec![None; row.values.len()]).await;
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.damaged()), (298 + 2, 1));
    assert_eq!(world.revisions_in_tables().await, 2 + 1);
    overwrite(&world, &schemas::REVISION_CONTENT, &row, row.values.clone()).await;
    let world = world.reopened().await;
    assert!(world.read_everything(&one).await == before, "the page is read as before");
    assert_eq!(world.seal().await.revisions, 1);
    world.assert_consistent().await;
}

async fn late_render_of_a_revision_in_an_unreadable_block_stays_in_the_tables(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    world.edit(&one, 1..=5).await;
    world.pass(seal_delay());
    world.seal().await;
    for late in [2, 3] {
        world.put_render(&one, late, &[("html", "<p>late</p>")]).await.unwrap();
    }
    world.edit(&one, 6..=8).await;
    world.edit(&two, 1..=3).await;
    world.pass(seal_delay());
    let before = (world.read_everything(&one).await, world.read_everything(&two).await);
    let block = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    replace_block(&world, &block, vec![7; 100]).await;
    let world = world.reopened().await;
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.kept), (3 + 2, 2));
    replace_block(&world, &block, block_bytes(&block).to_vec()).await;
    let world = world.reopened().await;
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!((world.read_everything(&one).await, world.read_everything(&two).await), before);
    world.assert_consistent().await;
}

/// A store in which the table `revisions_by_time` of one page is damaged. A seal reads this table last.
#[derive(Debug)]
struct UnreadableIndexStore(Memory);

#[async_trait]
impl Decorator for UnreadableIndexStore {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.0
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<rashomon_tables::Page<Row>> {
        if table.name() == schemas::REVISIONS_BY_TIME.name()
            && scan.partition.last() == Some(&"Main_Page".into())
        {
            return Err(StoreError::Corrupt("a row of revisions_by_time".to_owned()));
        }
        self.0.scan(table, scan).await
    }
}

#[tokio::test]
async fn damaged_time_index_does_not_prevent_the_seal_of_other_pages() {
    let (world, _store) = World::over_memory(UnreadableIndexStore).await;
    let world = with_archive(world).await;
    let pages = ["First", "Main_Page", "Third"].map(page);
    for page in &pages {
        world.edit(page, 1..=3).await;
    }
    world.pass(seal_delay());
    let sealed = world.seal().await;
    assert_eq!((sealed.pages, sealed.blocks, sealed.kept), (3, 1, 2));
    assert_eq!(world.revisions_in_tables().await, 1 + 3 + 1);
    // The garbage collection entry of the block stays, since an erase in the damaged page has to find the block.
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 1);
}

async fn verify_finds_lost_rows_of_the_archive(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    world.edit(&one, 1..=4).await;
    world.edit(&two, 1..=3).await;
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(world.assert_consistent().await.blocks, 1);
    for table in [&*schemas::ARCHIVE_INDEX, &*schemas::ARCHIVE_BLOCKS] {
        for row in world.rows(table).await {
            let mut lost = Batch::new(row.key.partition.clone());
            lost.delete(table, row.key.clustering.clone(), row.written_at);
            world.store.as_ref().write(Vec::new(), lost).await.unwrap();
            let problems = world.reopened().await.verify().await.problems;
            assert!(!problems.is_empty(), "{} {:?}", table.name(), row.key);
            overwrite(&world, table, &row, row.values.clone()).await;
        }
    }
    // Writes an index row with one other value. `generation` is left alone, since nothing else says which
    // value is right.
    let row = world.rows(&schemas::ARCHIVE_INDEX).await.remove(0);
    let columns = schemas::ARCHIVE_INDEX.values().iter().map(|column| column.name);
    for column in columns.filter(|column| *column != "generation") {
        let mut values = row.values.clone();
        let value = column_mut(&schemas::ARCHIVE_INDEX, &mut values, column);
        *value = Some(match value.clone() {
            Some(Value::Int(number)) => Value::Int(number + 1),
            Some(Value::Timestamp(time)) => {
                Value::Timestamp(rashomon_clock::Timestamp::from_micros(time.as_micros() + 1))
            }
            Some(Value::Text(_)) => Value::Text("[\"wikitext\"]".to_owned()),
            Some(Value::TimeUuid(_)) => Tid::new(at(7), 7).to_value(),
            // Positions of no revisions: three empty lists.
            None if column == "positions" => Value::Blob(vec![0, 1, 0, 1, 0].into()),
            value => panic!("{value:?}"),
        });
        overwrite(&world, &schemas::ARCHIVE_INDEX, &row, values).await;
        assert!(!world.verify().await.problems.is_empty(), "column {column}");
    }
}

/// After any failed write, whether the write happened or not, a second call completes the work. Other
/// revisions are kept.
#[tokio::test]
async fn interrupted_give_up_is_completed_by_the_next() {
    for (fault, number) in [Fault::Before, Fault::After]
        .into_iter()
        .flat_map(|fault| (1..=5).map(move |number| (fault.clone(), number)))
    {
        let clock = Arc::new(ManualClock::new(START));
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn rashomon_clock::Clock>);
        let faulty = Arc::new(Faulty::new(memory, Plan::empty()));
        let world = World::on(Arc::clone(&faulty) as AnyStore, clock, super::settings(), 1).await;
        let pages = [page("Main_Page"), page("Other"), page("Third")];
        for page in &pages {
            world.edit(page, 1..=3).await;
        }
        world.pass(seal_delay());
        world.seal().await;
        let block = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
        replace_block(&world, &block, vec![7; 100]).await;
        let world = world.reopened().await;
        faulty.set_plan(Plan::empty().on(Call::Write, number, fault.clone()));
        let interrupted = world.buckets.maintenance().give_up_unreadable(&pages[1], rev(1)).await;
        faulty.set_plan(Plan::empty());
        let what = format!("{fault:?} {number}: {interrupted:?}");
        assert!(interrupted.is_err(), "{what}");
        world.buckets.maintenance().give_up_unreadable(&pages[1], rev(1)).await.unwrap();
        world.pass(seal_delay());
        world.buckets.maintenance().collect_orphans(seal_delay()).await.unwrap();
        assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await, [], "{what}");
        assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await, [], "{what}");
        let world = world.reopened().await;
        world.assert_consistent().await;
        for page in &pages {
            assert_eq!(world.buckets.revisions(page, None, 9).await.unwrap().items.len(), 1, "{what}");
        }
    }
}

/// A store that changes a byte of each block that is written to it.
#[derive(Debug)]
struct BitFlippingStore(Memory);

#[async_trait]
impl Decorator for BitFlippingStore {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.0
    }

    async fn write(&self, first: Vec<Batch>, mut then: Batch) -> Result<()> {
        for mutation in &mut then.mutations {
            if let Mutation::Put { table, values, .. } = mutation
                && table.name() == schemas::ARCHIVE_BLOCKS.name()
                && let Some(Value::Blob(block)) = column_mut(table, values, "value")
            {
                let mut other = block.to_vec();
                let middle = other.len() / 2;
                other[middle] ^= 1;
                *block = other.into();
            }
        }
        self.0.write(first, then).await
    }
}

/// Rows are deleted only after their block was read back with the bytes that were written.
#[tokio::test]
async fn seal_deletes_nothing_if_the_block_is_read_back_with_other_bytes() {
    let (world, _store) = World::over_memory(BitFlippingStore).await;
    let world = with_archive(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=6).await;
    world.pass(seal_delay());
    let before = world.read_everything(&page).await;
    let sealed = world.try_seal().await;
    assert!(matches!(sealed, Err(Error::Store(StoreError::Corrupt(_)))), "{sealed:?}");
    assert_eq!(world.revisions_in_tables().await, 6);
    assert_eq!(world.reopened().await.read_everything(&page).await, before);
}
