//! Random histories survive a round trip, and random damage is handled.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::collections::BTreeMap;

use crate::wiki::{events, fixture};
use bytes::Bytes;
use proptest::{collection, option, prelude::*, sample};
use rashomon_clock::Timestamp;
use rashomon_dumps::{
    Event, Loss, SourceProperty, SourceRender, SourceRevision,
    json_lines::{JsonLinesWriter, WrittenProperty},
    xml::{Outcome, PageHead, WrittenRevision, WrittenSlot, WrittenText, XmlWriter},
};
use rashomon_pages::{
    ExportRecord, Headers, Parent, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, SlotRecord,
    Tid, Title,
};

/// A text of everything that XML allows, especially of markup characters.
fn xml_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~\t\n\r]{0,20}",
        sample::select(vec![
            "<",
            ">",
            "&",
            "\"",
            "'",
            "]]>",
            "<![CDATA[",
            "&amp;",
            "\r\n",
            "\r",
            "\n\r",
            "--",
            "<!--",
            "</text>"
        ])
        .prop_map(str::to_owned),
        "[äß\u{85}\u{2028}\u{feff}\u{fffd}\u{e000}🦀]{0,5}",
    ];
    collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// An optional field, which is never empty.
fn field() -> impl Strategy<Value = Option<String>> {
    option::of(xml_text().prop_filter("empty is absent", |text| !text.is_empty()))
}

fn slot_record() -> impl Strategy<Value = SlotRecord> {
    let token = || option::of("[a-z0-9:]{1,12}");
    (
        option::of("[a-z]{1,8}"),
        option::of("[a-z]{1,4}/[a-z]{1,4}"),
        option::of(1..i64::MAX),
        option::of(0..i64::MAX),
        token(),
        token(),
        token(),
    )
        .prop_map(|(model, format, origin, bytes, sha1, id, location)| SlotRecord {
            model,
            format,
            origin,
            deleted: false,
            bytes,
            sha1,
            id,
            location,
        })
}

fn record() -> impl Strategy<Value = RevisionRecord> {
    // Times that fit both a calendar of four-digit years and a tid.
    let time = -10_000_000_000_000_000..100_000_000_000_000_000_i64;
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let export = (option::of(0..i64::MAX), option::of("[a-z0-9]{1,31}"), slot_record());
    (1..i64::MAX, option::of(0..i64::MAX), time, field(), field(), flags, export).prop_map(
        |(
            rev,
            parent,
            time,
            user,
            comment,
            (minor, is_ip, user_deleted, comment_deleted),
            (user_id, sha1, main),
        )| {
            RevisionRecord {
                rev: Revision::new(rev).unwrap(),
                parent: parent.and_then(Parent::from_number),
                timestamp: Timestamp::from_micros(time),
                comment,
                minor,
                export: ExportRecord {
                    user_id,
                    user_is_ip: is_ip && user.is_some(),
                    user_deleted,
                    comment_deleted,
                    sha1,
                    main: Some(main),
                    slots: BTreeMap::new(),
                },
                user,
                erased: None,
            }
        },
    )
}

fn written_slot<'a>(record: &'a SlotRecord, body: &'a [u8]) -> WrittenSlot<'a> {
    let text = WrittenText { bytes: body, sha1: Sha1::of(body), rewritten: false };
    WrittenSlot { record: Some(record), content_type: None, text: Some(text) }
}

/// The slot with the values that the XML writer adds to its record.
fn completed(record: &RevisionRecord, slot: &SlotRecord, body: &[u8], read: &SlotRecord) -> SlotRecord {
    SlotRecord {
        model: slot.model.clone().or_else(|| read.model.clone()),
        format: slot.format.clone().or_else(|| read.format.clone()),
        origin: slot.origin.or(Some(record.rev.get())),
        bytes: slot.bytes.or(Some(body.len() as i64)),
        sha1: slot.sha1.clone().or_else(|| read.sha1.clone()),
        ..slot.clone()
    }
}

fn property_info(
    content_type: &str,
    other: BTreeMap<String, String>,
    body: &[u8],
    rewritten_at: Option<i64>,
) -> PropertyInfo {
    PropertyInfo {
        headers: Headers { content_type: content_type.to_owned(), other },
        size: body.len() as u64,
        sha1: Sha1::of(body),
        rewritten_at: rewritten_at.map(Timestamp::from_micros),
    }
}

