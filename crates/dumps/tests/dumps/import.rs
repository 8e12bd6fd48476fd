//! Importing into a bucket, through the whole pipeline.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read, Write as _},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::wiki::{self, Wiki, fixture};
use rashomon_clock::ManualClock;
use rashomon_dumps::{
    DecompressionLimits, Format, ImportFailure, ImportOptions, ImportReport, LeftOutReason, Problem, Source,
    SpoolSpace, import,
};
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{
    Body, Definition, NewProperty, NewRevision, PropertyName, Revision, Settings, Tid, schemas,
};
use rashomon_tables::{Call, Fault, Gate, Plan, TableStore};

fn page(title: &str, revisions: &[(i64, &str)]) -> String {
    let revisions: String = (revisions.iter())
        .map(|(id, text)| {
            format!(
                "<revision><id>{id}</id><timestamp>2011-01-01T00:00:00Z</timestamp>\
                 <text xml:space=\"preserve\">{text}</text></revision>\n"
            )
        })
        .collect();
    format!("<page><title>{title}</title>{revisions}</page>\n")
}

fn export(pages: &str) -> String {
    format!("<mediawiki>\n{pages}</mediawiki>")
}

async fn text(wiki: &Wiki, title: &str, rev: i64) -> String {
    let page = wiki.page(title);
    let render = wiki.buckets.newest_render(&page, Revision::new(rev).unwrap()).await.unwrap();
    let property = wiki.buckets.property(&page, render.tid, &PropertyName::wikitext()).await.unwrap();
    let Body::Inline(body) = property.body else { panic!("large") };
    String::from_utf8(body.plain.to_vec()).unwrap()
}

/// The number of sets of chunks in the store. On a cluster, a result page may be short without being the
/// last, since partitions of other tests are left out.
async fn chunk_sets(store: &dyn TableStore) -> usize {
    let limit = NonZeroUsize::new(100).unwrap();
    let (mut count, mut after) = (0, None);
    loop {
        let partitions = store.partitions(&schemas::CHUNKS, after, limit).await.unwrap();
        count += partitions.items.len();
        after = partitions.next;
        if after.is_none() {
            return count;
        }
    }
}

/// Large bodies are usually written to chunks before their revision is stored. The bodies of an erased revision are not
/// written.
#[tokio::test]
async fn erased_revision_stores_nothing_when_reimported() {
    let clock = Arc::new(ManualClock::new(crate::wiki::NOW));
    let store = rashomon_testing::stores::open(clock.clone()).await;
    let wiki = Wiki::on(Arc::clone(&store), clock, Settings::default()).await;
    let large = "It is long, and says where somebody lives. ".repeat(60_000);
    let input = export(&page("Main_Page", &[(1, &large), (2, "short")]));
    assert_eq!(wiki.import(&input).await.unwrap().created, 2);
    assert_eq!(chunk_sets(&*store).await, 1);
    let one = Revision::new(1).unwrap();
    rashomon_pages::operations::erase(&wiki.buckets, &wiki.page("Main_Page"), one, EraseOptions::default())
        .await
        .unwrap();
    let left = chunk_sets(&*store).await;
    let report = wiki.import(&input).await.unwrap();
    assert_eq!((report.unchanged, report.left_out.count), (1, 1));
    assert!(matches!(report.left_out.first[0].reason, LeftOutReason::Erased(_)));
    assert_eq!(chunk_sets(&*store).await, left);
}

