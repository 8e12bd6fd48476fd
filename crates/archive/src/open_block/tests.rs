//! Tests of what an open block builds, and of what the cache knows of it.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use rashomon_admission::Permits;
use rashomon_archive_format::{ArchivedBody, Bodies, BodyLocation, Texts};
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_records::{
    ExportRecord, Headers, PropertyInfo, PropertyName, RevisionRecord, Sha1, Tid,
    rows::{Properties, RevisionRow},
    schemas::{ARCHIVE_BLOCKS, REVISIONS as REVISION_ROWS},
};
use rashomon_tables::{Memory, TableStore};

use super::*;
use crate::{BlockVersion, blocks::BlockStore, pending::PendingBlock};

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
    OpenBlock::new(&page(0), ID, block_bytes()).expect("an undamaged block")
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
    assert!(!block.is_unpacked_for(&last.title, Needs::Rows));
    block.unpack_for(&last.title, Needs::Units);
    assert!(
        block.is_unpacked_for(&last.title, Needs::Units),
        "revisions are decoded without the part of the page"
    );
    assert!(!block.is_unpacked_for(&last.title, Needs::Rows));
    block.unpack_for(&last.title, Needs::Rows);
    assert!(
        block.is_unpacked_for(&last.title, Needs::Rows)
            && !block.is_unpacked_for(&page(0).title, Needs::Rows)
    );
    assert_eq!(unpacked(), [block.groups.len() - 1]);
    let parts = block.parts_of(&last).expect("the page is in the block");
    let all = ClusteringRange::all();
    let rows = parts.iter().map(|part| part.rows(&REVISION_ROWS, &all).len());
    assert_eq!(rows.sum::<usize>(), REVISIONS as usize);
    assert!(Arc::ptr_eq(&parts[0], &block.parts_of(&last).expect("the page is in the block")[0]));
    let (weight, built) = (block.weigh(), before + parts[0].memory());
    assert!(weight > built, "{weight} {built}");
    block.parts_of(&last).expect("the page is in the block");
    assert_eq!(block.weigh(), weight, "a part that was built counts once");

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
        let block = OpenBlock::new(&page(0), ID, damaged.into()).expect("the directory is undamaged");
        assert!(block.is_damaged());
        block.units(&page(0)).expect("the page is in another group");
        let error = block.units(&page(PAGES - 1)).expect_err("the records are damaged");
        assert!(error.to_string().contains(lost), "{error}");
        assert!(matches!(block.check_records(), Err(StoreError::Corrupt(_))));
    }
}

#[tokio::test]
async fn the_cache_weighs_a_block_again_when_its_parts_were_built() {
    let limits = rashomon_admission::Limits { running: NonZeroUsize::MIN, waiting: 0, wait: Duration::ZERO };
    let store = Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    store.create(&ARCHIVE_BLOCKS).await.expect("the store works");
    let blocks = BlockStore::new(Arc::new(store), 64 << 20, Arc::new(Permits::new(limits)));
    let (bytes, of) = (block_bytes(), page(0));
    blocks.write(&of, ID, &bytes, Timestamp::EPOCH).await.expect("the store works");
    let block = blocks.open(&of, ID).await.expect("an undamaged block");
    let before = blocks.weight_in_cache().await;
    assert_eq!(before, block.weigh() as u64, "what the first reader unpacked counts");
    for number in 0..PAGES {
        block.unpack_for(&page(number).title, Needs::Rows);
    }
    // Another block takes the place of the one that was requested last.
    blocks.forget_last();
    assert_eq!(blocks.weight_in_cache().await, before);
    blocks.open(&of, ID).await.expect("the block is in memory");
    let after = blocks.weight_in_cache().await;
    assert!(after >= before * 2, "{after} {before}");
    assert_eq!(blocks.opened(), 1);
}
