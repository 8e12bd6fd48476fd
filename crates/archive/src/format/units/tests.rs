//! Tests that units are read back from a block unchanged, and that derivable values are not stored.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_blocks::{BlockBuilder, Limits, Settings, Value};

use super::*;
use crate::format::{
    columns::columns,
    entries::{Texts, UnitWriter},
};
use rashomon_records::{
    ExportRecord, Headers, Parent, SlotRecord,
    rows::{Properties, RenderRow, RevisionRow},
};

/// Writes revisions of pages into a block.
struct Writer {
    builder: BlockBuilder,
    pages: Pages,
}

impl Writer {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let settings = Settings { level: 1, ..settings };
        Self {
            builder: BlockBuilder::new(settings, columns(), 0).expect("good settings"),
            pages: Pages::new(),
        }
    }

    fn push(&mut self, page: &Page, mut unit: Unit, texts: &Texts) {
        if self.pages.last().is_none_or(|(last, _)| last != page) {
            self.pages.push((page.clone(), Vec::new()));
        }
        let (_, units) = self.pages.last_mut().expect("a page was just pushed");
        let above = units.last().map(|unit| unit.revision.record.rev);
        let writer = UnitWriter { builder: &mut self.builder, page, above };
        writer.push(&mut unit, texts).expect("the unit fits");
        units.push(unit);
    }

    /// Finishes the block, and checks that everything is read back unchanged.
    fn finish(mut self) -> Vec<u8> {
        let bytes = self.builder.finish().expect("the block is finished");
        let block = Block::open(&bytes, Limits::default()).expect("the new block opens");
        let read = read_units(&page("any"), &block).expect("the block is whole");
        assert_eq!(read.map(|(pages, _)| pages).as_ref(), Some(&self.pages));
        let mut read = Vec::new();
        for group in 0..block.groups() {
            let table = block.table(group).expect("the block is whole");
            for entries in page_entries(&table).expect("the entries are understood") {
                let page = page(entries.title(&table).expect("each page has a title"));
                let units = entries.units(&table).expect("the entries are understood").into_iter();
                read.extend(units.map(|unit| (page.clone(), unit.keys(&table, &page))));
            }
        }
        let expected = self
            .pages
            .iter()
            .flat_map(|(page, units)| units.iter().map(|unit| (page.clone(), Some(keys_of(unit)))));
        assert_eq!(read, expected.collect::<Vec<_>>());
        bytes
    }
}

/// Returns the keys and times of a unit.
fn keys_of(unit: &Unit) -> UnitKeys {
    let bodies = unit.all_bodies().map(|(name, of, body)| (name.clone(), of, body.written_at));
    UnitKeys {
        rev: unit.revision.record.rev,
        timestamp: unit.revision.record.timestamp,
        written_at: unit.revision.written_at,
        renders: unit.renders.iter().map(|(render, _)| (render.tid, render.written_at)).collect(),
        bodies: bodies.collect(),
    }
}

