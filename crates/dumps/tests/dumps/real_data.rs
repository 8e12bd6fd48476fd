//! Exports of other programs, and two large histories.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{collections::BTreeMap, fs::File, path::Path};

use crate::wiki::{Wiki, data};
use rashomon_dumps::{Event, Format, HistoryReader, ImportFailure, ReadLimits, Source, compression};

/// The expectation for each file: pages, revisions created, conflicts, left out, SHA-1 values that do not
/// match, and a part of the error that ends the import, if any.
const FILES: [(&str, [u64; 5], &str); 20] = [
    ("Finger_Lakes3_dummy.xml", [1, 27, 0, 1, 27], ""),
    ("enwiki-Rio_Grande-247revs-export0.3.xml.xz", [1, 247, 0, 0, 0], ""),
    ("freecad-current-export-0.7.xml.xz", [851, 851, 0, 0, 653], ""),
    ("halfak_dump.xml", [2, 3, 0, 0, 3], ""),
    ("halfak_dump2.xml", [1, 1, 0, 0, 1], ""),
    ("halfak_small.xml.lzma", [1, 1, 0, 0, 0], ""),
    ("itwiki-Amen-49revs-export0.3.xml.xz", [1, 49, 0, 0, 0], ""),
    ("macbre_dump.xml", [2, 0, 0, 4, 0], ""),
    ("macbre_dump.xml.7z", [3, 3, 0, 0, 0], ""),
    ("macbre_dump.xml.bz2", [2, 2, 0, 0, 0], ""),
    ("mediawiki-1.39.17-written-export-0.10-amen-riogrande.xml.xz", [3, 297, 0, 0, 0], ""),
    ("mediawiki-1.39.17-written-export-0.11-amen-riogrande.xml.xz", [3, 297, 0, 0, 0], ""),
    ("mwxml_dump.xml", [2, 3, 0, 0, 3], ""),
    ("wiki1.xml", [1, 3, 0, 0, 0], ""),
    ("wiki2.xml", [1, 3, 0, 0, 0], ""),
    ("wiki3.xml", [1, 3, 0, 0, 0], ""),
    ("wiki4.xml", [1, 3, 0, 0, 0], "&rsquo;"),
    ("wiki5.xml", [2, 7, 0, 0, 0], "&times;"),
    ("wikihadoop_dump_test.xml", [2, 0, 0, 3, 0], ""),
    ("wikihadoop_page_sample.xml", [3, 6, 0, 0, 0], ""),
];

type Texts = BTreeMap<(String, i64), Vec<u8>>;

/// Reads the wikitext of each revision, up to the end of the input or its first error. Of two revisions with one number
/// in a page, the first counts.
fn texts(source: Source) -> Texts {
    let mut texts = Texts::new();
    let read = compression::read(source, &Default::default(), |input, _| {
        let mut reader = HistoryReader::new(input, ReadLimits::default()).unwrap();
        while let Ok(Some(event)) = reader.next() {
            let Event::Revision(title, revision) = event else { continue };
            let wikitext =
                revision.properties.into_iter().find(|property| property.name.as_str() == "wikitext");
            if let Some(wikitext) = wikitext {
                texts.entry((title.to_string(), revision.record.rev.get())).or_insert(wikitext.body.to_vec());
            }
        }
    });
    read.unwrap();
    texts
}

fn open(path: &Path) -> Source {
    Source::file(File::open(path).unwrap()).unwrap()
}

async fn assert_round_trip(wiki: &Wiki, expected: &Texts, name: &str) {
    for format in [Format::Xml, Format::JsonLines] {
        let (report, one) = wiki.export(format).await;
        assert!(report.left_out.is_empty(), "{name}: {report:?}");
        let found = texts(Source::stream(std::io::Cursor::new(one.clone().into_bytes())));
        assert!(found == *expected, "{name}: texts are changed in {format:?}");
        let second = Wiki::new().await;
        let report = second.import(&one).await.unwrap();
        assert_eq!((report.conflicts.count, report.left_out.count), (0, 0), "{name}");
        assert!(second.export(format).await.1 == one, "{name}: the second export as {format:?} differs");
    }
}

#[tokio::test]
async fn exports_of_other_programs_survive_a_round_trip() {
    let Some(folder) = data("exports") else { return };
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut found = Vec::new();
    for name in &names {
        let name = name.to_str().unwrap();
        let path = folder.join(name);
        let wiki = Wiki::new().await;
        let (report, end) = match wiki.import_from(open(&path), 2).await {
            Ok(report) => (report, String::new()),
            Err(error) => {
                assert!(matches!(error.failure, ImportFailure::Read(_)), "{name}: {error}");
                (*error.report.clone(), error.to_string())
            }
        };
        found.push((
            name,
            [
                report.pages,
                report.created,
                report.conflicts.count,
                report.left_out.count,
                report.mismatches.count,
            ],
            end,
        ));
        assert_round_trip(&wiki, &texts(open(&path)), name).await;
    }
    for ((name, counts, end), (expected_name, expected_counts, expected_end)) in found.iter().zip(FILES) {
        assert_eq!((*name, *counts), (expected_name, expected_counts), "{found:#?}");
        assert_eq!(end.is_empty(), expected_end.is_empty(), "{name}: {end}");
        assert!(end.contains(expected_end), "{name}: {end}");
    }
    assert_eq!(found.len(), FILES.len());
}

/// The part of an export before the first page, and its pages, sorted as texts.
fn pages(export: &str) -> Vec<&str> {
    let mut pages: Vec<_> = export.trim_end().trim_end_matches("</mediawiki>").split("  <page>\n").collect();
    pages[1..].sort_unstable();
    pages
}

#[tokio::test]
async fn export_of_mediawiki_is_reproduced() {
    let name = "exports/mediawiki-1.39.17-written-export-0.11-amen-riogrande.xml.xz";
    let Some(path) = data(name) else { return };
    let wiki = Wiki::new().await;
    wiki.import_from(open(&path), 2).await.unwrap();
    let (_, export) = wiki.export(Format::Xml).await;
    let mut written = String::new();
    compression::read(open(&path), &Default::default(), |input, _| input.read_to_string(&mut written))
        .unwrap()
        .unwrap();
    assert_eq!(pages(&export), pages(&written));
}

async fn assert_large(name: &str, counts: (u64, u64, u64)) {
    let Some(path) = data(name) else { return };
    let wiki = Wiki::new().await;
    let report = wiki.import_from(open(&path), 2).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.pages, report.created, report.text_bytes), counts);
    assert_round_trip(&wiki, &texts(open(&path)), name).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute unless optimised: run with --release --ignored"]
async fn whole_wiki_survives_a_round_trip() {
    assert_large("ovirt-wiki.xml.zst", (1_090, 16_251, 140_301_148)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and gigabytes: run with --release --ignored"]
async fn long_lived_documents_survive_a_round_trip() {
    assert_large("documents.xml.zst", (51, 9_744, 543_636_113)).await;
}
