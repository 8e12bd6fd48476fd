//! Exports: the output is valid, exact, and the same after any number of imports and exports.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{
    collections::BTreeMap,
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use crate::wiki::{NOW, Wiki, data, fixture};
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_dumps::{Event, ExportOptions, Format, ImportReport, Loss};
use rashomon_pages::{
    ArchiveSettings, BucketName, NewProperty, NewRender, NewRevision, PropertyName, RenderBase, Revision,
    SealOptions, Settings, Sha1, Title, schemas,
};
use rashomon_tables::{Counting, Kind, Memory};

/// Checks an export against the schema of version 0.11, if `xmllint` and the schema are available.
#[allow(clippy::print_stderr)]
fn assert_valid(export: &str) {
    let Some(folder) = data("xsd") else { return };
    // The schema imports another schema from the network. A catalog redirects the import to the copy beside
    // the schema.
    let catalog = tempfile::NamedTempFile::new().unwrap();
    let xml_xsd = folder.join("xml.xsd").canonicalize().unwrap();
    let entry = format!(
        "<catalog xmlns=\"urn:oasis:names:tc:entity:xmlns:xml:catalog\">\
         <system systemId=\"http://www.w3.org/2001/xml.xsd\" uri=\"file://{0}\"/>\
         <uri name=\"http://www.w3.org/2001/xml.xsd\" uri=\"file://{0}\"/></catalog>",
        xml_xsd.display()
    );
    std::fs::write(catalog.path(), entry).unwrap();
    let child = Command::new("xmllint")
        .args(["--nonet", "--huge", "--noout", "--schema"])
        .arg(folder.join("export-0.11.xsd"))
        .arg("-")
        .env("XML_CATALOG_FILES", catalog.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        assert!(std::env::var_os("CI").is_none(), "xmllint of libxml2-utils is not installed");
        eprintln!("not validated: xmllint of libxml2-utils is not installed");
        return;
    };
    child.stdin.take().unwrap().write_all(export.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{export}", String::from_utf8_lossy(&output.stderr));
}

/// Checks that an import stored everything, and that each SHA-1 of the input is that of its text.
#[track_caller]
fn assert_exact(report: &ImportReport) {
    assert!(report.is_clean() && report.mismatches.is_empty(), "{report:?}");
}

/// The texts and other bodies of an input, by page and revision. Of two revisions with one number, the first
/// counts.
fn bodies(input: impl AsRef<[u8]>) -> BTreeMap<(String, i64, String), Vec<u8>> {
    let mut bodies = BTreeMap::new();
    let (events, end) = crate::wiki::events(input);
    end.unwrap();
    for event in events {
        if let Event::Revision(title, revision) = event {
            for property in revision.properties {
                let key = (title.to_string(), revision.record.rev.get(), property.name.to_string());
                bodies.entry(key).or_insert_with(|| property.body.to_vec());
            }
        }
    }
    bodies
}

#[tokio::test]
async fn every_text_survives_and_the_second_export_equals_the_first() {
    let input = fixture("oddities.xml");
    let first = Wiki::new().await;
    first.import(&input).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        let (report, one) = first.export(format).await;
        assert_eq!(report.revisions, if format == Format::Xml { 10 } else { 11 });
        assert_eq!(bodies(&one), bodies(&input));
        let second = Wiki::new().await;
        second.import(&one).await.unwrap();
        let (_, two) = second.export(format).await;
        assert_eq!(one, two, "{format:?}");
    }
    let (report, xml) = first.export(Format::Xml).await;
    // One revision has no `text` element.
    assert_eq!(report.left_out.count, 1);
    assert_eq!(report.left_out.first[0].rev.unwrap().get(), 25);
    assert_valid(&xml);
}

#[tokio::test]
async fn import_of_a_stores_own_export_changes_nothing() {
    let wiki = Wiki::new().await;
    wiki.import(fixture("oddities.xml")).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        let (_, export) = wiki.export(format).await;
        let report = wiki.import(export).await.unwrap();
        assert_eq!((report.created, report.conflicts.count), (0, 0), "{format:?}: {report:?}");
    }
}

