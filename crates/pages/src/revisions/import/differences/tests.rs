use std::collections::BTreeMap;

use rashomon_clock::Timestamp;

use super::{super::record_size, *};
use crate::{ExportRecord, Headers, Revision, Sha1};

fn record() -> RevisionRecord {
    RevisionRecord {
        rev: Revision::new(5).unwrap(),
        parent: Some(Parent::Revision(Revision::new(4).unwrap())),
        timestamp: Timestamp::EPOCH,
        user: Some("Ann".to_owned()),
        comment: Some("typo".to_owned()),
        minor: true,
        erased: None,
        export: ExportRecord::default(),
    }
}

#[test]
fn record_difference_names_the_field_in_which_records_contradict() {
    type Change = fn(&mut RevisionRecord);
    let contradictions: [(&str, Change); 5] = [
        ("timestamp", |record| record.timestamp = Timestamp::MAX),
        ("user", |record| record.user = Some(String::new())),
        ("comment", |record| record.comment = Some(String::new())),
        ("minor", |record| record.minor = false),
        ("parent", |record| record.parent = Some(Parent::Revision(Revision::MAX))),
    ];
    for (what, change) in contradictions {
        let mut other = record();
        change(&mut other);
        for (stored, input) in [(record(), other.clone()), (other, record())] {
            let differences = record_differences(&stored, &input);
            assert!(matches!(&differences[..], [text] if text.contains(what)), "{what}: {differences:?}");
        }
    }
}

#[test]
fn field_that_one_record_lacks_is_no_contradiction() {
    let changes: [fn(&mut RevisionRecord); 5] = [
        |_| {},
        |record| record.user = None,
        |record| record.comment = None,
        |record| record.parent = None,
        |record| record.parent = Some(Parent::None),
    ];
    for change in changes {
        let mut other = record();
        change(&mut other);
        assert!(record_differences(&record(), &other).is_empty());
        assert!(record_differences(&other, &record()).is_empty());
    }
}

fn properties(bodies: &[(&str, &str)]) -> Properties {
    let info = |body: &str| PropertyInfo {
        headers: Headers { content_type: "t".to_owned(), other: BTreeMap::new() },
        size: body.len() as u64,
        sha1: Sha1::of(body.as_bytes()),
        rewritten_at: None,
    };
    bodies.iter().map(|(name, body)| (PropertyName::new(name).unwrap(), info(body))).collect()
}

#[test]
fn property_difference_names_the_property_that_differs() {
    let stored = properties(&[("html", "one"), ("meta", "{}")]);
    assert_eq!(property_differences(&stored, &stored).next(), None);
    for (input, expected) in [
        (properties(&[("html", "one")]), "with meta"),
        (properties(&[("html", "one"), ("meta", "{}"), ("x", "")]), "without x"),
        (properties(&[("html", "two"), ("meta", "{}")]), "another html"),
        (properties(&[]), "with html"),
    ] {
        let difference = property_differences(&stored, &input).next().unwrap();
        assert!(difference.contains(expected), "{expected}: {difference}");
    }
}

#[test]
fn record_size_counts_user_comment_and_export_record() {
    assert_eq!(record_size(&record()), "Anntypo".len());
    let export = ExportRecord { user_id: Some(7), ..ExportRecord::default() };
    assert_eq!(record_size(&RevisionRecord { export, ..record() }), "Anntypo{\"user_id\":7}".len());
}

#[test]
fn at_most_five_differences_are_listed_and_the_others_are_counted() {
    let differences = |count: usize| (1..=count).map(|number| format!("d{number}")).collect::<Vec<_>>();
    assert_eq!(list_differences(&differences(1)), "d1");
    assert_eq!(list_differences(&differences(5)), "d1; d2; d3; d4; d5");
    assert_eq!(list_differences(&differences(8)), "d1; d2; d3; d4; d5; and 3 more");
}

#[test]
fn all_fields_in_which_records_differ_are_named() {
    let other = RevisionRecord {
        timestamp: Timestamp::MAX,
        user: Some("Bob".to_owned()),
        comment: Some("other".to_owned()),
        ..record()
    };
    let differences = list_differences(&record_differences(&record(), &other));
    for what in ["another timestamp", "another user", "another comment"] {
        assert!(differences.contains(what), "{differences}");
    }
}
