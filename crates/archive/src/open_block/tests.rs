//! Tests of what an open block builds, and of what the cache knows of it.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    ops::{Bound, RangeBounds},
    time::Duration,
};

use crate::format::{ArchivedBody, Bodies, BodyLocation, Texts};
use rashomon_clock::admission::{Permits, refusable};
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_records::{
    ExportRecord, Headers, PropertyInfo, PropertyName, RevisionRecord, Sha1, Tid,
    rows::{Properties, RenderRow, RevisionRow, TypedRow, partition_of, rev_key},
    schemas::{
        ARCHIVE_BLOCKS, ARCHIVE_INDEX, RENDER_CONTENT, RENDERS, REVISIONS as REVISION_ROWS, REVISIONS_BY_TID,
        REVISIONS_BY_TIME,
    },
};
use rashomon_tables::{Batch, Key, Memory, Schema, TableStore, Value};

use super::*;
use crate::{
    BlockVersion,
    blocks::BlockStore,
    index::{Axis, IndexRow},
    part::{RowSource, archived_tables},
    pending::PendingBlock,
};

const PAGES: i64 = 600;
const REVISIONS: i64 = 5;
const ID: BlockId = 7_i128.to_be_bytes();

fn page(number: i64) -> Page {
    Page::parse("wiki.example", "page", &format!("Page {number}")).expect("a valid page")
}

/// An imported revision of a page, with its text.
fn revision(page: &Page, number: i64) -> (Unit, Texts) {
    let name = PropertyName::wikitext();
    let text = format!("text {number} of {}: {}", page.title, noise(page.title.as_str()));
    let info = PropertyInfo {
        headers: Headers { content_type: "text/x-wiki".to_owned(), other: BTreeMap::new() },
        size: text.len() as u64,
        sha1: Sha1::of(text.as_bytes()),
        rewritten_at: None,
    };
    let (rev, at) = (Revision::new(number).expect("a valid revision"), Timestamp::from_micros(number));
    let body = ArchivedBody { info: info.clone(), written_at: at, location: BodyLocation::Entry(0) };
    let record = RevisionRecord {
        rev,
        parent: None,
        timestamp: at,
        user: None,
        comment: None,
        minor: false,
        export: ExportRecord::default(),
        erased: None,
    };
    let revision = RevisionRow {
        record,
        properties: Properties::from_iter([(name.clone(), info)]),
        first_tid: Tid::imported(page, rev, at),
        stored_at: at,
        digest: [0; 16],
        written_at: at,
    };
    let unit = Unit { revision, bodies: Bodies::from([(name.clone(), body)]), renders: Vec::new() };
    (unit, Texts::from([((name, None), text.into())]))
}

/// Text that is different for each title.
fn noise(title: &str) -> String {
    (0..10).map(|number| format!("{:x}", xxh3_64(format!("{title} {number}").as_bytes()))).collect()
}

/// A block of several pages, in several groups.
fn block_bytes() -> Bytes {
    let mut pending = PendingBlock::new(BlockVersion::Two).expect("good settings");
    for of in (0..PAGES).map(page) {
        for number in 1..=REVISIONS {
            let (unit, texts) = revision(&of, number);
            pending.push(&of, unit, &texts).expect("the revision fits");
        }
    }
    pending.finish().expect("the block is finished").0
}

fn opened() -> OpenBlock {
    OpenBlock::new(ID, block_bytes()).expect("an undamaged block")
}

const UNBOUNDED: (Bound<&Value>, Bound<&Value>) = (Bound::Unbounded, Bound::Unbounded);

/// The rows of all revisions of a page.
fn rows_of(block: &OpenBlock, page: &Page) -> Vec<ArchivedRow> {
    block.rows(page, &wanted(&REVISION_ROWS, UNBOUNDED, true, usize::MAX)).expect("the page is in the block")
}

fn wanted<'a>(
    table: &'static Schema,
    limits: (Bound<&'a Value>, Bound<&'a Value>),
    rises: bool,
    enough: usize,
) -> WantedRows<'a> {
    let axis = Axis::of(table).expect("blocks have rows of the table");
    WantedRows { table, axis, limits, rises, enough, is_wanted: &|_| true }
}