fn properties() -> impl Strategy<Value = Vec<SourceProperty>> {
    let body = prop_oneof![collection::vec(any::<u8>(), 0..40), any::<String>().prop_map(String::into_bytes)];
    // Spaces before and after a value do not belong to it.
    let headers = collection::btree_map("x-o[a-z]{1,6}z", "[!-~]([ -~]{0,9}[!-~])?", 0..3);
    let property = (body, headers, option::of(0..4_000_000_000_000_000_i64));
    collection::btree_map("[a-z][a-z0-9_-]{0,8}", property, 0..4).prop_map(|properties| {
        (properties.into_iter())
            .map(|(name, (body, other_headers, rewritten_at))| SourceProperty {
                name: PropertyName::new(&name).unwrap(),
                content_type: Some("a/b; c=d".to_owned()),
                sha1: Some(Sha1::of(&body).to_string()),
                other_headers,
                rewritten_at: rewritten_at.map(Timestamp::from_micros),
                body: Bytes::from(body),
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn everything_that_xml_allows_survives_xml(
        title in xml_text(), record in record(), body in xml_text(), slot in slot_record(), slot_body in xml_text(),
    ) {
        let Ok(title) = Title::new(&title) else { return Ok(()) };
        let mut record = record;
        record.export.slots.insert("aux".to_owned(), slot.clone());
        let main = record.export.main.clone().unwrap();
        let mut writer = XmlWriter::new(Vec::new(), None).unwrap();
        let head = PageHead { title: title.to_text(), namespace: 3, page_id: 4, redirect: Some("a\t\"b"), restrictions: None };
        let outcome = writer.begin_page(&head).unwrap();
        let text = title.to_text();
        let is_other_space = |c: char| c == '\u{180e}' || (c != ' ' && c.is_whitespace() && !c.is_control());
        if text.trim_matches(' ') != text || text.contains("  ") || text.contains(is_other_space) {
            let is_left_out = matches!(outcome, Outcome::LeftOut(Loss::Spaces { .. }));
            prop_assert!(is_left_out, "{:?}", outcome);
            return Ok(());
        }
        prop_assert_eq!(outcome, Outcome::Written);
        let written = WrittenRevision {
            record: &record,
            main: written_slot(&main, body.as_bytes()),
            slots: vec![("aux", written_slot(&slot, slot_body.as_bytes()))],
        };
        prop_assert_eq!(writer.revision(&written).unwrap(), Outcome::Written);
        writer.end_page().unwrap();
        let (found, end) = events(writer.finish().unwrap());
        prop_assert!(end.is_ok(), "{:?}", end);

        let Event::Revision(found_title, revision) = &found[0] else { panic!("{found:?}") };
        prop_assert_eq!(found_title, &title);
        let read = &revision.record.export;
        let mut expected = record.clone();
        expected.parent = record.parent.filter(|parent| *parent != Parent::None);
        expected.export.sha1 = record.export.sha1.clone().or_else(|| read.sha1.clone());
        expected.export.main = Some(completed(&record, &main, body.as_bytes(), read.main.as_ref().unwrap()));
        let slot = completed(&record, &slot, slot_body.as_bytes(), &read.slots["aux"]);
        expected.export.slots.insert("aux".to_owned(), slot);
        prop_assert_eq!(&revision.record, &expected);
        let mut bodies: BTreeMap<_, _> =
            revision.properties.iter().map(|property| (property.name.as_str(), &property.body[..])).collect();
        prop_assert_eq!(bodies.remove("wikitext"), Some(body.as_bytes()));
        prop_assert_eq!(bodies.remove("slot-aux"), Some(slot_body.as_bytes()));
        let Event::PageEnd(_, Some(info)) = &found[1] else { panic!("{found:?}") };
        prop_assert_eq!((info.page_id, info.namespace, info.redirect.as_deref()), (Some(4), Some(3), Some("a\t\"b")));
    }

    #[test]
    fn everything_survives_json_lines(
        title in any::<String>(), record in record(), of_revision in properties(),
        renders in collection::btree_map(any::<u64>(), properties(), 1..4),
    ) {
        let Ok(title) = Title::new(&title) else { return Ok(()) };
        let renders: Vec<_> = (renders.into_iter())
            .map(|(number, properties)| SourceRender { tid: Tid::new(record.timestamp, number), properties })
            .collect();
        let infos = |properties: &[SourceProperty]| -> Vec<PropertyInfo> {
            (properties.iter())
                .map(|p| property_info(
                    p.content_type.as_deref().unwrap(), p.other_headers.clone(), &p.body,
                    p.rewritten_at.map(Timestamp::as_micros),
                ))
                .collect()
        };
        fn written<'a>(properties: &'a [SourceProperty], infos: &'a [PropertyInfo]) -> Vec<WrittenProperty<'a>> {
            (properties.iter().zip(infos))
                .map(|(property, info)| WrittenProperty { name: &property.name, info, body: &property.body })
                .collect()
        }
        let mut writer = JsonLinesWriter::new(Vec::new(), None).unwrap();
        writer.page(&title, None).unwrap();
        writer.revision(&record, &written(&of_revision, &infos(&of_revision))).unwrap();
        for render in &renders {
            writer.render(render.tid, &written(&render.properties, &infos(&render.properties))).unwrap();
        }
        let (found, end) = events(writer.finish().unwrap());
        prop_assert!(end.is_ok(), "{:?}", end);
        let expected = SourceRevision { line: 3, continued: false, record, properties: of_revision, renders };
        prop_assert_eq!(&found[0], &Event::Revision(title.clone(), Box::new(expected)));
        prop_assert_eq!(&found[1], &Event::PageEnd(title, None));
    }

    #[test]
    fn reader_survives_random_damage(
        name in sample::select(vec!["oddities.xml", "oddities.out.xml", "oddities.out.jsonl"]),
        damage in collection::vec((any::<sample::Index>(), any::<u8>(), 0..4_u8), 1..8),
    ) {
        let mut bytes = fixture(name);
        for (index, byte, kind) in damage {
            if bytes.is_empty() {
                break;
            }
            let index = index.index(bytes.len());
            match kind {
                0 => bytes[index] = byte,
                1 => bytes.truncate(index),
                2 => bytes.insert(index, byte),
                _ => drop(bytes.drain(index..(index + usize::from(byte)).min(bytes.len()))),
            }
        }
        let size = bytes.len() as u64;
        let (_, end) = events(bytes);
        if let Err(error) = end {
            prop_assert!(error.position.offset <= size);
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
