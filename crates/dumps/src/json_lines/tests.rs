use std::collections::BTreeMap;

use rashomon_clock::Timestamp;
use rashomon_pages::{Headers, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid, Title};

use super::{JsonLinesWriter, WrittenProperty};
use crate::{Event, HistoryReader, LeftOut, LeftOutReason, Problem, ReadError, ReadLimits, timestamps};

const MAX_LINE: usize = 1 << 20;
const NOW: &str = "2020-01-01T00:00:00Z";

fn events(input: &str) -> (Vec<Event>, Result<(), ReadError>) {
    let latest = timestamps::parse(NOW).unwrap();
    let limits = ReadLimits { line: MAX_LINE, latest, ..ReadLimits::default() };
    let mut reader = HistoryReader::new(input.as_bytes(), limits).unwrap();
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
fn errors_repeat_at_most_an_excerpt_of_the_input() {
    let long = "x".repeat(100_000);
    let revision_with = |field: &str| REVISION.replace("\"rev\":5", &format!("\"rev\":5,{field}"));
    let property = |value: &str| revision_with(&format!(r#""properties":{{"html":{value}}}"#));
    for bad in [
        format!(r#"{{"kind":"{long}"}}"#),
        format!(r#"{{"kind":"{}"}}"#, r"\u0041".repeat(20_000)),
        format!(r#"{{"kind":"page","title":"x","{long}":1}}"#),
        format!(r#"{{"kind":"page","title":"x","info":"{long}"}}"#),
        format!(r#"{{"kind":"siteinfo","version":"{long}"}}"#),
        format!(r#"{{"kind":"end","pages":"{long}","revisions":0,"renders":0}}"#),
        format!(r#"{{"kind":"render","tid":"{long}"}}"#),
        revision_with(&format!(r#""{long}":1"#)),
        revision_with(&format!(r#""minor":"{long}""#)),
        revision_with(&format!(r#""export":{{"{long}":1}}"#)),
        revision_with(&format!(r#""properties":{{"{long}":{{"text":""}}}}"#)),
        property(&format!(r#"{{"{long}":1}}"#)),
        property(&format!(r#"{{"base64":"{long}!"}}"#)),
        property(&format!(r#"{{"text":"","rewritten_at":"{long}"}}"#)),
    ] {
        let error = error(&lines(&[PAGE, &bad])).to_string();
        assert!(error.len() < 600, "{} bytes: {error:.600}", error.len());
        assert!(error.contains("(column ") || error.contains("base64"), "{error}");
        assert!(!error.contains(" at line "), "{error}");
    }
    let error = error(&lines(&[PAGE, &format!(r#"{{"kind":"{long}"}}"#)])).to_string();
    assert!(
        error.contains("unknown variant `xxx") && error.contains("expected one of `siteinfo`"),
        "{error}"
    );
}

#[test]
fn reasons_to_leave_a_revision_out_repeat_at_most_an_excerpt_of_the_input() {
    let long = "x".repeat(100_000);
    let property =
        |value: &str| REVISION.replace("\"rev\":5", &format!(r#""rev":5,"properties":{{"html":{value}}}"#));
    for bad in [
        REVISION.replace("2011", &long),
        property(&format!(r#"{{"text":"","headers":{{"{long}":"1"}}}}"#)),
        property(&format!(r#"{{"text":"","headers":{{"x-{long}":"\u00e9"}}}}"#)),
        property(&format!(r#"{{"text":"","headers":{{"a{}":"1"}}}}"#, "x".repeat(8000))),
    ] {
        let (events, end) = events(&lines(&[PAGE, &bad, &end(1, 1, 0)]));
        end.unwrap();
        let Some(Event::LeftOut(left_out)) = events.first() else { panic!("{events:?}") };
        let reason = left_out.reason.to_string();
        assert!(reason.len() < 600, "{} bytes: {reason:.600}", reason.len());
    }
}

#[test]
fn faults_are_reported_with_their_line() {
    let revision_with = |field: &str| REVISION.replace("\"rev\":5", &format!("\"rev\":5,{field}"));
    let property = |value: &str| revision_with(&format!(r#""properties":{{"html":{value}}}"#));
    for (bad, says) in [
        ("{", "EOF"),
        ("[]", "invalid"),
        ("{\"title\":\"x\"}", "kind"),
        ("{\"kind\":\"other\"}", "other"),
        ("{\"kind\":\"page\"}", "title"),
        ("{\"kind\":\"page\",\"title\":\"x\",\"more\":1}", "more"),
        (r#"{"kind":"page","title":"x","info":{"as_of":5,"more":1}}"#, "more"),
        (&revision_with("\"more\":1"), "more"),
        (&revision_with("\"properties\":{\"No Name\":{\"text\":\"\"}}"), "property"),
        (&property("{}"), "text"),
        (&property(r#"{"text":"","base64":""}"#), "text"),
        (&property(r#"{"base64":"!"}"#), "base64"),
        (&property(r#"{"text":"","rewritten_at":"x"}"#), "time"),
        ("{\"kind\":\"render\",\"tid\":\"8f545ba0-2601-41e3-885c-4160918f0fb9\"}", "tid"),
        ("{\"kind\":\"siteinfo\",\"version\":1}", "second"),
        ("{\"kind\":\"end\",\"pages\":2,\"revisions\":0,\"renders\":0}", "counts 2 pages"),
    ] {
        let error = error(&lines(&[PAGE, bad]));
        assert!(matches!(error.problem, Problem::Malformed(_)), "{bad}: {error}");
        assert_eq!(error.position.line, 3, "{bad}");
        assert!(error.to_string().contains(says), "{bad}: {error}");
    }
    for bad in [REVISION, RENDER] {
        assert_eq!(error(&lines(&[bad])).position.line, 2);
    }
    assert!(matches!(error(&lines(&[PAGE, RENDER])).problem, Problem::Malformed(_)));
}

#[test]
fn unknown_fields_of_the_site_are_refused() {
    for site in [r#"{"more":1}"#, r#"{"namespaces":[{"key":0,"name":"","more":1}]}"#] {
        let error = error(&format!("{{\"kind\":\"siteinfo\",\"version\":1,\"site\":{site}}}\n"));
        assert!(matches!(error.problem, Problem::Malformed(_)), "{site}: {error}");
        assert!(error.to_string().contains("more"), "{site}: {error}");
    }
}

#[test]
fn other_versions_are_refused() {
    let error = error("{\"kind\":\"siteinfo\",\"version\":2,\"new\":true}\n");
    assert!(matches!(error.problem, Problem::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("version 2"));
}

#[test]
fn first_line_must_be_of_kind_siteinfo() {
    assert!(matches!(error(PAGE).problem, Problem::Malformed(_)));
}

#[test]
fn truncated_input_is_an_error_after_its_complete_events() {
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
    assert_eq!((error.position.page.as_deref(), error.position.revision.as_deref()), (Some("P"), Some("5")));
}

#[test]
fn invalid_revision_affects_no_other() {
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
    let left_out = left_out(&events);
    let left_out: Vec<_> =
        left_out.iter().map(|it| (it.line, it.rev.map(Revision::get), &it.reason)).collect();
    assert_eq!(left_out[0], (3, None, &LeftOutReason::BadNumber("0".into())));
    assert!(matches!(left_out[1], (5, None, LeftOutReason::BadNumber(_))));
    assert_eq!(left_out[2], (6, Some(7), &LeftOutReason::BadTimestamp("never".into())));
    assert_eq!(left_out[3], (7, Some(8), &LeftOutReason::NoTimestamp));
    assert!(matches!(left_out[4], (9, None, LeftOutReason::BadTitle(_))));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Revision(..))).count(), 1);
}

fn left_out(events: &[Event]) -> Vec<&LeftOut> {
    (events.iter())
        .filter_map(|event| if let Event::LeftOut(left_out) = event { Some(left_out) } else { None })
        .collect()
}

/// Returns why the revision with these lines is left out. Checks that the reader returns a revision that follows them.
#[track_caller]
fn reason_of(revision_lines: &[&str]) -> String {
    let other = REVISION.replace('5', "6");
    let renders = revision_lines.len() as u64 - 1;
    let end = end(1, 2, renders + 2);
    let all = [&[PAGE], revision_lines, &[RENDER, &other, RENDER, &end]].concat();
    let (events, result) = events(&lines(&all));
    result.unwrap();
    let left_out = left_out(&events);
    let [LeftOut { line: 3, title: Some(title), rev: Some(rev), revisions: 1, reason }] = left_out[..] else {
        panic!("{left_out:?}")
    };
    assert_eq!((title.as_str(), rev.get()), ("P", 5));
    let kept: Vec<_> = (events.iter())
        .filter_map(
            |event| if let Event::Revision(_, kept) = event { Some(kept.record.rev.get()) } else { None },
        )
        .collect();
    assert_eq!(kept, [6]);
    reason.to_string()
}

#[test]
fn impossible_revisions_are_left_out() {
    let with = |field: &str| REVISION.replace("\"rev\":5", &format!("\"rev\":5,{field}"));
    assert_eq!(reason_of(&[&with("\"parent\":5")]), "the revision is its own parent");
    assert!(reason_of(&[&with("\"parent\":-1")]).starts_with("the revision's parent is \"-1\""));
    let future = |time: &str| REVISION.replace("2011-01-01T00:00:00Z", time);
    assert!(
        reason_of(&[&future("2020-01-01T00:00:00.000001Z")])
            .starts_with("the time 2020-01-01T00:00:00.000001Z")
    );
    assert!(left_out(&events(&lines(&[PAGE, &future(NOW), &end(1, 1, 0)])).0).is_empty());
    // A render of 2028, and a property whose replacement is dated 2036.
    let render = RENDER.replace("-11e3-", "-11f3-");
    assert!(reason_of(&[REVISION, &render]).contains(": the time "), "{render}");
    let rewritten = with(r#""properties":{"html":{"text":"","rewritten_at":"2036-01-01T00:00:00Z"}}"#);
    assert!(reason_of(&[&rewritten]).starts_with("the time 2036-01-01T00:00:00Z"));
}

#[test]
fn properties_that_http_could_not_return_are_left_out() {
    for (value, says) in [
        (r#"{"text":"","headers":{"set-cookie":"a=b"}}"#, "set-cookie"),
        (r#"{"text":"","headers":{"x-a":"b\r\nset-cookie: c"}}"#, "x-a"),
        (r#"{"text":"","content_type":"text/html\r\nx: y"}"#, "content-type"),
        (r#"{"text":"","content_type":"nonsense"}"#, "Content-Type"),
        (r#"{"text":"","content_type":"text/ html"}"#, "Content-Type"),
    ] {
        let properties = format!(r#","properties":{{"html":{value}}}}}"#);
        let revision = REVISION.replace('}', &properties);
        let reason = reason_of(&[&revision]);
        assert!(reason.starts_with("property html: ") && reason.contains(says), "{reason}");
        let reason = reason_of(&[REVISION, &RENDER.replace('}', &properties)]);
        let render = "render 8f545ba0-2601-11e3-885c-4160918f0fb9: property html: ";
        assert!(reason.starts_with(render) && reason.contains(says), "{reason}");
    }
}

/// A revision is returned when the next line is read. Here the same step also finds that line malformed.
#[test]
fn events_before_an_error_are_returned_first() {
    let bad = REVISION.replace('}', r#","properties":{"html":{}}}"#);
    let (events, result) = events(&lines(&[PAGE, REVISION, &bad]));
    assert_eq!(events.len(), 1);
    assert_eq!(result.unwrap_err().position.line, 4);
}

/// Earlier renders are returned before the fault is known, and stay.
#[test]
fn invalid_render_after_a_returned_part_leaves_out_the_remaining_renders() {
    let body = "x".repeat(900_000);
    let render = |number| {
        let tid = Tid::new(Timestamp::EPOCH, number);
        let html = format!(r#"{{"html":{{"text":"{body}"}}}}"#);
        format!(r#"{{"kind":"render","tid":"{tid}","properties":{html}}}"#)
    };
    // A render of 2028.
    let invalid = RENDER.replace("-11e3-", "-11f3-");
    let mut all = vec![PAGE.to_owned(), REVISION.to_owned()];
    all.extend((0..11).map(render));
    all.extend([invalid, render(11), REVISION.replace('5', "6"), end(1, 2, 13)]);
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let (events, result) = events(&lines(&all));
    result.unwrap();
    let parts: Vec<_> = (events.iter())
        .filter_map(|event| match event {
            Event::Revision(_, part) => Some((part.record.rev.get(), part.continued, part.renders.len())),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [(5, false, 9), (5, true, 2), (6, false, 0)]);
    let left_out = left_out(&events);
    let [LeftOut { line: 3, rev: Some(rev), revisions: 1, reason, .. }] = left_out[..] else {
        panic!("{left_out:?}")
    };
    assert_eq!(rev.get(), 5);
    let reason = reason.to_string();
    let says = "only the renders from 8f545ba0-2601-11f3-885c-4160918f0fb9 on are left out, and the revision is \
                imported without them: the time ";
    assert!(reason.starts_with(says), "{reason}");
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
        export: rashomon_pages::ExportRecord::default(),
        erased: None,
    };
    let mut writer = JsonLinesWriter::new(Vec::new(), None).unwrap();
    writer.page(&title, None).unwrap();
    let property = |name| [WrittenProperty { name, info: &info, body: &body }];
    writer.revision(&record, &property(&wikitext)).unwrap();
    for number in 0..7 {
        writer.render(Tid::new(Timestamp::EPOCH, number), &property(&html)).unwrap();
    }
    let input = writer.finish().unwrap();

    let mut reader = HistoryReader::new(input.as_slice(), ReadLimits::default()).unwrap();
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