#[tokio::test]
async fn export_of_the_fixture_equals_the_reviewed_export() {
    let wiki = Wiki::new().await;
    wiki.import(fixture("oddities.xml")).await.unwrap();
    for (format, name) in [(Format::Xml, "oddities.out.xml"), (Format::JsonLines, "oddities.out.jsonl")] {
        let (_, export) = wiki.export(format).await;
        if std::env::var_os("RASHOMON_BLESS").is_some() {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
            std::fs::write(path, &export).unwrap();
        }
        assert_eq!(export, String::from_utf8(fixture(name)).unwrap(), "{name}");
    }
}

#[tokio::test]
async fn titles_are_in_byte_order_and_may_be_chosen() {
    let page = |title| {
        format!(
            "<page><title>{title}</title><revision><id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp><text>x</text></revision></page>"
        )
    };
    let wiki = Wiki::new().await;
    wiki.import(["b", "ä", "B", "a/c", "a c"].map(page).concat()).await.unwrap();
    let titles = |export: &str| -> Vec<String> {
        export.split("<title>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
    };
    let (_, all) = wiki.export(Format::Xml).await;
    assert_eq!(titles(&all), ["B", "a/c", "a c", "b", "ä"]);
    let title = |text| Title::new(text).unwrap();
    let options = ExportOptions {
        bucket: BucketName::page(),
        titles: Some(vec![title("b"), title("nowhere"), title("B"), title("b")]),
        history: true,
        format: Format::Xml,
    };
    let (report, some) = wiki.export_with(options).await;
    assert_eq!(titles(&some), ["B", "b"]);
    assert_eq!(report.missing, [title("nowhere")]);
    assert!(!report.is_clean());
}

#[tokio::test]
async fn export_without_history_has_the_latest_only() {
    let wiki = Wiki::new().await;
    wiki.import(fixture("oddities.xml")).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        let options = ExportOptions { bucket: BucketName::page(), titles: None, history: false, format };
        let (_, export) = wiki.export_with(options).await;
        let latest: Vec<_> = bodies(&export).into_keys().map(|(title, rev, _)| (title, rev)).collect();
        assert_eq!(
            latest,
            [("Straße/Ecke_<3".to_owned(), 13), ("Talk:Left_out".to_owned(), 32)],
            "{format:?}"
        );
    }
}

async fn put(wiki: &Wiki, title: &str, rev: i64, properties: &[(&str, Option<&str>, &[u8])]) {
    put_with(wiki, title, rev, None, properties).await;
}

async fn put_with(
    wiki: &Wiki,
    title: &str,
    rev: i64,
    comment: Option<&str>,
    properties: &[(&str, Option<&str>, &[u8])],
) {
    let page = wiki.page(title);
    let new = NewRevision {
        rev: Revision::new(rev).unwrap(),
        parent: None,
        timestamp: Some(Timestamp::from_micros(1_700_000_000_123_456)),
        user: None,
        comment: comment.map(Into::into),
        minor: false,
        if_latest: None,
        properties: staged(wiki, title, properties).await,
    };
    wiki.buckets.put_revision(&page, new).await.unwrap();
}

async fn staged(wiki: &Wiki, title: &str, properties: &[(&str, Option<&str>, &[u8])]) -> Vec<NewProperty> {
    let mut staged = Vec::new();
    for (name, content_type, body) in properties {
        let name = PropertyName::new(name).unwrap();
        let body = wiki.buckets.stage_bytes(&wiki.page(title), &name, body).await.unwrap();
        let content_type = content_type.map(Into::into);
        staged.push(NewProperty { name, content_type, other_headers: BTreeMap::new(), body });
    }
    staged
}

