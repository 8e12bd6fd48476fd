//! Reading exports: every field, all oddities, and every kind of error.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use crate::wiki::{events, fixture};
use rashomon_dumps::{Event, HistoryReader, LeftOut, LeftOutReason, Problem, ReadLimits, SourceRevision};
use rashomon_pages::{PageInfo, Parent, Revision, SlotRecord};

/// An export of one page with one revision and this text element.
fn with_text(text: &str) -> String {
    with_revision(&format!("<id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp>{text}"))
}

fn with_revision(revision: &str) -> String {
    format!("<mediawiki><page><title>P</title><revision>{revision}</revision></page></mediawiki>")
}

fn revisions(input: impl AsRef<[u8]>) -> Vec<SourceRevision> {
    let (events, end) = events(input);
    end.unwrap();
    (events.into_iter())
        .filter_map(|event| match event {
            Event::Revision(_, revision) => Some(*revision),
            _ => None,
        })
        .collect()
}

fn text_of(revision: &SourceRevision) -> Option<&str> {
    let property = revision.properties.iter().find(|property| property.name.as_str() == "wikitext")?;
    Some(std::str::from_utf8(&property.body).unwrap())
}

#[track_caller]
fn assert_text(element: &str, expected: Option<&str>) {
    let revisions = revisions(with_text(element));
    assert_eq!(text_of(&revisions[0]), expected, "{element:?}");
}

#[track_caller]
fn problem(input: impl AsRef<[u8]>) -> Problem {
    events(input).1.unwrap_err().problem
}

#[test]
fn errors_repeat_at_most_an_excerpt_of_the_input() {
    let long = "x".repeat(60_000);
    for bad in [
        format!("<{long}/>"),
        format!("<mediawiki><page></{long}></mediawiki>"),
        format!("<mediawiki><{long}></page></mediawiki>"),
        with_text(&format!("<text><{long}/></text>")),
        with_text(&format!("<text {long}></text>")),
        with_text(&format!("<text id=\"&{long};\"></text>")),
        with_text(&format!("<text>&{long};</text>")),
        with_text(&format!("<text>&#{long};</text>")),
        format!("<?xml version=\"1.0\" encoding=\"{long}\"?><mediawiki/>"),
        format!(
            "<mediawiki><siteinfo><namespaces><namespace>{long}</namespace></namespaces></siteinfo></mediawiki>"
        ),
        format!("<mediawiki><page><title>{long}</title><{long}></page></mediawiki>"),
    ] {
        let error = events(&bad).1.expect_err(&bad[..100]).to_string();
        assert!(error.len() < 900, "{} bytes: {error:.900}", error.len());
    }
}