fn page(title: &str) -> Page {
    Page::parse("wiki.example", "page", title).expect("a valid page")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn body(text: &str) -> ArchivedBody {
    let info = PropertyInfo {
        headers: Headers { content_type: "text/x-wiki".to_owned(), other: BTreeMap::new() },
        size: text.len() as u64,
        sha1: Sha1::of(text.as_bytes()),
        rewritten_at: None,
    };
    ArchivedBody { info, written_at: at(1_000), location: BodyLocation::Entry(0) }
}

/// Creates an imported revision with all derivable export fields, and two others.
fn imported(page: &Page, number: i64, parent: i64, text: &str) -> (Unit, Texts) {
    let wikitext = PropertyName::wikitext();
    let bodies = Bodies::from([(wikitext.clone(), body(text))]);
    let sha1 = Some(Sha1::of(text.as_bytes()).to_base36());
    let main = SlotRecord {
        model: Some("wikitext".to_owned()),
        origin: Some(number),
        bytes: Some(text.len() as i64),
        sha1: sha1.clone(),
        ..SlotRecord::default()
    };
    let record = RevisionRecord {
        rev: Revision::new(number).expect("a valid revision"),
        parent: Parent::from_number(parent),
        timestamp: at(number),
        user: Some("Ann".to_owned()),
        comment: Some(format!("edit {number}")),
        minor: number % 2 == 0,
        export: ExportRecord { user_id: Some(7), sha1, main: Some(main), ..ExportRecord::default() },
        erased: None,
    };
    let infos = infos(&bodies);
    let revision = RevisionRow {
        first_tid: Tid::imported(page, record.rev, record.timestamp),
        digest: digest_of(&infos, &Properties::new()),
        properties: infos,
        record,
        stored_at: at(1_000),
        written_at: at(1_000),
    };
    let renders = vec![(render_of_import(page, &revision), Bodies::new())];
    let texts = Texts::from([((wikitext, None), Bytes::from(text.to_owned()))]);
    (Unit { revision, bodies, renders }, texts)
}

fn push_imported(writer: &mut Writer, page: &Page, number: i64, parent: i64, text: &str) {
    let (unit, texts) = imported(page, number, parent, text);
    writer.push(page, unit, &texts);
}

/// Returns the number of entries of a block that have a value in a column.
fn values(block: &Block<'_>, column: &str) -> usize {
    let values = block.column(column).expect("the column exists");
    values.iter().filter(|value| **value != Value::Absent).count()
}

#[test]
fn block_omits_derivable_values_of_imported_revisions() {
    let mut writer = Writer::new();
    for (title, numbers) in [("A/b", 1..=5), ("B", 6..=7)] {
        for number in numbers {
            let parent = if number == 1 || number == 6 { 0 } else { number - 1 };
            push_imported(&mut writer, &page(title), number, parent, &format!("text {number}"));
        }
    }
    let bytes = writer.finish();
    let block = Block::open(&bytes, Limits::default()).expect("the block is whole");
    assert_eq!(block.len(), 7, "each revision has one entry");
    let left_out = ["size", "sha1", "digest", "first_tid", "properties", "tid", "tid_ticks", "written_at"];
    for column in left_out {
        assert_eq!(values(&block, column), 0, "{column}");
    }
    let export = Value::Bytes(br#"{"user_id":7,"main":{"model":"wikitext"}}"#.to_vec());
    assert_eq!(block.column("export"), Ok(vec![export; 7]));
    let parents: Vec<_> = [0, 1, 1, 1, 1, 0, 1].map(Value::Integer).into();
    assert_eq!(block.column("parent"), Ok(parents));
}

#[test]
fn a_page_in_several_groups_is_read_unchanged() {
    let mut writer = Writer::with(Settings { group_entries: 3, ..Settings::default() });
    for (title, numbers) in [("A", 1..=2), ("B", 3..=10), ("C", 11..=12), ("D", 13..=13)] {
        for number in numbers {
            push_imported(&mut writer, &page(title), number, number - 1, &format!("text {number}"));
        }
    }
    let bytes = writer.finish();
    let block = Block::open(&bytes, Limits::default()).expect("the block is whole");
    assert_eq!(block.groups(), 5, "of 2 and 1, 3, 3, 1 and 2, and 1 revisions");
    // In the entry that begins a group, the parent is a number, even if it is the previous revision.
    let parents: Vec<_> = [0, 1, -2, -3, 1, 1, -6, 1, 1, -9, -10, 1, -12].map(Value::Integer).into();
    assert_eq!(block.column("parent"), Ok(parents));
}

#[test]
fn block_keeps_values_that_cannot_be_derived() {
    let (one, mut writer) = (page("One"), Writer::new());
    push_imported(&mut writer, &one, 1, 0, "one");
    // The parent is not the previous revision, and the export fields do not match the text.
    let (mut unit, texts) = imported(&one, 9, 4, "nine");
    let export = &mut unit.revision.record.export;
    export.sha1 = Some("0000".to_owned());
    let main = export.main.as_mut().expect("the export has a main slot");
    (main.bytes, main.origin) = (Some(3), Some(8));
    unit.revision.written_at = at(1_001);
    writer.push(&one, unit, &texts);
    // The revision has no export fields, parent, user or comment, and was stored before its write time.
    let (mut unit, texts) = imported(&one, 10, 9, "");
    unit.revision.record.export = ExportRecord::default();
    (unit.revision.record.parent, unit.revision.record.user, unit.revision.record.comment) =
        (None, None, None);
    unit.revision.stored_at = at(999);
    writer.push(&one, unit, &texts);
    // The revision has no text, as in an export without texts.
    let (mut unit, _) = imported(&one, 11, 10, "gone");
    unit.bodies.clear();
    writer.push(&one, unit, &Texts::new());
    writer.finish();
}

#[test]
fn render_bodies_round_trip() {
    let (one, html) = (page("One"), PropertyName::new("html").expect("a name"));
    let mut writer = Writer::new();
    for number in 1..=3 {
        let (mut unit, mut texts) = imported(&one, number, number - 1, "text");
        if number != 2 {
            unit.renders.clear();
        }
        for render in 0..number {
            let tid = Tid::new(at(100 + render), 5);
            let html_of = format!("<p>{number} {render}</p>");
            let bodies =
                Bodies::from([(html.clone(), body(&html_of)), (PropertyName::wikitext(), body("of it"))]);
            let row = RenderRow {
                rev: unit.revision.record.rev,
                tid,
                properties: infos(&bodies),
                stored_at: at(1_000 + render),
                digest: [number as u8; 16],
                left_out: false,
                written_at: at(1_000),
            };
            texts.insert((html.clone(), Some(tid)), html_of.into());
            texts.insert((PropertyName::wikitext(), Some(tid)), "of it".into());
            unit.renders.push((row, bodies));
        }
        if number == 3 {
            // One body is in chunks and was rewritten.
            let (_, bodies) = unit.renders.last_mut().expect("the unit has renders");
            let body = bodies.get_mut(&html).expect("the render has html");
            body.location = BodyLocation::Chunks(ChunkSet { id: [1; 16], count: 3, begun: None });
            body.info.rewritten_at = Some(at(2_000));
            texts.remove(&(html.clone(), Some(Tid::new(at(102), 5))));
        }
        writer.push(&one, unit, &texts);
    }
    writer.finish();
}

#[test]
fn block_stores_sha1_beyond_the_hashing_limit() {
    let (one, mut writer) = (page("One"), Writer::new());
    for number in 1..=20 {
        let text = format!("{number}{}", "a".repeat(1_000_000));
        push_imported(&mut writer, &one, number, number - 1, &text);
    }
    let bytes = writer.finish();
    let block = Block::open(&bytes, Limits::default()).expect("the block is whole");
    assert_eq!((values(&block, "sha1"), values(&block, "size")), (4, 4));
}

#[test]
fn damaged_body_leaves_other_bodies_unchanged() {
    let (one, mut writer) = (page("One"), Writer::new());
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 60) as u8)
    };
    for number in 1..=4 {
        let text: String = (0..100_000).map(|_| letter()).collect();
        push_imported(&mut writer, &one, number, number - 1, &text);
    }
    let expected_units = writer.pages.clone();
    let mut bytes = writer.finish();
    let damaged_at = bytes.len() * 9 / 10;
    bytes[damaged_at] ^= 1;
    let block = Block::salvage(&bytes, Limits::default()).expect("the directory is whole");
    let (read, _) =
        read_units(&one, &block).expect("the records are whole").expect("the entries are understood");
    let (before, after) = (&expected_units[0].1, &read[0].1);
    assert_eq!(before[0], after[0]);
    assert_eq!(
        (before.len(), before[3].revision.record.comment.clone()),
        (after.len(), Some("edit 4".to_owned()))
    );
    let lost = &after[3].bodies[&PropertyName::wikitext()];
    assert!(lost.info.size == 0 && lost.info.is_damaged());
    assert!(!after[0].bodies[&PropertyName::wikitext()].info.is_damaged());
}
