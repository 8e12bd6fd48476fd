//! Elements at unexpected places, broken pages, and other faults of real files.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::io::{Cursor, Write as _};

use rashomon_dumps::{
    BrokenPage, Event, HistoryReader, ImportOptions, ImportReport, LeftOut, LeftOutReason, Misplaced,
    MisplacedFault, Problem, ReadError, ReadLimits, Source, import,
};
use rashomon_pages::{Revision, SiteInfo, Title};

use crate::wiki::{Wiki, events};

fn revision(id: i64, text: &str) -> String {
    format!(
        "<revision><id>{id}</id><timestamp>2012-03-04T05:06:07Z</timestamp><text>{text}</text></revision>"
    )
}

fn page(title: &str, inner: &str) -> String {
    format!("<page><title>{title}</title><ns>0</ns>\n{inner}</page>\n")
}

fn export(inner: &str) -> String {
    format!("<mediawiki>\n{inner}\n</mediawiki>\n")
}

/// The events of an input whose broken pages are skipped.
fn events_with_skipping(input: &str) -> (Vec<Event>, Result<(), ReadError>) {
    let limits = ReadLimits { skip_broken: true, ..ReadLimits::default() };
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

fn stored(events: &[Event]) -> Vec<i64> {
    (events.iter())
        .filter_map(|event| match event {
            Event::Revision(_, revision) => Some(revision.record.rev.get()),
            _ => None,
        })
        .collect()
}

fn left_out(events: &[Event]) -> Vec<LeftOut> {
    let left_out = |event: &Event| match event {
        Event::LeftOut(left_out) => Some(left_out.clone()),
        _ => None,
    };
    events.iter().filter_map(left_out).collect()
}

fn misplaced(events: &[Event]) -> Vec<Misplaced> {
    let misplaced = |event: &Event| match event {
        Event::Misplaced(misplaced) => Some(misplaced.clone()),
        _ => None,
    };
    events.iter().filter_map(misplaced).collect()
}

fn broken(events: &[Event]) -> Vec<BrokenPage> {
    let broken = |event: &Event| match event {
        Event::Broken(broken) => Some(broken.clone()),
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[test]
fn page_within_a_page_is_an_error_that_names_both() {
    let inner = format!("{}\n<page>\n<title>Beta</title>{}</page>", revision(1, "one"), revision(2, "two"));
    let (events, end) = events(export(&page("Alpha", &inner)));
    assert_eq!(stored(&events), [1]);
    let error = end.unwrap_err();
    assert_eq!((error.position.line, error.position.page_line), (4, Some(2)));
    let error = error.to_string();
    for part in ["line 4", "page \"Alpha\" that begins in line 2", "page \"Beta\" begins within <page>"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn revisions_at_unexpected_places_are_left_out_with_page_and_line() {
    let (two, three, seven) = (revision(2, "x"), revision(3, "y"), revision(7, "x"));
    for (input, title, line, revs) in [
        (format!("<pages>\n{}</pages>", page("A", &two)), Some("A"), 4, vec![2]),
        (format!("<a><b>\n{}</b></a>", page(" A ", &(two + &three))), Some("A"), 4, vec![2, 3]),
        (format!("\n{seven}"), None, 3, vec![7]),
        (page("A", &format!("<history>{seven}</history>")), Some("A"), 3, vec![7]),
    ] {
        let (events, end) = events(export(&input));
        end.unwrap();
        assert!(stored(&events).is_empty(), "{input}");
        let found = left_out(&events);
        assert_eq!(found.iter().map(|left| left.rev.unwrap().get()).collect::<Vec<_>>(), revs, "{input}");
        for left in &found {
            assert_eq!((left.title.as_deref(), left.line, left.revisions), (title, line, 1), "{input}");
            assert!(matches!(left.reason, LeftOutReason::Misplaced { .. }), "{:?}", left.reason);
        }
    }
}

#[test]
fn revision_within_a_revision_leaves_out_both() {
    let inner = "<revision><id>1</id><timestamp>2012-03-04T05:06:07Z</timestamp>\n".to_owned()
        + &revision(2, "two")
        + "<text>one</text></revision>"
        + &revision(3, "three");
    let (events, end) = events(export(&page("A", &inner)));
    end.unwrap();
    assert_eq!(stored(&events), [3]);
    let found = left_out(&events);
    let mut named: Vec<_> = found.iter().map(|left| (left.rev.unwrap().get(), left.line)).collect();
    named.sort_unstable();
    assert_eq!(named, [(1, 3), (2, 4)]);
}

#[test]
fn revision_with_a_repeated_or_misplaced_element_is_left_out() {
    let whole = "<id>5</id><timestamp>2012-03-04T05:06:07Z</timestamp><contributor><username>A</username></contributor>\
                 <comment>c</comment><model>wikitext</model><text>t</text><sha1>x</sha1>";
    for element in ["id", "timestamp", "contributor", "comment", "model", "text", "sha1"] {
        let (_, end) = whole.split_once(&format!("<{element}>")).unwrap();
        let (again, _) = end.split_once(&format!("</{element}>")).unwrap();
        let input =
            export(&page("A", &format!("<revision>{whole}\n<{element}>{again}</{element}></revision>")));
        let (events, end) = events(&input);
        end.unwrap();
        assert!(stored(&events).is_empty(), "{element}");
        let reason = LeftOutReason::Repeated { element: element.to_owned(), line: 4 };
        assert_eq!(left_out(&events)[0].reason, reason);
    }
    for (extra, element, within) in [
        ("<title>B</title>", "title", "revision"),
        ("<username>B</username>", "username", "revision"),
        ("<x><text>lost</text></x>", "text", "revision"),
        ("<content><role>a</role><comment>c</comment></content>", "comment", "content"),
    ] {
        let input = export(&page("A", &format!("<revision>{whole}\n{extra}</revision>")));
        let (events, end) = events(&input);
        end.unwrap();
        let (element, within) = (element.to_owned(), within.to_owned());
        assert_eq!(left_out(&events)[0].reason, LeftOutReason::MisplacedElement { element, line: 4, within });
    }
    let (events, _) = events(export(&page("A", &format!("<revision>{whole}\nlost</revision>"))));
    assert!(matches!(left_out(&events)[0].reason, LeftOutReason::Characters { .. }));
    let twice = "<contributor><username>A</username><username>B</username></contributor>";
    let input = whole.replace("<contributor><username>A</username></contributor>", twice);
    let (events, _) = self::events_of(&export(&page("A", &format!("<revision>{input}</revision>"))));
    assert!(
        matches!(&left_out(&events)[0].reason, LeftOutReason::Repeated { element, .. } if element == "username")
    );
}

fn events_of(input: &str) -> (Vec<Event>, Result<(), ReadError>) {
    events(input)
}

#[test]
fn other_elements_at_unexpected_places_are_named() {
    let twice = "<title>B</title>".to_owned() + &revision(1, "x");
    for (input, line, title, element, fault) in [
        (page("A", &twice), 3, Some("A"), "title", MisplacedFault::Repeated),
        (page("A", "<ns>4</ns>"), 3, Some("A"), "ns", MisplacedFault::Repeated),
        (page("A", "<text>lost</text>"), 3, Some("A"), "text", MisplacedFault::Within("page".into())),
        (page("A", "lost"), 2, Some("A"), "", MisplacedFault::Within("page".into())),
        ("<text>lost</text>".into(), 2, None, "text", MisplacedFault::Within("mediawiki".into())),
        ("lost".into(), 1, None, "", MisplacedFault::Within("mediawiki".into())),
        ("<x><comment/></x>".into(), 2, None, "comment", MisplacedFault::Within("x".into())),
        (
            "<x>\n<page><title>B</title></page></x>".into(),
            3,
            Some("B"),
            "page",
            MisplacedFault::Within("x".into()),
        ),
        (
            "<siteinfo><siteinfo><sitename>A</sitename></siteinfo></siteinfo>".into(),
            2,
            None,
            "siteinfo",
            MisplacedFault::Within("siteinfo".into()),
        ),
        ("<siteinfo/><siteinfo/>".into(), 2, None, "siteinfo", MisplacedFault::Repeated),
    ] {
        let (events, end) = events(export(&input));
        end.unwrap();
        let (title, element) = (title.map(str::to_owned), element.to_owned());
        assert_eq!(misplaced(&events), [Misplaced { line, title, element, fault }], "{input}");
    }
}

#[test]
fn values_and_elements_that_cannot_be_stored_are_named_and_the_revision_is_stored() {
    let within = |name: &str| MisplacedFault::Within(name.to_owned());
    let number = |value: &str| MisplacedFault::BadNumber(value.to_owned());
    let revision = |inner: &str| {
        let begin = "<id>1</id><timestamp>2012-03-04T05:06:07Z</timestamp>";
        format!("<revision>{begin}\n{inner}<text>x</text></revision>")
    };
    let contributor = |inner: &str| revision(&format!("<contributor>{inner}</contributor>"));
    let beside = MisplacedFault::Beside("username");
    for (inner, line, element, fault) in [
        (contributor("<username>A</username>\n<ip>192.0.2.1</ip>"), 5, "ip", beside.clone()),
        (contributor("<ip>192.0.2.1</ip><username>A</username>"), 4, "ip", beside),
        (contributor("<username>A</username><id>-1</id>"), 4, "id", number("-1")),
        (contributor("<username>A</username><id>one</id>"), 4, "id", number("one")),
        (revision("<origin>0</origin>"), 4, "origin", number("0")),
        (revision("<content><role>a</role><origin>x</origin></content>"), 4, "origin", number("x")),
        (revision("<minor>no</minor>"), 4, "", within("minor")),
        (revision("<minor><comment>c</comment></minor>"), 4, "comment", within("minor")),
        ("<redirect>B</redirect>".to_owned() + &revision(""), 3, "", within("redirect")),
        ("<id>x</id>".to_owned() + &revision(""), 3, "id", number("x")),
    ] {
        let (events, end) = events(export(&page("A", &inner)));
        end.unwrap();
        assert_eq!(stored(&events), [1], "{inner}");
        let (title, element) = (Some("A".to_owned()), element.to_owned());
        assert_eq!(misplaced(&events), [Misplaced { line, title, element, fault }], "{inner}");
    }
    let namespaces = |inner: &str| format!("<siteinfo><namespaces>{inner}</namespaces></siteinfo>");
    for (input, element, fault) in [
        ("<siteinfo>lost<case>x</case></siteinfo>".to_owned(), "", within("siteinfo")),
        (namespaces("lost<namespace key=\"0\"/>"), "", within("namespaces")),
        (namespaces("<ns>4</ns>"), "ns", within("namespaces")),
        ("<page><title>A</title><ns>none</ns></page>".to_owned(), "ns", number("none")),
    ] {
        let (events, end) = events(export(&input));
        end.unwrap();
        let found = misplaced(&events);
        assert_eq!((found.len(), &*found[0].element, &found[0].fault), (1, element, &fault), "{input}");
    }
    let (both, _) = events(export(&page("A", &contributor("<username>A</username><ip>192.0.2.1</ip>"))));
    let Event::Revision(_, revision) = &both[0] else { panic!("{both:?}") };
    assert_eq!((revision.record.user.as_deref(), revision.record.export.user_is_ip), (Some("A"), false));
}

#[test]
fn characters_in_a_contributor_or_a_slot_leave_out_the_revision() {
    for inner in ["<contributor>Ann</contributor>", "<content><role>a</role>lost</content>"] {
        let inner =
            format!("<revision><id>1</id><timestamp>2012-03-04T05:06:07Z</timestamp>{inner}</revision>");
        let (events, end) = events(export(&page("A", &inner)));
        end.unwrap();
        assert!(stored(&events).is_empty(), "{inner}");
        assert_eq!(left_out(&events)[0].reason, LeftOutReason::Characters { line: 3 });
    }
}

#[test]
fn elements_of_uploads_and_log_items_are_not_named() {
    let inner = "<upload><timestamp>x</timestamp><contributor><username>A</username></contributor><comment/></upload>\
                 <discussionthreadinginfo><ThreadID>5</ThreadID></discussionthreadinginfo>";
    let log =
        "<logitem><id>1</id><timestamp>x</timestamp><comment/><text/></logitem><extension><x/></extension>";
    let (events, end) = events(export(&(page("A", inner) + log)));
    end.unwrap();
    assert!(misplaced(&events).is_empty() && left_out(&events).is_empty());
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Skipped(_))).count(), 4);
}

#[test]
fn broken_pages_are_skipped_and_named() {
    let not_closed = "<page><title>B</title>\n".to_owned() + &revision(2, "two") + &revision(3, "three");
    for (second, reason) in [
        (not_closed.clone(), "not closed"),
        (page("B", &(revision(2, "two") + &revision(3, "&nope;"))), "&nope;"),
        (page("B", &(revision(2, "two") + "<revision><id>3</revision>")), "</revision>"),
        (page("B", &(revision(2, "two") + "<!-- open")), ""),
        (page("B", &(revision(2, "two") + "<revision a=\"open>")), ""),
        (page("B", &(revision(2, "two") + "<![CDATA[ open")), ""),
    ] {
        let input = export(&(page("A", &revision(1, "one")) + &second + &page("C", &revision(4, "four"))));
        let (events, end) = events_with_skipping(&input);
        end.unwrap();
        let found = broken(&events);
        assert_eq!(
            (found.len(), found[0].line, found[0].title.as_deref()),
            (1, 4, Some("B")),
            "{second}: {found:?}"
        );
        assert!(found[0].problem.contains(reason), "{reason}: {found:?}");
        let stored = stored(&events);
        assert!(
            stored == [1, 2, 4] || (stored == [1, 2, 3, 4] && second == not_closed),
            "{second}: {stored:?}"
        );
    }
}

#[test]
fn first_and_last_page_may_be_broken() {
    for (input, revs, lines) in [
        (
            format!(
                "<page><title>A</title>{}<page><title>B</title>{}</page>",
                revision(1, ""),
                revision(2, "")
            ),
            vec![1, 2],
            vec![2],
        ),
        (page("A", &revision(1, "")) + "<page><title>B</title>", vec![1], vec![4]),
        (format!("<pages>\n{}</pages>", page("A", &revision(1, ""))), vec![1], vec![3]),
        (format!("<siteinfo>\n{}", page("A", &revision(1, ""))), vec![1], vec![3]),
    ] {
        let (events, end) = events_with_skipping(&export(&input));
        end.unwrap();
        assert_eq!(stored(&events), revs, "{input}");
        assert_eq!(broken(&events).iter().map(|page| page.line).collect::<Vec<_>>(), lines, "{input}");
    }
}

#[test]
fn other_documents_and_truncated_ones_are_errors_although_broken_pages_are_skipped() {
    let (_, end) = events_with_skipping("<html></html>");
    assert!(matches!(end.unwrap_err().problem, Problem::Unsupported(_)));
    let whole = export(&(page("A", &revision(1, "one")) + &page("B", &revision(2, "two"))));
    for end in whole.find("<page>").unwrap() + 7..whole.trim_end().len() {
        let (events, result) = events_with_skipping(&whole[..end]);
        let error = result.expect_err(&whole[..end]);
        assert!(matches!(error.problem, Problem::CutShort(_)), "{error}");
        assert!(broken(&events).is_empty(), "{end}");
    }
}

#[test]
fn undamaged_export_is_read_the_same_whether_broken_pages_are_skipped_or_not() {
    let fixture = String::from_utf8(crate::wiki::fixture("oddities.xml")).unwrap();
    for input in [
        fixture,
        export(
            &(page("A", &revision(1, "a <page> of &lt;page&gt;".replace("<page>", "").as_str()))
                + &page("B", "")),
        ),
        page("A", &revision(1, "x")) + &page("B", &revision(2, "y")),
    ] {
        let (expected, end) = events(&input);
        end.unwrap();
        let (skipping, end) = events_with_skipping(&input);
        end.unwrap();
        assert_eq!(skipping, expected);
    }
}

#[test]
fn tag_in_a_section_begins_no_page() {
    let long = "x".repeat(300_000);
    for (begin, end) in [("<![CDATA[", "]]>"), ("<!-- ", " -->"), ("<?a ", "?>")] {
        for filling in ["", "<", "<page", "<!-", &*long] {
            let section = format!("{begin}{filling}\n<page>\n<title>Z</title>{filling}{end}");
            let (text, between) = if end == "]]>" { (&*section, "") } else { ("x", &*section) };
            let rest = between.to_owned() + &revision(2, text);
            let last = page("B", &revision(3, "y"));
            let input = export(&(page("A", &(revision(1, "x") + &rest)) + &last));
            let (expected, result) = events(&input);
            result.unwrap();
            assert_eq!(stored(&expected), [1, 2, 3]);
            let (skipping, result) = events_with_skipping(&input);
            result.unwrap();
            assert!(skipping == expected, "{begin}{filling:.10}");

            let input = export(&(page("A", &(revision(1, "&nope;") + &rest)) + &last));
            let (skipping, result) = events_with_skipping(&input);
            result.unwrap();
            assert_eq!((broken(&skipping).len(), stored(&skipping)), (1, vec![3]), "{begin}{filling:.10}");
        }
    }
}

#[test]
fn section_without_an_end_hides_no_page() {
    for begin in ["<!--", "<![CDATA[", "<?a "] {
        let pages: Vec<_> = (1..1_000).map(|rev| page("A", &(revision(rev, "x") + begin))).collect();
        let last = page("B", &revision(1_000, "y"));
        let (events, end) = events_with_skipping(&export(&(pages.concat() + &last)));
        end.unwrap();
        assert_eq!((broken(&events).len(), stored(&events).len()), (999, 1_000), "{begin}");
    }
}

#[test]
fn broken_page_of_json_lines_is_skipped() {
    let line =
        |rev: u8| format!("{{\"kind\":\"revision\",\"rev\":{rev},\"timestamp\":\"2011-01-01T00:00:00Z\"}}\n");
    let page = |title: &str| format!("{{\"kind\":\"page\",\"title\":\"{title}\"}}\n");
    let input = "{\"kind\":\"siteinfo\",\"version\":1}\n".to_owned()
        + &page("A")
        + &line(1)
        + &page("B")
        + &line(2)
        + &line(3)
        + "{\"kind\":\"revision\",\"rev\"\n"
        + &line(4)
        + &page("C")
        + &line(5)
        + "{\"kind\":\"end\",\"pages\":3,\"revisions\":6,\"renders\":0}\n";
    let (events, end) = events_with_skipping(&input);
    end.unwrap();
    assert_eq!(stored(&events), [1, 2, 5]);
    let found = broken(&events);
    assert_eq!((found.len(), found[0].line, found[0].broken_line), (1, 4, 7));
    assert_eq!(found[0].title.as_deref(), Some("B"));
}

#[test]
fn white_space_around_titles_and_names_is_not_a_part_of_them() {
    for (title, expected) in [
        ("\n  Alpha\n", "Alpha"),
        ("  A  B ", "A_B"),
        ("_A__B_", "A_B"),
        ("A _B", "A_B"),
        ("\tÄ Ö\r\n", "Ä_Ö"),
    ] {
        let (events, end) = events(export(&page(title, &revision(1, "x"))));
        end.unwrap();
        let Event::Revision(found, _) = &events[0] else { panic!("{events:?}") };
        assert_eq!(*found, Title::new(expected).unwrap());
    }
    let inner = "<revision><id> 1 </id><timestamp>\n2012-03-04T05:06:07Z\n</timestamp><model> css </model>\
                 <format>\ntext/css\n</format><text>x</text><content><role> a </role><text>y</text></content></revision>";
    let (events, end) = events(export(&page("A", inner)));
    end.unwrap();
    let Event::Revision(_, revision) = &events[0] else { panic!("{events:?}") };
    let main = revision.record.export.main.as_ref().unwrap();
    assert_eq!((main.model.as_deref(), main.format.as_deref()), (Some("css"), Some("text/css")));
    assert!(revision.record.export.slots.contains_key("a"));
}

#[test]
fn main_slot_within_a_content_is_the_main_slot() {
    let inner = "<revision><id>1</id><timestamp>2012-03-04T05:06:07Z</timestamp>\
                 <content><role>main</role><model>Odd.Model</model><format>Text/x.Odd</format><text>x</text></content></revision>";
    let (events, end) = events(export(&page("A", inner)));
    end.unwrap();
    let Event::Revision(_, revision) = &events[0] else { panic!("{events:?}") };
    assert_eq!(revision.properties[0].name.as_str(), "wikitext");
    let main = revision.record.export.main.as_ref().unwrap();
    assert_eq!((main.model.as_deref(), main.format.as_deref()), (Some("Odd.Model"), Some("Text/x.Odd")));
    assert!(revision.record.export.slots.is_empty());
}

#[test]
fn leap_second_is_named() {
    let inner = "<revision><id>1</id><timestamp>2016-12-31T23:59:60Z</timestamp><text>x</text></revision>";
    let (events, end) = events(export(&page("A", inner)));
    end.unwrap();
    let found = left_out(&events);
    assert_eq!(found[0].reason, LeftOutReason::BadTimestamp("2016-12-31T23:59:60Z".into()));
    assert!(found[0].reason.to_string().contains("leap second"));
}

#[test]
fn foreign_namespace_or_version_is_named() {
    let notices = |root: &str| {
        let (events, end) = events(format!("<mediawiki{root}>{}</mediawiki>", page("A", &revision(1, "x"))));
        end.unwrap();
        assert_eq!(stored(&events), [1]);
        events.into_iter().filter(|event| matches!(event, Event::Notice(_))).count()
    };
    let namespace = |version: &str| format!(" xmlns=\"http://www.mediawiki.org/xml/export-{version}/\"");
    for known in
        ["".to_owned(), namespace("0.3"), namespace("0.11") + " version=\"0.11\"", " version=\"0.10\"".into()]
    {
        assert_eq!(notices(&known), 0, "{known}");
    }
    for foreign in
        [namespace("0.12"), namespace("1.0"), " xmlns=\"urn:x\"".to_owned(), " version=\"0.12\"".into()]
    {
        assert_eq!(notices(&foreign), 1, "{foreign}");
    }
}

#[test]
fn foreign_namespace_below_the_root_is_named_and_the_element_is_read() {
    let notices = |document: String| -> Vec<String> {
        let (events, end) = events(document);
        end.unwrap();
        assert_eq!(stored(&events), [1]);
        let notices = events.into_iter().filter_map(|event| match event {
            Event::Notice(notice) => Some(notice),
            _ => None,
        });
        notices.collect()
    };
    let known = "http://www.mediawiki.org/xml/export-0.11/";
    let good = export(&page("A", &revision(1, "x")));
    for (place, with) in [
        ("<page", "<page xmlns=\"urn:x\""),
        ("<revision", "<revision xmlns='urn:x' a=\"b\""),
        ("<text", "<text xmlns=\"urn:x\""),
        ("<timestamp", "<timestamp xmlns=\"urn:x\""),
    ] {
        assert!(good.contains(place), "{place}");
        let found = notices(good.replace(place, with));
        assert!(
            found.len() == 1 && found[0].contains(&format!("{place}> has the namespace \"urn:x\"")),
            "{found:?}"
        );
        assert_eq!(notices(good.replace(place, &with.replace("urn:x", known))), [""; 0], "{place}");
    }
    // The root of every export has the location of its schema.
    let real = format!(
        "<mediawiki xmlns=\"{known}\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xsi:schemaLocation=\"{known} {known}export-0.11.xsd\" version=\"0.11\" xml:lang=\"en\">"
    );
    assert_eq!(notices(format!("{real}{}</mediawiki>", page("A", &revision(1, "x")))), [""; 0]);
}

async fn import_with_skipping(wiki: &Wiki, input: &str) -> ImportReport {
    let source = Source::stream(Cursor::new(input.to_owned()));
    let options = ImportOptions { skip_broken: true, ..ImportOptions::default() };
    import(&wiki.buckets, &wiki.catalog, &wiki.domain, source, &options, |_| {}).await.unwrap()
}

#[tokio::test]
async fn report_counts_what_was_skipped_and_is_not_clean() {
    let wiki = Wiki::new().await;
    let input = export(
        &(page("A", &(revision(1, "x") + "<text/>"))
            + "<page><title>B</title>"
            + &page("C", &revision(2, "y"))),
    );
    let report = import_with_skipping(&wiki, &input).await;
    assert_eq!((report.created, report.broken.count, report.misplaced.count), (2, 1, 1));
    assert!(!report.is_clean());
    let clean = import_with_skipping(&wiki, &export(&page("A", &revision(1, "x")))).await;
    assert!(clean.is_clean());
    let misplaced = wiki.import(export(&page("A", &(revision(1, "x") + "<text/>")))).await.unwrap();
    assert!(!misplaced.is_clean());
}

async fn site(wiki: &Wiki) -> SiteInfo {
    wiki.catalog.site_info(&wiki.domain).await.unwrap().unwrap().0
}

#[tokio::test]
async fn empty_or_older_site_info_erases_nothing_and_changes_are_reported() {
    let input = |info: &str, rev: i64| {
        format!(
            "<mediawiki xml:lang=\"en\">\n<siteinfo>{info}</siteinfo>\n{}</mediawiki>",
            page("A", &revision(rev, "x"))
        )
    };
    let full = |name: &str| {
        format!(
            "<sitename>{name}</sitename><dbname>d</dbname><namespaces><namespace key=\"0\"/>\
             <namespace key=\"4\">{name}</namespace></namespaces>"
        )
    };
    let wiki = Wiki::new().await;
    let report = wiki.import(input(&full("One"), 5)).await.unwrap();
    assert!(report.site_changes.is_empty());
    let before = site(&wiki).await;
    assert_eq!(before.as_of, Revision::new(5));
    for poorer in [
        input("", 6),
        input("<siteinfo><sitename>x</sitename></siteinfo>", 7),
        input(&full("Old"), 4),
        input("<sitename> \n </sitename><dbname>\t</dbname>", 8),
    ] {
        wiki.import(&poorer).await.unwrap();
        assert_eq!(site(&wiki).await, before, "{poorer}");
    }
    let report = wiki.import(input(&full("Old"), 4)).await.unwrap();
    assert_eq!(report.site_changes.count, 2);
    assert!(report.is_clean());
    assert!(report.site_changes.first[0].to_string().contains("stays \"One\""));
    let report = wiki.import(input(&full("Two"), 9)).await.unwrap();
    assert_eq!(report.site_changes.count, 2);
    assert_eq!(
        report.site_changes.first[0].to_string(),
        "the sitename of the wiki was \"One\" and is now \"Two\""
    );
    assert_eq!(site(&wiki).await.name.as_deref(), Some("Two"));
}

#[tokio::test]
async fn property_in_the_wrong_line_is_left_out_with_advice() {
    let input = |revision: &str, render: &str| {
        format!(
            "{{\"kind\":\"siteinfo\",\"version\":1}}\n{{\"kind\":\"page\",\"title\":\"A\"}}\n{{\"kind\":\"revision\",\"rev\":1,\
             \"timestamp\":\"2012-03-04T05:06:07Z\",\"properties\":{{{revision}}}}}\n{{\"kind\":\"render\",\
             \"tid\":\"8f545ba0-2601-11e3-885c-4160918f0fb9\",\"properties\":{{{render}}}}}\n\
             {{\"kind\":\"end\",\"pages\":1,\"revisions\":1,\"renders\":1}}\n"
        )
    };
    let wiki = Wiki::new().await;
    for (input, expected) in [
        (
            input("\"image\":{\"base64\":\"iVBORw0KGgo=\"}", ""),
            "property image is one per render: put it into a line of kind render",
        ),
        (
            input("", "\"wikitext\":{\"text\":\"x\"}"),
            "property wikitext is one per revision: put it into the line of kind revision",
        ),
    ] {
        let report = wiki.import(&input).await.unwrap();
        assert_eq!((report.left_out.count, report.conflicts.count, report.created), (1, 0, 0));
        let reason = report.left_out.first[0].reason.to_string();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[tokio::test]
async fn exports_in_an_archive_are_imported_and_the_other_files_named() {
    let wiki = Wiki::new().await;
    let report = wiki.import(crate::wiki::fixture("several-files.7z")).await.unwrap();
    assert_eq!((report.created, report.pages), (3, 2));
    assert_eq!(report.notices.count, 5);
    assert!(report.notices.first[0].contains("\"wiki-titles.txt\" in the archive is not an export"));
    assert!(report.is_clean());
}

#[tokio::test]
async fn other_files_are_named_with_what_to_do() {
    let wiki = Wiki::new().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&[&[b'a'; 257][..], b"ustar\0", &[0; 300]].concat()).unwrap();
    let tar = packed.finish().unwrap();
    for (input, name) in [
        (b"PK\x03\x04\x14\0\0\0".to_vec(), "ZIP archive"),
        (tar, "tar archive"),
        (b"-- MySQL dump 10.13\n".to_vec(), "SQL dump"),
        (b"<!DOCTYPE html>\n<html></html>".to_vec(), "web page"),
        (b"<html></html>".to_vec(), "web page"),
    ] {
        let error = wiki.import(input).await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains(name), "{name}: {message}");
        assert_eq!(*error.report, ImportReport::default());
    }
}