/// A page of 3,000 revisions whose times do not rise with their numbers, some with two renders, after another page.
fn long_page() -> (Page, OpenBlock) {
    let (mut pending, long) = (PendingBlock::new(BlockVersion::Two).expect("good settings"), page(1));
    let mut push = |of: &Page, number: i64, time: i64| {
        let (mut unit, mut texts) = revision(of, number);
        let at = Timestamp::from_micros(time);
        let html = PropertyName::new("html").expect("a name");
        let text = format!("rendered {number}");
        let info = PropertyInfo {
            size: text.len() as u64,
            sha1: Sha1::of(text.as_bytes()),
            ..unit.bodies[&PropertyName::wikitext()].info.clone()
        };
        unit.revision.record.timestamp = at;
        unit.revision.first_tid = Tid::imported(of, unit.revision.record.rev, at);
        let mut tids = vec![unit.revision.first_tid];
        if number % 2 == 0 {
            // Later than the renders of the next revisions by time.
            tids.push(Tid::new(Timestamp::from_micros(time + 2_500), 7));
        }
        for tid in tids {
            let body = ArchivedBody { info: info.clone(), written_at: at, location: BodyLocation::Entry(0) };
            let row = RenderRow {
                rev: unit.revision.record.rev,
                tid,
                properties: Properties::from_iter([(html.clone(), info.clone())]),
                stored_at: at,
                digest: [1; 16],
                left_out: false,
                written_at: at,
            };
            texts.insert((html.clone(), Some(tid)), text.clone().into());
            unit.renders.push((row, Bodies::from([(html.clone(), body)])));
        }
        pending.push(of, unit, &texts).expect("the revision fits");
    };
    push(&page(0), 1, 1);
    for number in 1..=3_000 {
        // Two revisions have the same time.
        push(&long, number, number * 7_919 % 3_001 / 2 * 1_000);
    }
    let bytes = pending.finish().expect("the block is finished").0;
    (long.clone(), OpenBlock::new(ID, bytes).expect("an undamaged block"))
}

/// Rows within random limits, in both orders, are the first of all rows within these limits.
#[test]
fn rows_of_a_long_page_are_found_by_number_time_and_tid() {
    let (long, block) = long_page();
    assert!(block.groups.len() > 3, "{} groups", block.groups.len());
    let mut rng = fastrand::Rng::with_seed(5);
    let mut cut_short = 0;
    for table in archived_tables() {
        let column = Axis::of(table).expect("archived").column;
        let all = block.rows(&long, &wanted(table, UNBOUNDED, true, usize::MAX)).expect("no damage");
        let of_renders = [&*RENDERS, &*REVISIONS_BY_TID, &*RENDER_CONTENT];
        let is_of_renders = of_renders.into_iter().any(|other| other.name() == table.name());
        assert_eq!(all.len(), if is_of_renders { 4_500 } else { 3_000 }, "{}", table.name());
        for _ in 0..100 {
            let mut bound = || {
                let value = all[rng.usize(..all.len())].clustering[column].clone();
                match rng.u8(..3) {
                    0 => Bound::Included(value),
                    1 => Bound::Excluded(value),
                    _ => Bound::Unbounded,
                }
            };
            let (lower, upper) = (bound(), bound());
            let (rises, enough) = (rng.bool(), 1 + rng.usize(..50));
            let limits = (lower.as_ref(), upper.as_ref());
            let is_within = |key: &[Value]| limits.contains(&key[column]);
            let wanted = WantedRows { is_wanted: &is_within, ..wanted(table, limits, rises, enough) };
            let rows = block.rows(&long, &wanted).expect("no damage");
            let first = |rows: &[ArchivedRow]| {
                let keys = rows.iter().map(|row| &row.clustering);
                let mut keys: Vec<_> = keys.filter(|key| is_within(key)).cloned().collect();
                keys.sort_by(|one, other| {
                    let by_axis = one[column].cmp(&other[column]);
                    // A search sorts rows with the same value by the other columns.
                    if rises { by_axis } else { by_axis.reverse() }.then_with(|| one.cmp(other))
                });
                keys.truncate(enough);
                keys
            };
            assert_eq!(first(&rows), first(&all), "{} {limits:?} {rises} {enough}", table.name());
            cut_short += usize::from(rows.len() < all.len() / 4);
        }
    }
    assert!(cut_short > 300, "{cut_short} searches did not read most rows");
    assert!(block.groups.iter().all(|group| group.texts.get().is_none()), "nothing was decoded");
}