#[test]
fn every_field_is_read() {
    let (events, end) = events(fixture("oddities.xml"));
    end.unwrap();
    let Event::Site(site) = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!(site.name.as_deref(), Some("A & B"));
    assert_eq!(site.database.as_deref(), Some("ab"));
    assert_eq!(site.base.as_deref(), Some("https://example.org/wiki/Start"));
    assert_eq!(site.generator.as_deref(), Some("by hand"));
    assert_eq!(site.case.as_deref(), Some("first-letter"));
    assert_eq!(site.language.as_deref(), Some("de"));
    let namespaces: Vec<_> =
        site.namespaces.iter().map(|n| (n.key, n.case.as_deref().unwrap(), n.name.as_str())).collect();
    assert_eq!(
        namespaces,
        [(-2, "first-letter", "Media"), (0, "first-letter", ""), (1, "case-sensitive", "Talk")]
    );

    let Event::Revision(title, first) = &events[1] else { panic!("{:?}", events[1]) };
    assert_eq!(title.as_str(), "Straße/Ecke_<3");
    assert_eq!(first.line, 22);
    assert_eq!(first.record.rev.get(), 10);
    assert_eq!(first.record.parent, Some(Parent::None));
    assert_eq!(first.record.timestamp.as_micros(), 1_262_401_445_000_000);
    assert_eq!(first.record.user.as_deref(), Some("Jörg & Co"));
    assert_eq!(first.record.comment.as_deref(), Some("a <b> c"));
    assert!(first.record.minor);
    assert_eq!(first.record.export.user_id, Some(3));
    assert!(!first.record.export.user_is_ip);
    let main = SlotRecord {
        model: Some("wikitext".into()),
        format: Some("text/x-wiki".into()),
        origin: Some(9),
        deleted: false,
        bytes: Some(4),
        sha1: None,
        id: Some("5".into()),
        location: Some("tt:5".into()),
    };
    assert_eq!(first.record.export.main, Some(main));
    assert_eq!(first.properties[0].content_type, None);
    assert_eq!(text_of(first), Some("text"));

    let Event::Revision(_, second) = &events[2] else { panic!("{:?}", events[2]) };
    assert_eq!(second.record.parent, Some(Parent::Revision(Revision::new(10).unwrap())));
    assert_eq!(second.record.user.as_deref(), Some("2001:DB8:0:0:0:0:0:1"));
    assert!(second.record.export.user_is_ip);
    assert_eq!(text_of(second), Some("a <![CDATA[ <b>&amp;</b> A\r\n\"'end\n"));
    let wikitext = second.properties.iter().find(|p| p.name.as_str() == "wikitext").unwrap();
    assert_eq!(wikitext.content_type.as_deref(), Some("text/css; charset=utf-8"));
    let slot = second.properties.iter().find(|p| p.name.as_str() == "slot-mediainfo").unwrap();
    assert_eq!((&slot.body[..], slot.content_type.as_deref()), (&b"{\"a\":1}"[..], Some("application/json")));
    let record = &second.record.export.slots["mediainfo"];
    assert_eq!((record.model.as_deref(), record.origin), (Some("wikibase-mediainfo"), Some(11)));

    let Event::Revision(_, third) = &events[3] else { panic!("{:?}", events[3]) };
    let export = &third.record.export;
    assert!(export.user_deleted && export.comment_deleted && export.main.as_ref().unwrap().deleted);
    assert_eq!((text_of(third), export.main.as_ref().unwrap().bytes), (None, Some(77)));
    assert_eq!((third.record.parent, third.record.user.as_deref()), (None, None));

    let Event::PageEnd(_, Some(info)) = &events[4] else { panic!("{:?}", events[4]) };
    let expected = PageInfo {
        as_of: Revision::new(12).unwrap(),
        page_id: Some(7),
        namespace: Some(0),
        redirect: Some("Ziel \"eins\"".into()),
        restrictions: Some("edit=sysop:move=sysop".into()),
    };
    assert_eq!(*info, expected);
}

#[test]
fn empty_text_differs_from_absent_and_deleted_text() {
    let found = revisions(fixture("oddities.xml"));
    let text = |rev| text_of(found.iter().find(|revision| revision.record.rev.get() == rev).unwrap());
    assert_eq!([20, 21, 22].map(text), [Some(""); 3]);
    assert_eq!([23, 24, 25].map(text), [None; 3]);
    let deleted = with_text("<text deleted=\"deleted\" xml:space=\"preserve\" />");
    assert_eq!(text_of(&revisions(deleted)[0]), None);
}

