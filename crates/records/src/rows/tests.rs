use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::Key;

use super::*;
use crate::{
    ExportRecord, Headers, Parent, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, SlotRecord,
};

#[test]
fn columns_have_the_names_of_the_schema() {
    check_columns::<TidRow>();
    check_columns::<ChunkReference>();
    check_columns::<ChunkCopy>();
    check_columns::<ChunkSetEntry>();
    check_columns::<ChunkRow>();
    check_columns::<PageInfoRow>();
    check_columns::<SiteInfoRow>();
}

#[test]
fn keys_have_the_names_of_the_schema() {
    fn check<K: RowKey>() {
        let expected: Vec<_> = K::table().clustering().iter().map(|(column, _)| column.name).collect();
        assert_eq!(K::column_names(), expected, "{}", K::table().name());
    }
    check::<RevisionKey>();
    check::<RenderKey>();
    check::<TimeKey>();
    check::<RevisionBodyKey>();
    check::<RenderBodyKey>();
    check::<HistoricalKey>();
    check::<ByRevKey>();
    check::<CurrentKey>();
    check::<TitleKey>();
    check::<DomainKey>();
}

#[test]
fn typed_row_survives_a_round_trip() {
    let reference = ChunkReference::of_body([7; 16], Revision::MAX, None);
    let stored = row(reference.clustering(), reference.values());
    assert_eq!(ChunkReference::from_row(&stored).unwrap(), reference);
    let released = ChunkReference::released([7; 16], None, Timestamp::from_micros(-1));
    let stored = row(released.clustering(), released.values());
    assert_eq!(ChunkReference::from_row(&stored).unwrap(), released);
}

#[test]
fn row_of_an_earlier_version_has_empty_columns() {
    let short = row(vec![Value::Blob(vec![7; 16].into())], vec![None]);
    assert_eq!(ChunkReference::from_row(&short).unwrap(), ChunkReference::archived([7; 16]));
}

#[test]
fn column_of_another_type_is_unreadable() {
    let wrong = row(vec![Value::Blob(vec![7; 16].into())], vec![None, Some("7".into()), None]);
    assert!(matches!(ChunkReference::from_row(&wrong), Err(Error::Store(StoreError::Corrupt(_)))));
    let short = row(vec![Value::Blob(vec![7; 15].into())], vec![None, None, None]);
    assert_eq!(ChunkReference::read(&short), None);
    let missing = row(vec![], vec![None, None, None]);
    assert_eq!(ChunkReference::read(&missing), None);
}

fn properties() -> Properties {
    let info = |headers: &[(&str, &str)], rewritten_at: Option<i64>| PropertyInfo {
        headers: Headers {
            content_type: "text/html; profile=\"a\\b\"".to_owned(),
            other: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        },
        size: u64::try_from(i64::MAX).unwrap(),
        sha1: Sha1::of(b"x"),
        rewritten_at: rewritten_at.map(Timestamp::from_micros),
    };
    let name = |text: &str| PropertyName::new(text).unwrap();
    [
        (name("html"), info(&[], None)),
        // Names that the JSON of the index uses for its own fields.
        (name("size"), info(&[("size", "é\n"), ("content_type", ""), ("other", "\"")], Some(-1))),
    ]
    .into()
}

fn row(clustering: Vec<Value>, values: Vec<Option<Value>>) -> Row {
    let partition = ["enwiki", "page", "A"].map(Value::from).to_vec();
    let written_at = Timestamp::from_micros(9);
    Row { key: Key::new(partition, clustering), values, written_at, expires_at: None }
}

fn revision(record: RevisionRecord) -> RevisionRow {
    RevisionRow {
        record,
        properties: properties(),
        first_tid: Tid::new(Timestamp::from_micros(7), 7),
        stored_at: Timestamp::from_micros(8),
        digest: [5; 16],
        written_at: Timestamp::from_micros(9),
    }
}

fn records() -> Vec<RevisionRecord> {
    let bare = RevisionRecord {
        rev: Revision::MAX,
        parent: None,
        timestamp: Timestamp::MIN,
        user: None,
        comment: None,
        minor: false,
        export: ExportRecord::default(),
        erased: None,
    };
    let slot = SlotRecord { model: Some(String::new()), deleted: true, ..SlotRecord::default() };
    let export = ExportRecord {
        user_id: Some(0),
        user_is_ip: true,
        sha1: Some("abc".to_owned()),
        slots: [("extra".to_owned(), slot)].into(),
        ..ExportRecord::default()
    };
    let full = RevisionRecord {
        parent: Some(Parent::Revision(Revision::MAX)),
        user: Some(String::new()),
        comment: Some("\u{0} é \"".to_owned()),
        minor: true,
        export,
        erased: Some(crate::Erasure {
            at: Timestamp::from_micros(-7),
            by: Some("Ann".to_owned()),
            reason: None,
        }),
        ..bare.clone()
    };
    vec![RevisionRecord { parent: Some(Parent::None), ..bare.clone() }, bare, full]
}

#[test]
fn revision_row_survives_a_round_trip() {
    for record in records() {
        let expected = revision(record);
        let row = row(vec![Value::Int(expected.record.rev.get())], expected.to_values());
        let found = RevisionRow::from_row(&row).unwrap();
        assert_eq!(found.record, expected.record);
        assert_eq!(found.properties, expected.properties);
        assert_eq!((found.first_tid, found.stored_at), (expected.first_tid, expected.stored_at));
        assert_eq!((found.digest, found.written_at), (expected.digest, expected.written_at));
    }
}

#[test]
fn render_row_survives_a_round_trip() {
    let tid = Tid::new(Timestamp::from_micros(7), 7);
    let stored_at = Timestamp::from_micros(8);
    let written_at = Timestamp::from_micros(9);
    let expected = RenderRow {
        rev: Revision::MAX,
        tid,
        properties: properties(),
        stored_at,
        digest: [6; 16],
        left_out: true,
        written_at,
    };
    let clustering = vec![Value::Int(i64::MAX), tid.as_time_uuid().into()];
    let found = RenderRow::from_row(&row(clustering, expected.to_values())).unwrap();
    assert_eq!((found.rev, found.tid, found.left_out), (expected.rev, expected.tid, true));
    assert_eq!(found.properties, expected.properties);
    assert_eq!((found.stored_at, found.digest), (stored_at, expected.digest));
}

#[test]
fn revision_row_with_a_missing_or_wrong_column_is_unreadable() {
    let expected = revision(records().remove(0));
    for column in [1, 4, 6, 7, 8, 9] {
        let mut values = expected.to_values();
        values[column] = None;
        let result = RevisionRow::from_row(&row(vec![Value::Int(1)], values));
        assert!(matches!(result, Err(Error::Store(StoreError::Corrupt(_)))), "{column}: {result:?}");
    }
    for (column, value) in [
        (0, Value::Int(-1)),
        (5, "{\"unknown\": 1}".into()),
        (6, "[]".into()),
        (9, Bytes::from("short").into()),
    ] {
        let mut values = expected.to_values();
        values[column] = Some(value);
        assert!(RevisionRow::from_row(&row(vec![Value::Int(1)], values)).is_err(), "{column}");
    }
    assert!(RevisionRow::from_row(&row(vec![Value::Int(0)], expected.to_values())).is_err());
}

#[test]
fn index_size_is_the_size_of_the_column() {
    let properties = properties();
    let row = revision(records().remove(0)).to_values();
    assert_eq!(Some(index_size(&properties)), row[6].as_ref().map(Value::size));
}
