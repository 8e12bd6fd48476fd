//! Tests of what an open block builds, and of what the cache knows of it.

use std::{collections::BTreeMap, time::Duration};

use rashomon_archive_format::{ArchivedBody, Bodies, BodyLocation, Texts};
use rashomon_clock::ManualClock;
use rashomon_records::{
    ExportRecord, Headers, PropertyInfo, PropertyName, RevisionRecord, Sha1, Tid,
    rows::{Properties, RevisionRow},
};
use rashomon_tables::Memory;

use super::*;
use crate::pending::PendingBlock;

const PAGES: i64 = 40;
const REVISIONS: i64 = 5;
const ID: BlockId = 7_i128.to_be_bytes();

fn page(number: i64) -> Page {
    Page::parse("wiki.example", "page", &format!("Page {number}")).expect("a valid page")
}

/// An imported revision of a page, with its text.
fn revision(page: &Page, number: i64) -> (Unit, Texts) {
    let (name, text) = (PropertyName::wikitext(), format!("text {number} of {}", page.title));
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

/// A block of several pages.
fn block_bytes() -> Bytes {
    let mut pending = PendingBlock::new().expect("good settings");
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
fn the_part_of_a_page_is_built_when_it_is_requested_and_no_other() {
    let block = opened();
    let before = block.weigh();
    let built = || block.parts.lock().expect("no reader panicked").len();
    assert_eq!((built(), block.has_grown()), (0, false));
    assert!(block.has_part(&page(3).title) && !block.has_part(&page(PAGES).title));
    assert_eq!(block.titles(), (0..PAGES).map(|number| page(number).title).collect());
    assert_eq!(built(), 0);

    let part = block.part_of(&page(3)).expect("the page is in the block");
    assert_eq!((built(), part.revisions().count()), (1, REVISIONS as usize));
    assert!(Arc::ptr_eq(&part, &block.part_of(&page(3)).expect("the page is in the block")));
    assert_eq!(block.weigh(), before + part.memory(), "a part that was built counts once");
    for number in 0..PAGES {
        let units = block.units(&page(number)).expect("the page is in the block");
        let expected: Vec<_> = (1..=REVISIONS).map(|rev| revision(&page(number), rev).0.revision).collect();
        assert_eq!(units.iter().map(|unit| unit.revision.clone()).collect::<Vec<_>>(), expected);
    }
    assert!(block.part_of(&page(PAGES)).is_err());
}

#[tokio::test]
async fn the_cache_weighs_a_block_again_when_its_parts_were_built() {
    let limits = rashomon_admission::Limits { running: NonZeroUsize::MIN, waiting: 0, wait: Duration::ZERO };
    let store = Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    store.create(&ARCHIVE_BLOCKS).await.expect("the store works");
    let blocks = BlockStore::new(Arc::new(store), 64 << 20, Arc::new(Permits::new(limits)));
    let (bytes, of) = (block_bytes(), page(0));
    blocks.write(&of, ID, &bytes, Timestamp::EPOCH).await.expect("the store works");
    let weighed = async || {
        blocks.unpacked.run_pending_tasks().await;
        blocks.unpacked.weighted_size()
    };
    let block = blocks.open(&of, ID).await.expect("an undamaged block");
    let before = weighed().await;
    for number in 0..PAGES {
        block.part_of(&page(number)).expect("the page is in the block");
    }
    // Another block takes the place of the one that was requested last.
    blocks.with_last(|last| *last = None);
    assert_eq!(weighed().await, before);
    blocks.open(&of, ID).await.expect("the block is in memory");
    assert!(weighed().await >= before * 2, "{} {before}", weighed().await);
    assert_eq!(blocks.opened(), 1);
}