#[test]
fn a_read_of_a_long_page_unpacks_the_texts_of_its_group_and_keeps_few_revisions() {
    let (long, block) = long_page();
    let value = Value::Int(2_999);
    let exactly = (Bound::Included(&value), Bound::Included(&value));
    let unpacked = || block.groups.iter().filter(|group| group.texts.get().is_some()).count();

    block.unpack_for(&long.title, &Needs::within(Axis::of(&REVISIONS_BY_TIME).expect("archived"), UNBOUNDED));
    assert_eq!(unpacked(), 0, "an index by time needs no texts");
    let wanted = wanted(&REVISION_ROWS, exactly, true, 1);
    let needs = Needs::within(wanted.axis, exactly);
    assert!(!block.is_unpacked_for(&long.title, &needs));
    block.unpack_for(&long.title, &needs);
    assert!(block.is_unpacked_for(&long.title, &needs));
    assert_eq!(unpacked(), 2, "its group and the first one");
    assert!(!block.is_unpacked_for(&long.title, &Needs::ALL));

    let rows = block.rows(&long, &wanted).expect("no damage");
    let [ArchivedRow { what: RowSource::Of(packed, _), .. }] = &rows[..] else { panic!("{rows:?}") };
    let before = block.weigh();
    let unit = block.unit(&long, packed).expect("no damage");
    assert_eq!(unit.revision.record.rev.get(), 2_999);
    assert!(Arc::ptr_eq(&unit, &block.unit(&long, packed).expect("no damage")), "it is decoded once");
    assert_eq!(block.weigh(), before + memory_of(&unit));
    for packed in block.entries_of(&long, &(Revision::MIN..=Revision::MAX)).expect("no damage") {
        block.unit(&long, &packed).expect("no damage");
    }
    assert!(block.decoded().len() <= 1_024, "of 3,000 decoded revisions");
    let texts = block.groups.iter().filter_map(|group| group.texts.get()?.as_ref().ok());
    let texts: usize = texts.map(Unpacked::memory).sum();
    assert!(block.weigh() <= before + texts + 1_024 * 2 * memory_of(&unit));
}

#[test]
fn what_a_page_needs_is_unpacked_when_it_is_requested_and_nothing_else() {
    let block = opened();
    assert!(block.groups.len() > 3, "{} groups", block.groups.len());
    let before = block.weigh();
    let unpacked = || {
        let groups = block.groups.iter().enumerate();
        let groups = groups.filter(|(_, group)| group.records.get().is_some() && group.texts.get().is_some());
        groups.map(|(group, _)| group).collect::<Vec<_>>()
    };
    assert_eq!((unpacked(), block.has_grown()), (vec![], false));
    assert_eq!(block.titles().expect("no damage"), (0..PAGES).map(|number| page(number).title).collect());

    let last = page(PAGES - 1);
    assert!(!block.is_unpacked_for(&last.title, &Needs::Keys));
    block.unpack_for(&last.title, &Needs::Keys);
    assert!(block.is_unpacked_for(&last.title, &Needs::Keys));
    assert!(!block.is_unpacked_for(&last.title, &Needs::ALL));
    assert!(block.groups.iter().all(|group| group.texts.get().is_none()), "keys need no texts");
    block.unpack_for(&last.title, &Needs::ALL);
    assert!(block.is_unpacked_for(&last.title, &Needs::ALL));
    assert!(!block.is_unpacked_for(&page(0).title, &Needs::Keys));
    assert_eq!(unpacked(), [block.groups.len() - 1]);
    assert_eq!(rows_of(&block, &last).len(), REVISIONS as usize);
    let weight = block.weigh();
    assert!(weight > before, "{weight} {before}");

    for number in 0..PAGES {
        assert!(block.has_part(&page(number).title));
        let units = block.units(&page(number)).expect("the page is in the block");
        let expected: Vec<_> = (1..=REVISIONS).map(|rev| revision(&page(number), rev).0.revision).collect();
        assert_eq!(units.iter().map(|unit| unit.revision.clone()).collect::<Vec<_>>(), expected);
    }
    assert!(block.parts_of(&page(PAGES)).is_err() && !block.has_part(&page(PAGES).title));
}