/// Many bodies of one revision are also written to chunks while they arrive, and are read back whole.
#[tokio::test]
async fn erased_revision_with_many_bodies_stores_nothing_when_reimported() {
    let clock = Arc::new(ManualClock::new(wiki::NOW));
    let store = rashomon_testing::stores::open(clock.clone()).await;
    let wiki = Wiki::on(Arc::clone(&store), clock, Settings::default()).await;
    let (page, one) = (wiki.page("Main_Page"), Revision::new(1).unwrap());
    let mut state = 7_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut properties = Vec::new();
    let mut bodies = Vec::new();
    for number in 0..8 {
        let name = PropertyName::new(&format!("p{number}")).unwrap();
        let body: Vec<u8> = std::iter::repeat_with(&mut noise).take(900_000).collect();
        let staged = wiki.buckets.stage_bytes(&page, &name, &body).await.unwrap();
        bodies.push((name.clone(), body));
        properties.push(NewProperty {
            name,
            content_type: None,
            other_headers: BTreeMap::new(),
            body: staged,
        });
    }
    wiki.buckets.put_revision(&page, NewRevision::new(one, properties)).await.unwrap();
    let (_, input) = wiki.export(Format::JsonLines).await;

    let other = Wiki::new().await;
    assert_eq!(other.import(&input).await.unwrap().created, 1);
    for (name, body) in &bodies {
        let read = other.buckets.latest(&other.page("Main_Page"), name).await.unwrap();
        assert!(read.body.clone().whole().await.unwrap() == *body, "{name}");
    }

    rashomon_pages::operations::erase(&wiki.buckets, &page, one, EraseOptions::default()).await.unwrap();
    let left = chunk_sets(&*store).await;
    assert_eq!(wiki.import(&input).await.unwrap().left_out.count, 1);
    assert_eq!(chunk_sets(&*store).await, left);
}

#[tokio::test]
async fn import_stores_revisions_and_reports_the_others() {
    let wiki = Wiki::new().await;
    let report = wiki.import(fixture("oddities.xml")).await.unwrap();
    // One of the pages occurs twice.
    assert_eq!((report.pages, report.created, report.unchanged), (3, 11, 0));
    assert_eq!(report.revisions(), 19);
    assert_eq!(report.left_out.count, 7);
    assert_eq!(report.left_out.first.len(), 6);
    assert_eq!(report.conflicts.count, 1);
    let conflict = &report.conflicts.first[0];
    assert_eq!((conflict.title.as_str(), conflict.rev.get(), conflict.line), ("Talk:Left_out", 32, 156));
    assert_eq!(report.mismatches.count, 1);
    let mismatch = &report.mismatches.first[0];
    assert_eq!((mismatch.rev.get(), mismatch.line, mismatch.what.as_str()), (32, 149, "revision"));
    assert_eq!(report.skipped.values().sum::<u64>(), 3);
    assert!(!report.is_clean());

    // A body whose SHA-1 does not match is stored nevertheless. Of two revisions with one number, the first
    // is stored.
    assert_eq!(text(&wiki, "Talk:Left out", 32).await, "kept");
    let info = wiki.catalog.page_info(&wiki.page("Straße/Ecke <3")).await.unwrap().unwrap();
    assert_eq!((info.as_of.get(), info.page_id), (13, Some(7)));
    let (site, _) = wiki.catalog.site_info(&wiki.domain).await.unwrap().unwrap();
    assert_eq!(site.name.as_deref(), Some("A & B"));
}

#[tokio::test]
async fn imported_render_has_a_deterministic_tid() {
    let wiki = Wiki::new().await;
    wiki.import(export(&page("P", &[(5, "a"), (6, "b")]))).await.unwrap();
    let page = wiki.page("P");
    for rev in [5, 6].map(|rev| Revision::new(rev).unwrap()) {
        let detail = wiki.buckets.revision(&page, rev).await.unwrap();
        let tids: Vec<_> = detail.renders.iter().map(|render| render.tid).collect();
        assert_eq!(tids, [Tid::imported(&page, rev, detail.record.timestamp)]);
    }
}

#[tokio::test]
async fn importing_again_changes_nothing() {
    let wiki = Wiki::new().await;
    let first = wiki.import(fixture("oddities.xml")).await.unwrap();
    let before = wiki.export(Format::JsonLines).await;
    let second = wiki.import(fixture("oddities.xml")).await.unwrap();
    assert_eq!((second.created, second.unchanged), (0, first.created));
    assert_eq!(second.conflicts, first.conflicts);
    assert_eq!(wiki.export(Format::JsonLines).await, before);
}