#[tokio::test]
async fn revisions_that_were_not_imported_are_exported_as_valid_xml() {
    let wiki = Wiki::new().await;
    let html: &[u8] = b"<p>html";
    put(&wiki, "A", 1, &[("wikitext", None, b"a\r\nb\rc <>&\"' ]]>\t\n"), ("html", None, html)]).await;
    put(&wiki, "A", 2, &[("wikitext", Some("text/css; charset=utf-8"), b""), ("slot-aux", None, b"slot")])
        .await;
    put(&wiki, "Ä/ö 'q'", 7, &[("wikitext", None, "🦀 \u{feff}\u{fffd}".as_bytes())]).await;
    let (report, xml) = wiki.export(Format::Xml).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.properties_left_out, 1);
    assert_valid(&xml);
    let found = bodies(&xml);
    let text = |title: &str, rev, name: &str| found[&(title.to_owned(), rev, name.to_owned())].as_slice();
    assert_eq!(text("A", 1, "wikitext"), b"a\r\nb\rc <>&\"' ]]>\t\n");
    assert_eq!((text("A", 2, "wikitext"), text("A", 2, "slot-aux")), (&b""[..], &b"slot"[..]));
    assert_eq!(text("Ä/ö_'q'", 7, "wikitext"), "🦀 \u{feff}\u{fffd}".as_bytes());
    // The values that the export computed agree with the texts: the SHA-1 of each of the four texts, and that of each
    // revision.
    assert_eq!((xml.matches(" sha1=\"").count(), xml.matches("<sha1>").count()), (4, 3));
    let second = Wiki::new().await;
    assert_exact(&second.import(&xml).await.unwrap());
    assert_eq!(second.export(Format::Xml).await.1, xml);
}

#[tokio::test]
async fn losses_of_xml_are_named_and_kept_in_json_lines() {
    let wiki = Wiki::new().await;
    put(&wiki, "A", 1, &[("wikitext", None, b"bell \x07")]).await;
    put(&wiki, "A", 2, &[("wikitext", None, "\u{ffff}".as_bytes())]).await;
    put(&wiki, "A", 3, &[("wikitext", None, b"\xff\xfe")]).await;
    put(&wiki, "A", 4, &[("html", None, b"<p>no wikitext")]).await;
    put_with(&wiki, "A", 5, Some("form\x0cfeed"), &[("wikitext", None, b"fine")]).await;
    put(&wiki, "A", 6, &[("wikitext", None, b"fine")]).await;
    put(&wiki, "B\u{fffe}", 6, &[("wikitext", None, b"fine")]).await;
    let (report, xml) = wiki.export(Format::Xml).await;
    assert_valid(&xml);
    assert_eq!((report.pages, report.revisions), (1, 1));
    let losses: Vec<_> = report.left_out.first.iter().map(|w| (w.rev.map(Revision::get), &w.loss)).collect();
    assert!(matches!(losses[0], (Some(1), Loss::Character { character: '\u{7}', .. })));
    assert!(matches!(losses[1], (Some(2), Loss::Character { character: '\u{ffff}', .. })));
    assert!(matches!(losses[2], (Some(3), Loss::NotUtf8 { .. })));
    assert!(matches!(losses[3], (Some(4), Loss::NoText { .. })));
    assert!(matches!(losses[4], (Some(5), Loss::Character { character: '\u{c}', .. })));
    assert!(matches!(losses[5], (None, Loss::Character { character: '\u{fffe}', .. })));
    assert_eq!(report.left_out.count, 6);
    assert_eq!(report.properties_left_out, 1);

    let (report, lines) = wiki.export(Format::JsonLines).await;
    assert!(report.is_clean());
    let second = Wiki::new().await;
    assert!(second.import(&lines).await.unwrap().is_clean());
    assert_eq!(second.export(Format::JsonLines).await.1, lines);
}

#[tokio::test]
async fn values_outside_of_the_schema_are_written_and_named() {
    let page = |title: &str, format: &str| {
        format!(
            "<page><title>{title}</title><id>1</id><revision><id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp>\
             <format>{format}</format><text>x</text></revision></page>"
        )
    };
    let wiki = Wiki::new().await;
    wiki.import([page("A", "text/x-wiki"), page("B", "text/x-wiki"), page("C", "odd")].concat())
        .await
        .unwrap();
    let (report, xml) = wiki.export(Format::Xml).await;
    assert_eq!((report.pages, report.revisions), (3, 3));
    let names: Vec<_> = report.invalid.first.iter().map(|w| (w.title.as_str(), w.rev.is_some())).collect();
    assert_eq!(names, [("B", false), ("B", true), ("C", false), ("C", true)]);
    let second = Wiki::new().await;
    second.import(&xml).await.unwrap();
    assert_eq!(second.export(Format::Xml).await.1, xml);
}

