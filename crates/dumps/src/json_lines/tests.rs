use std::collections::BTreeMap;

use rashomon_buckets::{Headers, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid, Title};
use rashomon_clock::Timestamp;

use super::{JsonLinesReader, JsonLinesWriter, WrittenProperty};
use crate::{Event, LeftOutReason, Problem, ReadError, input::Input};

const MAX_LINE: usize = 1 << 20;

fn events(input: &str) -> (Vec<Event>, Result<(), ReadError>) {
    let mut reader = JsonLinesReader::new(Input::new(input.as_bytes()), MAX_LINE);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, Ok(())),
            Err(error) => return (events, Err(error)),
        }
    }
}

fn lines(lines: &[&str]) -> String {
    let mut input = "{\"kind\":\"siteinfo\",\"version\":1}\n".to_owned();
    for line in lines {
        input += line;
        input += "\n";
    }
    input
}

const PAGE: &str = r#"{"kind":"page","title":"P"}"#;
const REVISION: &str = r#"{"kind":"revision","rev":5,"timestamp":"2011-01-01T00:00:00Z"}"#;
const RENDER: &str = r#"{"kind":"render","tid":"8f545ba0-2601-11e3-885c-4160918f0fb9"}"#;

fn end(pages: u64, revisions: u64, renders: u64) -> String {
    format!(r#"{{"kind":"end","pages":{pages},"revisions":{revisions},"renders":{renders}}}"#)
}

#[track_caller]
fn error(input: &str) -> ReadError {
    events(input).1.unwrap_err()
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let revision_with = |field: &str| REVISION.replace("\"rev\":5", &format!("\"rev\":5,{field}"));
    let property = |value: &str| revision_with(&format!(r#""properties":{{"html":{value}}}"#));
    for (bad, says) in [
        ("{", "EOF"),
        ("[]", "invalid"),
        ("{\"title\":\"x\"}", "kind"),
        ("{\"kind\":\"other\"}", "other"),
        ("{\"kind\":\"page\"}", "title"),
        ("{\"kind\":\"page\",\"title\":\"x\",\"more\":1}", "more"),
        (&revision_with("\"more\":1"), "more"),
        (&revision_with("\"properties\":{\"No Name\":{\"text\":\"\"}}"), "property"),
        (&property("{}"), "text"),
        (&property(r#"{"text":"","base64":""}"#), "text"),
        (&property(r#"{"base64":"!"}"#), "base64"),
        (&property(r#"{"text":"","rewritten_at":"x"}"#), "time"),
        (&property(r#"{"text":"","headers":{"x-accel-redirect":"/etc"}}"#), "x-accel-redirect"),
        (&property(r#"{"text":"","headers":{"set-cookie":"a=b"}}"#), "set-cookie"),
        (&property(r#"{"text":"","headers":{"X-Upper":"a"}}"#), "X-Upper"),
        (&property(r#"{"text":"","headers":{"x-a":"b\r\nset-cookie: c"}}"#), "x-a"),
        (&property(r#"{"text":"","content_type":"text/html\r\nx: y"}"#), "content_type"),
        ("{\"kind\":\"render\",\"tid\":\"8f545ba0-2601-41e3-885c-4160918f0fb9\"}", "tid"),
        ("{\"kind\":\"siteinfo\",\"version\":1}", "second"),
        ("{\"kind\":\"end\",\"pages\":2,\"revisions\":0,\"renders\":0}", "counts 2 pages"),
    ] {
        let error = error(&lines(&[PAGE, bad]));
        assert!(matches!(error.problem, Problem::Malformed(_)), "{bad}: {error}");
        assert_eq!(error.place.line, 3, "{bad}");
        assert!(error.to_string().contains(says), "{bad}: {error}");
    }
    for bad in [REVISION, RENDER] {
        assert_eq!(error(&lines(&[bad])).place.line, 2);
    }
    assert!(matches!(error(&lines(&[PAGE, RENDER])).problem, Problem::Malformed(_)));
}

#[test]
fn another_version_is_refused_whatever_else_is_in_it() {
    let error = error("{\"kind\":\"siteinfo\",\"version\":2,\"new\":true}\n");
    assert!(matches!(error.problem, Problem::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("version 2"));
}

#[test]
fn the_version_comes_first() {
    assert!(matches!(error(PAGE).problem, Problem::Malformed(_)));
}

#[test]
fn without_its_last_line_an_input_is_cut_short() {
    let whole = lines(&[PAGE, REVISION, RENDER, &REVISION.replace('5', "6"), &end(1, 2, 1)]);
    let (all, result) = events(&whole);
    result.unwrap();
    assert_eq!(all.len(), 3);
    for cut in 1..whole.len() - 1 {
        let (before, result) = events(&whole[..cut]);
        assert!(result.is_err(), "cut at {cut}");
        assert_eq!(before, all[..before.len()], "cut at {cut}");
    }
    // A line feed at the end may be missing, and empty lines may follow.
    assert!(events(whole.trim_end()).1.is_ok());
    assert!(events(&format!("{whole}\n \n")).1.is_ok());
    assert!(events(&format!("{whole}x")).1.is_err());
}

#[test]
fn a_line_is_bounded() {
    let long = PAGE.replace('P', &"x".repeat(MAX_LINE));
    let error = error(&lines(&[PAGE, REVISION, &long]));
    assert!(matches!(error.problem, Problem::TooLarge(_)));
    assert_eq!((error.place.page.as_deref(), error.place.revision.as_deref()), (Some("P"), Some("5")));
}

#[test]
fn what_cannot_be_kept_costs_itself_only() {
    let bad =
        |rev: &str, timestamp: &str| format!(r#"{{"kind":"revision","rev":{rev},"timestamp":{timestamp}}}"#);
    let input = lines(&[
        PAGE,
        &bad("0", "\"2011-01-01T00:00:00Z\""),
        RENDER,
        &bad("\"x\"", "\"2011-01-01T00:00:00Z\""),
        &bad("7", "\"never\""),
        &bad("8", "null"),
        REVISION,
        "{\"kind\":\"page\",\"title\":\"a\\nb\"}",
        REVISION,
        RENDER,
        &end(2, 6, 2),
    ]);
    let (events, result) = events(&input);
    result.unwrap();
    let left_out: Vec<_> = (events.iter())
        .filter_map(|event| match event {
            Event::LeftOut(left_out) => {
                Some((left_out.line, left_out.rev.map(Revision::get), &left_out.reason))
            }
            _ => None,
        })
        .collect();
    assert_eq!(left_out[0], (3, None, &LeftOutReason::BadNumber("0".into())));
    assert!(matches!(left_out[1], (5, None, LeftOutReason::BadNumber(_))));
    assert_eq!(left_out[2], (6, Some(7), &LeftOutReason::BadTimestamp("never".into())));
    assert_eq!(left_out[3], (7, Some(8), &LeftOutReason::NoTimestamp));
    assert!(matches!(left_out[4], (9, None, LeftOutReason::BadTitle(_))));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Revision(..))).count(), 1);
}

#[test]
fn a_revision_of_many_large_renders_comes_in_parts() {
    let title = Title::new("P").unwrap();
    let html = PropertyName::new("html").unwrap();
    let wikitext = PropertyName::wikitext();
    let body = vec![b'x'; 3 << 20];
    let info = PropertyInfo {
        headers: Headers { content_type: "text/html".into(), other: BTreeMap::new() },
        size: body.len() as u64,
        sha1: Sha1::of(&body),
        rewritten_at: None,
    };
    let record = RevisionRecord {
        rev: Revision::new(1).unwrap(),
        parent: None,
        timestamp: Timestamp::EPOCH,
        user: None,
        comment: None,
        minor: false,
        export: rashomon_buckets::ExportRecord::default(),
    };
    let mut writer = JsonLinesWriter::new(Vec::new(), None).unwrap();
    writer.page(&title, None).unwrap();
    let property = |name| [WrittenProperty { name, info: &info, body: &body }];
    writer.revision(&record, &property(&wikitext)).unwrap();
    for number in 0..7 {
        writer.render(Tid::new(Timestamp::EPOCH, number), &property(&html)).unwrap();
    }
    let input = writer.finish().unwrap();

    let mut reader = JsonLinesReader::new(Input::new(input.as_slice()), 8 << 20);
    let mut parts = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        if let Event::Revision(_, revision) = event {
            assert_eq!(revision.record, record);
            assert_eq!(revision.properties.len(), 1);
            parts.push((revision.continued, revision.renders.len()));
        }
    }
    assert_eq!(parts, [(false, 2), (true, 2), (true, 2), (true, 1)]);
}