#[tokio::test]
async fn conflicting_revision_is_named_and_not_changed() {
    let wiki = Wiki::new().await;
    wiki.import(export(&page("P", &[(5, "first"), (6, "same")]))).await.unwrap();
    let report = wiki.import(export(&page("P", &[(5, "second"), (6, "same"), (7, "new")]))).await.unwrap();
    assert_eq!((report.created, report.unchanged, report.conflicts.count), (1, 1, 1));
    assert_eq!(report.conflicts.first[0].rev.get(), 5);
    assert!(!report.is_clean());
    assert_eq!(text(&wiki, "P", 5).await, "first");
}

/// Imports many groups of one page and of several pages, in which every revision comes twice. The first one
/// is stored, whichever group is faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn first_of_two_conflicting_revisions_is_stored_by_parallel_jobs() {
    let filler = "x".repeat(60_000);
    let mut pages = String::new();
    for round in ["first", "second"] {
        for title in ["P", "Q"] {
            let texts: Vec<_> = (1..=60).map(|rev| (rev, format!("{round} {rev} {filler}"))).collect();
            let revisions: Vec<_> = texts.iter().map(|(rev, text)| (*rev, text.as_str())).collect();
            pages += &page(title, &revisions);
        }
    }
    let wiki = Wiki::new().await;
    let source = Source::stream(Cursor::new(export(&pages).into_bytes()));
    let report = wiki.import_from(source, 8).await.unwrap();
    assert_eq!((report.created, report.conflicts.count, report.conflicts.first.len()), (120, 120, 20));
    for rev in 1..=60 {
        assert!(text(&wiki, "P", rev).await.starts_with("first"), "{rev}");
    }
}

/// The chunks of the first revision must be written before it can be stored, which takes a while.
#[tokio::test]
async fn slow_first_revision_is_stored_first() {
    let gate = Gate::new();
    let wiki = Wiki::faulty(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone()))).await;
    let large = "large ".repeat(300_000);
    let input = export(&(page("P", &[(5, &large)]) + &page("P", &[(5, "small")])));
    let meanwhile = async {
        gate.reached().await;
        // If the second revision did not wait, it would be stored before these imports are done.
        for rev in 6..16 {
            wiki.import(export(&page("Q", &[(rev, "other")]))).await.unwrap();
        }
        gate.open();
    };
    let (report, ()) = tokio::join!(wiki.import(input), meanwhile);
    let report = report.unwrap();
    assert_eq!((report.created, report.conflicts.count), (1, 1));
    assert_eq!(report.text_bytes, 1_800_005);
    let detail = wiki.buckets.revision(&wiki.page("P"), Revision::new(5).unwrap()).await.unwrap();
    assert_eq!(detail.renders[0].properties[&PropertyName::wikitext()].size, 1_800_000);
}

#[tokio::test]
async fn any_order_gives_the_same_store() {
    let (a, b) = (page("A", &[(1, "one"), (2, "two"), (3, "three")]), page("B", &[(4, "four")]));
    let sorted = Wiki::new().await;
    sorted.import(export(&format!("{a}{b}"))).await.unwrap();
    let mixed = Wiki::new().await;
    let pages = [page("A", &[(3, "three")]), b, page("A", &[(1, "one"), (2, "two")])].concat();
    mixed.import(export(&pages)).await.unwrap();
    assert_eq!(mixed.export(Format::JsonLines).await, sorted.export(Format::JsonLines).await);
}