#[test]
fn left_out_revisions_are_named_with_their_line() {
    let (events, end) = events(fixture("oddities.xml"));
    end.unwrap();
    let left_out: Vec<_> = (events.into_iter())
        .filter_map(|event| match event {
            Event::LeftOut(LeftOut { line, title, rev, revisions, reason }) => {
                Some((line, title.unwrap(), rev.map(Revision::get), revisions, reason))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (121, None, 1, LeftOutReason::NoNumber),
        (126, None, 1, LeftOutReason::BadNumber("0".into())),
        (132, None, 1, LeftOutReason::BadNumber("-5".into())),
        (138, Some(30), 1, LeftOutReason::BadTimestamp("long ago".into())),
        (144, Some(31), 1, LeftOutReason::NoTimestamp),
    ];
    for (found, (line, rev, count, reason)) in left_out.iter().zip(expected) {
        assert_eq!(*found, (line, "Talk:Left out".to_owned(), rev, count, reason));
    }
    let (line, title, rev, count, reason) = &left_out[5];
    assert_eq!((*line, title.as_str(), *rev, *count), (163, "A title with\na line feed", None, 2));
    assert!(matches!(reason, LeftOutReason::BadTitle(_)));
    assert_eq!(left_out.len(), 6);
}

#[test]
fn skipped_elements_are_named() {
    let (events, _) = events(fixture("oddities.xml"));
    let skipped: Vec<_> = (events.iter())
        .filter_map(|event| match event {
            Event::Skipped(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(skipped, ["upload", "discussionthreadinginfo", "logitem"]);
}

#[test]
fn line_ends_and_references_are_read_as_by_an_xml_parser() {
    for (element, expected) in [
        ("<text>a\r\nb\rc\n\r\nd</text>", "a\nb\nc\n\nd"),
        ("<text>a&#13;\nb&#xD;</text>", "a\r\nb\r"),
        ("<text>\r&#10;\r<!-- -->\n</text>", "\n\n\n\n"),
        ("<text><![CDATA[a\r\nb]]></text>", "a\nb"),
        ("<text><![CDATA[]]]]><![CDATA[>]]></text>", "]]>"),
        ("<text>&lt;&gt;&amp;&quot;&apos;&#228;&#x1F600;</text>", "<>&\"'ä😀"),
        ("<text>&amp;lt;</text>", "&lt;"),
        ("<text xml:space=\"preserve\">  \n\t </text>", "  \n\t "),
        ("<text>  </text>", "  "),
        ("<text xml:space=\"default\"> a </text>", " a "),
        ("<text><?php echo ?>x<!-- y -->z</text>", "xz"),
        ("<text>\u{feff}\u{85}\u{2028}</text>", "\u{feff}\u{85}\u{2028}"),
    ] {
        assert_text(element, Some(expected));
    }
    // The pattern has an odd number of bytes, so over many buffers, buffers end at every position of the pattern.
    let long = "äöüx\r\n".repeat(150_000);
    assert_text(&format!("<text>{long}</text>"), Some(&"äöüx\n".repeat(150_000)));
}

#[test]
fn malformed_xml_is_an_error() {
    for text in [
        "<text>&nbsp;</text>",
        "<text>a & b</text>",
        "<text>\u{1}</text>",
        "<text>&#1;</text>",
        "<text>&#0;</text>",
        "<text>\u{ffff}</text>",
        "<text>&#xFFFE;</text>",
        "<text>&#xD800;</text>",
        "<text>a<b>c</b></text>",
        "<text bytes=\"1\" bytes=\"2\">a</text>",
        "<text sha1=\"&#2;\">a</text>",
        "<text>a</txet>",
    ] {
        let problem = problem(with_text(text));
        assert!(matches!(problem, Problem::Malformed(_)), "{text:?}: {problem:?}");
    }
    assert!(matches!(
        problem(b"<mediawiki><page><title>\xff\xfe</title></page></mediawiki>"),
        Problem::Malformed(_)
    ));
    assert!(matches!(problem("<mediawiki></mediawiki><page></page>"), Problem::Malformed(_)));
    assert!(matches!(problem("<mediawiki></mediawiki>x"), Problem::Malformed(_)));
}

#[test]
fn other_documents_are_refused() {
    for input in [
        "<html></html>",
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><mediawiki></mediawiki>",
        "<!DOCTYPE mediawiki><mediawiki></mediawiki>",
        "hello",
        "[]",
    ] {
        assert!(matches!(problem(input), Problem::Unsupported(_)), "{input:?}: {:?}", problem(input));
    }
    assert!(matches!(problem(b"\xff\xfe<\0m\0"), Problem::Unsupported(_)));
    for part_of_a_mark in [&b"\xef"[..], b"\xef\xbb", b" \xef\xbb", b"\xef\xbbx"] {
        let problem = problem(part_of_a_mark);
        assert!(matches!(problem, Problem::Unsupported(_)), "{part_of_a_mark:?}: {problem:?}");
    }
    for empty in ["", " \n ", "\u{feff}"] {
        assert!(matches!(problem(empty), Problem::Empty), "{empty:?}: {:?}", problem(empty));
    }
    assert!(matches!(problem("<!-- nothing -->"), Problem::CutShort(_)));
}

#[test]
fn entities_that_multiply_are_not_expanded() {
    let laughs = "<!DOCTYPE m [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\"><!ENTITY c \"&b;&b;\">]>";
    let input = format!("{laughs}{}", with_text("<text>&c;</text>"));
    assert!(matches!(problem(input), Problem::Unsupported(_)));
}

#[test]
fn too_large_and_too_deep_elements_are_refused() {
    let deep = format!("<mediawiki>{}", "<a>".repeat(1000));
    assert!(matches!(problem(deep), Problem::TooLarge(_)));
    let tag = with_text(&format!("<text sha1=\"{}\">a</text>", "x".repeat(70_000)));
    assert!(matches!(problem(tag), Problem::TooLarge(_)));
    let attributes: String = (0..100).map(|number| format!(" a{number}=\"\"")).collect();
    assert!(matches!(problem(with_text(&format!("<text{attributes}>a</text>"))), Problem::TooLarge(_)));
    let comment = with_revision(&format!("<id>5</id><comment>{}</comment>", "x".repeat(70_000)));
    assert!(matches!(problem(comment), Problem::TooLarge(_)));
}

/// A text that never ends, so that only a limit can stop its reader.
struct Endless {
    head: std::io::Cursor<Vec<u8>>,
    given: u64,
}

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.head.read(buffer)?;
        if count > 0 {
            return Ok(count);
        }
        buffer.fill(b'x');
        self.given += buffer.len() as u64;
        assert!(self.given < 10 << 20, "the reader goes on after the limit");
        Ok(buffer.len())
    }
}

#[test]
fn endless_text_is_an_error_with_its_revision() {
    for begin in ["<text>", "<text>&amp;", "<text a=\"", "<!--", "<![CDATA["] {
        let head = with_text(begin);
        let head = head.split("</revision>").next().unwrap().as_bytes().to_vec();
        let endless = Endless { head: std::io::Cursor::new(head), given: 0 };
        let limits = ReadLimits { text: 1 << 20, line: 1 << 20, ..ReadLimits::default() };
        let mut reader = HistoryReader::new(endless, limits).unwrap();
        let error = reader.next().unwrap_err();
        assert!(matches!(error.problem, Problem::TooLarge(_)), "{begin}: {error}");
        assert_eq!(error.position.page.as_deref(), Some("P"));
        assert_eq!(error.position.revision.as_deref(), Some("5"));
        assert!(error.position.inside);
    }
}

#[test]
fn truncated_export_is_an_error_after_the_complete_revisions() {
    let whole = fixture("oddities.xml");
    let (all, _) = events(&whole);
    for end in 1..whole.trim_ascii_end().len() {
        let (before, result) = events(&whole[..end]);
        let error = result.expect_err(&format!("cut at {end}"));
        assert!(matches!(error.problem, Problem::CutShort(_)), "cut at {end}: {error}");
        assert_eq!(error.position.offset, end as u64, "cut at {end}: {error}");
        assert_eq!(before, all[..before.len()], "cut at {end}");
    }
    let end = whole.windows(5).position(|window| window == b">kept").unwrap();
    let (before, error) = events(&whole[..end]);
    let error = error.unwrap_err();
    assert_eq!(error.position.page.as_deref(), Some("Talk:Left out"));
    assert_eq!(error.position.revision.as_deref(), Some("32"));
    assert_eq!(error.position.line, 153);
    assert!(error.to_string().contains("in revision 32 of page \"Talk:Left out\""), "{error}");
    assert_eq!(before.iter().filter(|event| matches!(event, Event::Revision(..))).count(), 9);
}

#[test]
fn error_in_or_after_a_page_without_revisions_is_reported_after_the_beginning_of_the_page() {
    let page = "<page><title>P</title>";
    for (input, place) in [
        (format!("<mediawiki>{page}</page></mediawiki>x"), ", after the beginning of page \"P\": "),
        (
            format!("<mediawiki>\n{page}\n</mediawiki>"),
            ", after the beginning of page \"P\" that begins in line 2: ",
        ),
    ] {
        let error = events(&input).1.unwrap_err();
        assert_eq!(error.position.page.as_deref(), Some("P"));
        assert!(error.to_string().contains(place), "{error}");
    }
}

#[test]
fn pages_without_a_root_are_read_as_parts_of_a_dump() {
    let page = "<page><title>P</title><revision><id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp></revision></page>";
    assert_eq!(revisions(format!("  {page}\n{page}\n")).len(), 2);
    assert_eq!(revisions(format!("\u{feff}{page}")).len(), 1);
    assert!(matches!(problem(format!("{page}<page><title>")), Problem::CutShort(_)));
}

#[test]
fn a_revision_before_its_title_is_left_out() {
    let input = "<mediawiki><page>\n<revision><id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp></revision>\
                 <title>P</title></page></mediawiki>";
    let (events, end) = events(input);
    end.unwrap();
    let Event::LeftOut(left_out) = &events[0] else { panic!("{events:?}") };
    assert_eq!((left_out.reason.clone(), left_out.revisions), (LeftOutReason::NoTitle, 1));
}

#[test]
fn impossible_revisions_are_left_out() {
    let revision = |rest: &str| with_revision(&format!("<id>5</id>{rest}<text>a</text>"));
    let parent = |parent: &str| {
        revision(&format!("<parentid>{parent}</parentid><timestamp>2011-01-01T00:00:00Z</timestamp>"))
    };
    for (input, reason) in [
        (parent("5"), LeftOutReason::OwnParent),
        (parent("-1"), LeftOutReason::BadParent("-1".into())),
        (parent("x"), LeftOutReason::BadParent("x".into())),
    ] {
        let (events, end) = events(&input);
        end.unwrap();
        let Event::LeftOut(left_out) = &events[0] else { panic!("{events:?}") };
        assert_eq!((&left_out.reason, left_out.rev), (&reason, Revision::new(5)));
        // A page without stored revisions has no metadata.
        assert!(matches!(&events[1], Event::PageEnd(_, None)), "{events:?}");
    }
    // These parents are accepted, since real exports may have them: 0 (no parent), a higher number, and an empty
    // element (parent unknown).
    for (number, expected) in
        [("0", Some(Parent::None)), ("9", Revision::new(9).map(Parent::Revision)), ("", None)]
    {
        assert_eq!(revisions(parent(number))[0].record.parent, expected);
    }
}

#[test]
fn revisions_in_the_future_are_left_out() {
    let input = |time: &str| {
        with_revision(&format!("<id>5</id><timestamp>{time}</timestamp><text>a</text>")).into_bytes()
    };
    let limits = ReadLimits { latest: rashomon_clock::Timestamp::EPOCH, ..ReadLimits::default() };
    let first = |input: Vec<u8>| HistoryReader::new(&input[..], limits).unwrap().next().unwrap().unwrap();
    assert!(matches!(first(input("1970-01-01T00:00:00Z")), Event::Revision(..)));
    let Event::LeftOut(left_out) = first(input("1970-01-01T00:00:01Z")) else { panic!() };
    assert_eq!(left_out.reason, LeftOutReason::InFuture("1970-01-01T00:00:01Z".into()));
}

#[test]
fn revisions_with_slots_that_cannot_be_properties_are_left_out() {
    let content = |role: &str| format!("<content><role>{role}</role><text>a</text></content>");
    for (slots, reason) in [
        (content("Ä"), LeftOutReason::BadSlot { role: "Ä".into(), character: 'Ä' }),
        (content("my-Slot"), LeftOutReason::BadSlot { role: "my-Slot".into(), character: 'S' }),
        (content("v1.2"), LeftOutReason::BadSlot { role: "v1.2".into(), character: '.' }),
        (content(""), LeftOutReason::NoRole),
        (content(&"x".repeat(60)), LeftOutReason::LongRole("x".repeat(60))),
        ("<model>wikitext</model>".to_owned() + &content("main"), LeftOutReason::SlotTwice("main".into())),
        (content("a") + &content("a"), LeftOutReason::SlotTwice("a".into())),
    ] {
        let (events, end) = events(with_text(&slots));
        end.unwrap();
        let Event::LeftOut(left_out) = &events[0] else { panic!("{events:?}") };
        assert_eq!(left_out.reason, reason);
    }
}