#[tokio::test]
async fn renders_and_replacements_survive_json_lines() {
    let wiki = Wiki::new().await;
    put(
        &wiki,
        "A",
        1,
        &[("wikitext", None, b"old"), ("html", None, b"<p>1"), ("x", Some("image/png"), &[0xff])],
    )
    .await;
    let page = wiki.page("A");
    let new = NewRender {
        base: RenderBase::Revision(Revision::new(1).unwrap()),
        timestamp: None,
        if_latest: None,
        properties: staged(
            &wiki,
            "A",
            &[("html", Some("text/html; charset=utf-8; profile=\"x/2.0.0\""), b"<p>2")],
        )
        .await,
    };
    let render = wiki.buckets.put_render(&page, new).await.unwrap();
    let mut other = staged(&wiki, "A", &[("wikitext", None, b"replaced")]).await;
    other[0].other_headers.insert("x-why".into(), "a secret".into());
    let replaced = other.remove(0);
    wiki.buckets.rewrite(&page, render.tid, replaced, rashomon_pages::Expect::Any).await.unwrap();

    let (report, lines) = wiki.export(Format::JsonLines).await;
    assert_eq!((report.pages, report.revisions), (1, 1));
    let second = Wiki::new().await;
    assert_exact(&second.import(&lines).await.unwrap());
    assert_eq!(second.export(Format::JsonLines).await.1, lines);
    let (one, two) = (&wiki.buckets, &second.buckets);
    let rev = Revision::new(1).unwrap();
    let (one, two) = (one.revision(&page, rev).await.unwrap(), two.revision(&page, rev).await.unwrap());
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    assert_eq!(one.renders.len(), 2);

    // XML has the new text, and the size and the SHA-1 of the new text.
    let (_, xml) = wiki.export(Format::Xml).await;
    let sha1 = Sha1::of(b"replaced").to_base36();
    let text = format!("<text bytes=\"8\" sha1=\"{sha1}\" xml:space=\"preserve\">replaced</text>");
    assert!(xml.contains(&text) && xml.contains(&format!("<sha1>{sha1}</sha1>")), "{xml}");
    assert_exact(&Wiki::new().await.import(&xml).await.unwrap());
}

#[tokio::test]
async fn replaced_text_is_not_compared_with_the_old_sha1() {
    let sha1 = "6g1vem5r7rpptnery7xkhwa4ftyuaju";
    let input = format!(
        "<page><title>A</title><revision><id>1</id><timestamp>2011-01-01T00:00:00Z</timestamp>\
         <text bytes=\"4\" sha1=\"{sha1}\">text</text><sha1>{sha1}</sha1></revision></page>"
    );
    let wiki = Wiki::new().await;
    assert_exact(&wiki.import(input).await.unwrap());
    let page = wiki.page("A");
    let tid = wiki.buckets.latest_render(&page).await.unwrap().tid;
    let new = staged(&wiki, "A", &[("wikitext", None, b"another")]).await.remove(0);
    wiki.buckets.rewrite(&page, tid, new, rashomon_pages::Expect::Any).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        let (_, export) = wiki.export(format).await;
        let second = Wiki::new().await;
        assert_exact(&second.import(&export).await.unwrap());
        assert_eq!(second.export(format).await.1, export);
    }
}

#[tokio::test]
async fn large_body_survives_a_round_trip() {
    let large: Vec<u8> =
        (0..3_000_000_u32).map(|number| b'a' + (number.wrapping_mul(number) % 23) as u8).collect();
    let wiki = Wiki::new().await;
    put(&wiki, "A", 1, &[("wikitext", None, &large), ("html", None, &large)]).await;
    for format in [Format::Xml, Format::JsonLines] {
        let (_, export) = wiki.export(format).await;
        let found = bodies(&export);
        assert!(found[&("A".to_owned(), 1, "wikitext".to_owned())] == large);
        let second = Wiki::new().await;
        assert!(second.import(&export).await.unwrap().is_clean());
        assert!(second.export(format).await.1 == export);
    }
}