/// Revisions are sorted in a temporary file. If the file has no room, they are imported unsorted.
#[tokio::test]
async fn pages_in_parts_are_stored_and_counted_once() {
    let mut state = 7_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:x} ", state >> 16)
    };
    let texts: Vec<String> = (1..=40).map(|_| (0..8000).map(|_| word()).collect()).collect();
    let part = |rev: i64| page(["A", "B", "C"][rev as usize % 3], &[(rev, &texts[rev as usize - 1])]);
    let input = export(&(1..=40).map(part).collect::<String>());
    let sorted = Wiki::new().await;
    let report = sorted.import(input.clone()).await.unwrap();
    assert_eq!((report.pages, report.created, report.unchanged), (3, 40, 0));
    for (bytes, title, rev) in [(0, "B", 40), (1 << 30, "A", 39)] {
        let wiki = Wiki::new().await;
        let spool = Arc::new(SpoolSpace::new(bytes, bytes));
        let decompression = DecompressionLimits { spool, ..DecompressionLimits::default() };
        let options = ImportOptions { decompression, ..ImportOptions::default() };
        let source = Source::stream(Cursor::new(input.clone().into_bytes()));
        let imported = import(&wiki.buckets, &wiki.catalog, &wiki.domain, source, &options, |_| {});
        let report = imported.await.unwrap();
        assert_eq!((report.pages, report.created, report.unchanged), (3, 40, 0));
        assert_eq!(text(&wiki, title, rev).await, texts[rev as usize - 1]);
        assert_eq!(wiki.export(Format::JsonLines).await, sorted.export(Format::JsonLines).await);
    }
    // The same revision twice is stored once.
    let twice = Wiki::new().await;
    let (a, b) = (page("A", &[(1, "one")]), page("B", &[(2, "two")]));
    let report = twice.import(export(&[&*a, &b, &a, &b, &b].concat())).await.unwrap();
    assert_eq!((report.pages, report.created, report.unchanged), (2, 2, 3));
}

#[tokio::test]
async fn truncated_import_keeps_complete_revisions_and_names_the_position() {
    let whole = export(&page("P", &[(5, "a"), (6, "b"), (7, "ccc")]));
    let cut = &whole[..whole.find("ccc").unwrap() + 1];
    let wiki = Wiki::new().await;
    let error = wiki.import(cut).await.unwrap_err();
    assert_eq!(error.report.created, 2);
    let ImportFailure::Read(read) = &error.failure else { panic!("{error}") };
    assert!(matches!(read.problem, Problem::CutShort(_)));
    assert_eq!(read.position.page.as_deref(), Some("P"));
    assert_eq!(read.position.revision.as_deref(), Some("7"));
    assert_eq!(read.position.offset, cut.len() as u64);
    assert_eq!(read.position.compressed, None);
    assert_eq!(text(&wiki, "P", 6).await, "b");
    // The import continues where it was stopped.
    let report = wiki.import(whole).await.unwrap();
    assert_eq!((report.created, report.unchanged), (1, 2));
}

#[tokio::test]
async fn truncated_page_is_counted() {
    let whole = export(&(page("P", &[(5, "a")]) + &page("Q", &[(6, "b"), (7, "ccc")])));
    for (end, pages, created) in [("ccc", 2, 2), ("<title>Q", 1, 1), ("</mediawiki>", 2, 3)] {
        let cut = &whole[..whole.find(end).unwrap()];
        let error = Wiki::new().await.import(cut).await.unwrap_err();
        assert_eq!((error.report.pages, error.report.created), (pages, created), "cut at {end}");
    }
}

#[tokio::test]
async fn conflicting_revision_reports_nothing_but_the_conflict() {
    let wiki = Wiki::new().await;
    wiki.import(export(&page("P", &[(5, "first")]))).await.unwrap();
    let other = export(&page("P", &[(5, "second"), (6, "third")]));
    let sha1 = "</text><sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>";
    let report = wiki.import(other.replace("</text>", sha1)).await.unwrap();
    assert_eq!((report.conflicts.count, report.mismatches.count), (1, 1));
    assert_eq!(report.mismatches.first[0].rev.get(), 6);
}

#[tokio::test]
async fn text_with_another_sha1_is_stored_unchanged() {
    let input = export(&page("P", &[(5, "a")]));
    let sha1 = "</text><sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>";
    let report = Wiki::new().await.import(input.replace("</text>", sha1)).await.unwrap();
    assert_eq!((report.created, report.mismatches.count, report.is_clean()), (1, 1, true));
}