/// Damage in the records of a group hides only the pages of the group. An erasure gives up the block.
#[test]
fn pages_of_undamaged_groups_are_read() {
    let bytes = block_bytes();
    let of_last = {
        let block = Block::open(&bytes, Limits::default()).expect("no damage");
        block.stored_bytes_of_group(block.groups() - 1)
    };
    for (from_end, lost) in [(1, "columns"), (of_last - 1, "entries")] {
        let mut damaged = bytes.to_vec();
        let at = damaged.len() - from_end;
        damaged[at] ^= 1;
        let block = OpenBlock::new(ID, damaged.into()).expect("the directory is undamaged");
        assert!(block.is_damaged());
        block.units(&page(0)).expect("the page is in another group");
        let error = block.units(&page(PAGES - 1)).expect_err("the records are damaged");
        assert!(error.to_string().contains(lost), "{error}");
        assert!(matches!(block.check_records(), Err(StoreError::Corrupt(_))));
    }
}

#[tokio::test]
async fn the_cache_weighs_a_block_again_when_its_parts_were_built() {
    let limits =
        rashomon_clock::admission::Limits { running: NonZeroUsize::MIN, waiting: 0, wait: Duration::ZERO };
    let store = Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    store.create(&ARCHIVE_BLOCKS).await.expect("the store works");
    let blocks = BlockStore::new(Arc::new(store), 64 << 20, Arc::new(Permits::new(limits)));
    let (bytes, of) = (block_bytes(), page(0));
    blocks.write(&of, ID, &bytes, Timestamp::EPOCH).await.expect("the store works");
    let block = blocks.open(&of, ID).await.expect("an undamaged block");
    let before = blocks.weight_in_cache().await;
    assert_eq!(before, block.weigh() as u64, "what the first reader unpacked counts");
    for number in 0..PAGES {
        block.unpack_for(&page(number).title, &Needs::ALL);
    }
    // Another block takes the place of the one that was requested last.
    blocks.forget_last();
    assert_eq!(blocks.weight_in_cache().await, before);
    blocks.open(&of, ID).await.expect("the block is in memory");
    let after = blocks.weight_in_cache().await;
    assert!(after >= before * 2, "{after} {before}");
    assert_eq!(blocks.opened(), 1);
}

/// With the queue for permits full, only a read that would have to unpack something is refused.
#[tokio::test]
async fn a_read_of_what_is_unpacked_is_not_refused() {
    let limits =
        rashomon_clock::admission::Limits { running: NonZeroUsize::MIN, waiting: 0, wait: Duration::ZERO };
    let store = Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    for table in archived_tables().into_iter().chain([&*ARCHIVE_BLOCKS, &*ARCHIVE_INDEX]) {
        store.create(table).await.expect("the store works");
    }
    let blocks = BlockStore::new(Arc::new(store), 64 << 20, Arc::new(Permits::new(limits)));
    let (long, block) = long_page();
    blocks.write(&long, ID, &block.bytes, Timestamp::EPOCH).await.expect("the store works");
    let mut batch = Batch::new(partition_of(&long));
    let units = block.units(&long).expect("no damage");
    let index = IndexRow::of(ID, &units).expect("each revision has a render");
    index.to_stored().put(&mut batch, Timestamp::EPOCH);
    blocks.store.write(Vec::new(), batch).await.expect("the store works");
    let state = blocks.indexes.state(&*blocks.store, &partition_of(&long)).await;
    state.expect("the store works").expect("the memory store has partition versions");

    let rev = |number| Revision::new(number).expect("a valid revision");
    blocks.open_for(&long, ID, Needs::Texts(rev(2_999)..=rev(2_999))).await.expect("no damage");
    let _held = blocks.permits().take().await.expect("the first permit");
    for (number, is_refused) in [(2_999, false), (1_500, true)] {
        let key = Key::new(partition_of(&long), rev_key(rev(number)));
        let read = refusable(blocks.refuse_early(&REVISION_ROWS, &key)).await;
        assert_eq!(matches!(read, Err(StoreError::Unavailable(_))), is_refused, "{number}: {read:?}");
    }
}