#[tokio::test]
async fn revision_with_many_large_renders_survives_a_round_trip() {
    let wiki = Wiki::new().await;
    let large = "large ".repeat(600_000);
    put(&wiki, "A", 1, &[("wikitext", None, b"text"), ("html", None, large.as_bytes())]).await;
    let page = wiki.page("A");
    for number in 0..4 {
        let html = format!("{number} {large}");
        let new = NewRender {
            base: RenderBase::Revision(Revision::new(1).unwrap()),
            timestamp: None,
            if_latest: None,
            properties: staged(&wiki, "A", &[("html", None, html.as_bytes())]).await,
        };
        wiki.buckets.put_render(&page, new).await.unwrap();
    }
    let (_, lines) = wiki.export(Format::JsonLines).await;
    let second = Wiki::new().await;
    // The revision comes in parts, but is counted once.
    let report = second.import(&lines).await.unwrap();
    assert_eq!((report.created, report.text_bytes), (1, 4 + 5 * 3_600_000 + 4 * 2));
    assert!(second.export(Format::JsonLines).await.1 == lines);
    let report = second.import(&lines).await.unwrap();
    assert_eq!((report.created, report.unchanged), (0, 1));
}

/// Exports a page whose bodies fill many blocks. Each block is fetched once, if there is memory for the
/// blocks of a few revisions: the next revision in a block does not fetch it again.
#[tokio::test]
async fn each_block_is_fetched_once() {
    let clock = Arc::new(ManualClock::new(NOW));
    let counting = Arc::new(Counting::new(Memory::new(clock.clone())));
    // The cache is smaller than half of the memory that the blocks take.
    let archive = ArchiveSettings { cache_bytes: 12 << 20, ..ArchiveSettings::default() };
    let settings = Settings { archive: Some(archive), ..Settings::default() };
    let wiki = Wiki::on(counting.clone(), clock.clone(), settings.clone()).await;
    for rev in 1..=200_i64 {
        // Revisions have nothing in common, so blocks are full soon.
        let noise = |salt: u64| -> String {
            let seed = (rev as u64) << 32 | salt << 16;
            let word = |part: u64| (seed | part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..4000).map(|part| format!("{:016x}", word(part))).collect()
        };
        let (text, html) = (noise(1), noise(2));
        let properties = [("wikitext", None, text.as_bytes()), ("html", None, html.as_bytes())];
        let new = NewRevision::new(Revision::new(rev).unwrap(), staged(&wiki, "A", &properties).await);
        wiki.buckets.put_revision(&wiki.page("A"), new).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    clock.advance(Duration::from_secs(3 * 24 * 3600));
    let bucket = BucketName::page();
    let sealed = wiki
        .buckets
        .maintenance()
        .seal(&wiki.domain, &bucket, SealOptions::default(), &mut |_| {})
        .await
        .unwrap();
    assert!(sealed.blocks > 60, "{sealed:?}");
    for format in [Format::Xml, Format::JsonLines] {
        let wiki = Wiki::on(counting.clone(), clock.clone(), settings.clone()).await;
        let before = counting.counts();
        wiki.export(format).await;
        let fetched = (counting.counts() - &before).of(schemas::ARCHIVE_BLOCKS.name(), Kind::Scan).operations;
        assert_eq!(fetched, sealed.blocks as u64, "{format:?}");
    }
}

/// Headers that steer a server in front of this one are not imported. An earlier version may have stored them, and they
/// are not exported.
#[tokio::test]
async fn steering_headers_are_neither_imported_nor_exported() {
    let wiki = Wiki::new().await;
    let page = wiki.page("A");
    let mut stored = staged(&wiki, "A", &[("html", None, b"<p>")]).await;
    for name in ["x-review", "x-litespeed-purge", "x-frame-options"] {
        stored[0].other_headers.insert(name.into(), "1".into());
    }
    wiki.buckets.put_revision(&page, NewRevision::new(Revision::new(1).unwrap(), stored)).await.unwrap();
    let (_, lines) = wiki.export(Format::JsonLines).await;
    assert!(
        lines.contains("x-review") && !lines.contains("x-litespeed") && !lines.contains("x-frame"),
        "{lines}"
    );
    let steering = r#""headers":{"x-frame-options":"1","x-litespeed-purge":"*","x-review":"1"}"#;
    let given = lines.replace(r#""headers":{"x-review":"1"}"#, steering);
    assert_ne!(given, lines);
    let second = Wiki::new().await;
    let report = second.import(&given).await.unwrap();
    assert_eq!((report.created, report.left_out.count), (1, 0), "{report:?}");
    let dropped = [("header x-frame-options".to_owned(), 1), ("header x-litespeed-purge".to_owned(), 1)];
    assert_eq!(report.skipped, dropped.into());
    assert_eq!(second.export(Format::JsonLines).await.1, lines);
}