/// The clock of the wiki is at 8:00, and its `skew` is five minutes.
#[tokio::test]
async fn revision_in_the_future_is_left_out() {
    let wiki = Wiki::new().await;
    let at = |time: &str| export(&page("P", &[(5, "a")])).replace("2011-01-01T00:00:00Z", time);
    let report = wiki.import(at("2027-01-15T08:05:00.000001Z")).await.unwrap();
    assert_eq!((report.created, report.left_out.count, report.is_clean()), (0, 1, false));
    let report = wiki.import(at("2027-01-15T08:05:00Z")).await.unwrap();
    assert_eq!((report.created, report.left_out.count), (1, 0));
}

#[tokio::test]
async fn truncated_compressed_input_is_an_error_with_its_position() {
    let text: String = (0..20_000).map(|number| format!("{number:x} ")).collect();
    let whole = export(&page("P", &[(5, "a"), (6, &text)]));
    let mut compressed = zstd::bulk::compress(whole.as_bytes(), 1).unwrap();
    compressed.truncate(compressed.len() / 2);
    let wiki = Wiki::new().await;
    let error = wiki.import(&compressed).await.unwrap_err();
    let ImportFailure::Read(read) = &error.failure else { panic!("{error}") };
    assert!(matches!(read.problem, Problem::CutShort(_)), "{error}");
    assert_eq!(read.position.compressed, Some(compressed.len() as u64));
}

#[tokio::test]
async fn an_archive_that_cannot_be_opened_is_an_error() {
    let wiki = Wiki::new().await;
    let error = wiki.import(b"7z\xbc\xaf\x27\x1c and nothing that belongs there").await.unwrap_err();
    assert!(error.to_string().starts_with("at the beginning of the input: "), "{error}");
    assert_eq!(error.report.revisions(), 0);
}

#[tokio::test]
async fn the_input_may_be_asynchronous() {
    let input = Cursor::new(export(&page("P", &[(5, "a")])).into_bytes());
    // A server runs imports in a task of their own.
    let task = tokio::spawn(async move {
        let wiki = Wiki::new().await;
        wiki.import_from(Source::async_stream(input), 1).await
    });
    let report = task.await.unwrap().unwrap();
    assert!(report.is_clean());
    assert_eq!(report.created, 1);
}

#[tokio::test]
async fn progress_rises_to_the_totals_of_the_report() {
    let input = export(&(page("P", &[(5, "a"), (6, "bb")]) + &page("Q", &[(7, "c")]))).into_bytes();
    let size = input.len() as u64;
    let wiki = Wiki::new().await;
    let source = Source::stream(Cursor::new(input)).with_size(Some(size));
    let mut seen = Vec::new();
    let options = ImportOptions::default();
    let report = import(&wiki.buckets, &wiki.catalog, &wiki.domain, source, &options, |at| seen.push(*at));
    let report = report.await.unwrap();
    assert!(seen.is_sorted_by_key(|at| (at.revisions, at.text_bytes, at.pages)));
    let last = seen.last().unwrap();
    assert_eq!((last.revisions, last.pages, last.text_bytes), (report.revisions(), 2, 4));
    assert_eq!((last.read, last.size), (size, Some(size)));
}

#[tokio::test]
async fn revision_with_a_too_large_text_is_left_out_and_others_are_stored() {
    let mut settings = Settings::default();
    let mut definition = settings.definitions.get(&PropertyName::wikitext()).clone();
    definition.max_size = 1000;
    settings.definitions.define(PropertyName::wikitext(), definition);
    let wiki = Wiki::with(settings).await;
    let large = "a".repeat(1001);
    let input = export(&page("P", &[(5, &large[..1000]), (6, &large), (7, "b")]));
    let report = wiki.import(input).await.unwrap();
    assert_eq!((report.pages, report.created, report.left_out.count), (1, 2, 1));
    let left_out = &report.left_out.first[0];
    assert_eq!((left_out.title.as_deref(), left_out.rev.map(Revision::get)), (Some("P"), Some(6)));
    assert!(
        left_out.reason.to_string().contains("wikitext has 1001 bytes, and at most 1000"),
        "{left_out:?}"
    );
    assert_eq!(text(&wiki, "P", 7).await, "b");
}

#[tokio::test]
async fn revision_with_a_too_large_render_is_left_out_as_a_whole() {
    let whole = Wiki::new().await;
    let tid = Tid::imported(&whole.page("P"), Revision::new(5).unwrap(), crate::wiki::NOW);
    let lines = format!(
        "{{\"kind\":\"siteinfo\",\"version\":1}}\n{{\"kind\":\"page\",\"title\":\"P\"}}\n\
         {{\"kind\":\"revision\",\"rev\":5,\"timestamp\":\"2011-01-01T00:00:00Z\",\"properties\":{{}}}}\n\
         {{\"kind\":\"render\",\"tid\":\"{tid}\",\"properties\":{{\"html\":{{\"text\":\"abc\"}}}}}}\n\
         {{\"kind\":\"end\",\"pages\":1,\"revisions\":1,\"renders\":1}}\n"
    );
    let mut settings = Settings::default();
    let html = PropertyName::new("html").unwrap();
    let definition = Definition { max_size: 2, ..settings.definitions.get(&html).clone() };
    settings.definitions.define(html, definition);
    let report = Wiki::with(settings).await.import(&lines).await.unwrap();
    assert_eq!((report.created, report.left_out.count), (0, 1), "{report:?}");
    assert!(report.left_out.first[0].reason.to_string().contains("html"), "{report:?}");
    assert_eq!(whole.import(&lines).await.unwrap().created, 1);
}

/// The renders come in three parts of two. The first part is stored before the second part is read.
#[tokio::test]
async fn too_large_render_in_a_later_part_leaves_out_the_remaining_renders() {
    const LARGE: usize = 3 << 20;
    let html = PropertyName::new("html").unwrap();
    let rev = Revision::new(5).unwrap();
    for (too_large, kept) in [(0, None), (1, None), (2, Some(2)), (3, Some(3))] {
        let tids: Vec<_> = (0..6).map(|number| Tid::new(wiki::NOW, number)).collect();
        let mut lines = "{\"kind\":\"siteinfo\",\"version\":1}\n{\"kind\":\"page\",\"title\":\"P\"}\n\
                         {\"kind\":\"revision\",\"rev\":5,\"timestamp\":\"2011-01-01T00:00:00Z\"}\n"
            .to_owned();
        for (number, tid) in tids.iter().enumerate() {
            let body = "x".repeat(LARGE + usize::from(number == too_large));
            lines += &format!(
                "{{\"kind\":\"render\",\"tid\":\"{tid}\",\"properties\":{{\"html\":{{\"text\":\"{body}\"}}}}}}\n"
            );
        }
        lines += "{\"kind\":\"end\",\"pages\":1,\"revisions\":1,\"renders\":6}\n";
        let mut settings = Settings::default();
        let definition = Definition { max_size: LARGE as u64, ..settings.definitions.get(&html).clone() };
        settings.definitions.define(html.clone(), definition);
        let wiki = Wiki::with(settings).await;
        let report = wiki.import(&lines).await.unwrap();
        assert_eq!((report.created, report.left_out.count), (u64::from(kept.is_some()), 1), "{report:?}");
        let reason = report.left_out.first[0].reason.to_string();
        let tid = tids[too_large];
        let says = match kept {
            Some(_) => format!("only the renders from {tid} on are left out"),
            None => format!("render {tid}: "),
        };
        assert!(reason.starts_with(&says), "{reason}");
        let stored = wiki.buckets.revision(&wiki.page("P"), rev).await.ok();
        assert_eq!(stored.map(|revision| revision.renders.len()), kept, "{report:?}");
    }
}

#[tokio::test]
async fn dropped_import_ends_with_its_input() {
    let wiki = Wiki::new().await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let options = ImportOptions::default();
    let import = import(&wiki.buckets, &wiki.catalog, &wiki.domain, Source::stream(reader), &options, |_| {});
    // The bytes do not fit into the pipe, so the import is reading when all of them are written.
    let writing = tokio::task::spawn_blocking(move || {
        writer.write_all(&[&b"<mediawiki>"[..], &[b' '; 1 << 20]].concat()).map(|()| writer)
    });
    let writer = tokio::select! {
        written = writing => written.unwrap().unwrap(),
        ended = import => panic!("the import ended before its input: {ended:?}"),
    };
    // The runtime waits for the thread of the parser. So the test ends only if the thread ends with its input.
    drop(writer);
}

#[tokio::test]
async fn import_that_failed_in_the_store_can_be_repeated() {
    let pages: String = (1..50).map(|rev| page(&format!("P{rev}"), &[(rev, "text")])).collect();
    let wiki = Wiki::faulty(Plan::empty().on(Call::Write, 20, Fault::Before)).await;
    let error = wiki.import(export(&pages)).await.unwrap_err();
    assert!(matches!(error.failure, ImportFailure::Store { .. } | ImportFailure::Catalog(_)), "{error}");
    assert!(error.report.created < 49);
    // Revisions reported as created are stored, and the rest can be imported later.
    let report = wiki.import(export(&pages)).await.unwrap();
    assert_eq!(report.created + report.unchanged, 49);
    assert!(report.unchanged >= error.report.created);
}

/// An endless sequence of pages with texts of four megabytes. It counts the bytes that were read.
struct EndlessPages {
    page: Cursor<Vec<u8>>,
    number: i64,
    given: Arc<AtomicU64>,
}

impl Read for EndlessPages {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.page.position() == self.page.get_ref().len() as u64 {
            self.number += 1;
            let text = "x".repeat(4 << 20);
            self.page = Cursor::new(page(&format!("P{}", self.number), &[(self.number, &text)]).into_bytes());
        }
        let count = self.page.read(buffer)?;
        self.given.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_store_bounds_the_bytes_read() {
    let gate = Gate::new();
    let plan =
        (1..1000).fold(Plan::empty(), |plan, call| plan.on(Call::Write, call, Fault::Pause(gate.clone())));
    let wiki = Wiki::faulty(plan).await;
    let given = Arc::new(AtomicU64::new(0));
    let pages = EndlessPages { page: Cursor::new(b"<mediawiki>".to_vec()), number: 0, given: given.clone() };
    let import = tokio::spawn(async move { wiki.import_from(Source::stream(pages), 4).await });
    gate.reached().await;
    // Waits until nothing has been read for a while.
    let (mut before, mut unchanged) = (0, 0);
    while unchanged < 10 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = given.load(Ordering::SeqCst);
        assert!(now < 48 << 20, "{now} bytes have been read, and nothing has been stored");
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
    }
    import.abort();
}

#[test]
fn reports_of_several_inputs_add_up() {
    let mut sum = ImportReport { pages: 1, created: 2, ..ImportReport::default() };
    let mut other = ImportReport { pages: 1, unchanged: 3, text_bytes: 7, ..ImportReport::default() };
    for number in 0..30 {
        other.left_out.add(rashomon_dumps::LeftOut {
            line: number,
            title: None,
            rev: None,
            revisions: 1,
            reason: LeftOutReason::NoNumber,
        });
        *other.skipped.entry(format!("element{number}")).or_default() += 1;
    }
    sum.add(other);
    assert_eq!((sum.pages, sum.revisions(), sum.text_bytes), (2, 35, 7));
    assert_eq!((sum.left_out.count, sum.left_out.first.len()), (30, 20));
    assert_eq!(sum.skipped.values().sum::<u64>(), 30);
}
