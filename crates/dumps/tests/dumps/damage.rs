//! Exports of damaged archives: readable content is exported unchanged, and the rest is reported.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{collections::BTreeMap, fmt::Write as _, num::NonZeroUsize, sync::Arc, time::Duration};

use crate::wiki::{NOW, Wiki, events};
use bytes::Bytes;
use rashomon_clock::ManualClock;
use rashomon_dumps::{Event, ExportOptions, ExportReport, Format};
use rashomon_pages::{
    ArchiveSettings, BucketName, NewProperty, NewRender, PropertyName, RenderBase, Revision, SealOptions,
    Settings, Title, schemas,
};
use rashomon_tables::{Batch, Row, Scan, Schema, TableStore, Value};

/// The store of a wiki whose history is in one block.
struct SealedWiki {
    store: Arc<dyn TableStore>,
    clock: Arc<ManualClock>,
    block: Row,
}

fn settings() -> Settings {
    Settings { archive: Some(ArchiveSettings::default()), ..Settings::default() }
}

/// Returns a wiki of a sealed page with 40 revisions, each with html, and of two smaller sealed pages.
async fn sealed() -> SealedWiki {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = rashomon_testing::stores::open(clock.clone()).await;
    let wiki = Wiki::on(Arc::clone(&store), Arc::clone(&clock), settings()).await;
    let mut xml = String::new();
    for (title, revisions) in [("A", 1..=40), ("B", 101..=103), ("C", 201..=206)] {
        let _ = write!(xml, "<page><title>{title}</title><ns>0</ns><id>{}</id>", revisions.start());
        for rev in revisions {
            let text: String =
                (1..=rev).map(|line| format!("Line {line} of {title}, {}\n", line * line)).collect();
            let _ = write!(
                xml,
                "<revision><id>{rev}</id><timestamp>2020-01-01T00:00:{:02}Z</timestamp><contributor><username>Ann\
                 </username></contributor><comment>comment {rev}</comment><text>{text}</text></revision>",
                rev % 60
            );
        }
        xml.push_str("</page>");
    }
    wiki.import(xml).await.unwrap();
    let (page, name) = (wiki.page("A"), PropertyName::new("html").unwrap());
    for rev in 1..=40 {
        let html = format!("<p>{}</p>", "as html ".repeat(rev as usize));
        let body = wiki.buckets.stage_bytes(&page, &name, html.as_bytes()).await.unwrap();
        let property =
            NewProperty { name: name.clone(), content_type: None, other_headers: BTreeMap::new(), body };
        let base = RenderBase::Revision(Revision::new(rev).unwrap());
        let new = NewRender { base, timestamp: None, if_latest: None, properties: vec![property] };
        wiki.buckets.put_render(&page, new).await.unwrap();
    }
    clock.advance(Duration::from_secs(3 * 24 * 3600));
    let sealed = wiki
        .buckets
        .maintenance()
        .seal(&wiki.domain, &BucketName::page(), SealOptions::default(), &mut |_| {})
        .await;
    assert_eq!(sealed.unwrap().revisions, 46);
    let block = the_row(&*store, &schemas::ARCHIVE_BLOCKS).await;
    SealedWiki { store, clock, block }
}

/// Returns the only row of a table. In a keyspace that others use too, a result page of partitions may be empty
/// without being the last.
async fn the_row(store: &dyn TableStore, table: &'static Schema) -> Row {
    let (one, mut after) = (NonZeroUsize::MIN, None);
    loop {
        let partitions = store.partitions(table, after, one).await.unwrap();
        if let Some(partition) = partitions.items.into_iter().next() {
            let rows = store.scan(table, Scan::new(partition, one)).await.unwrap();
            return rows.items.into_iter().next().expect("a row");
        }
        after = Some(partitions.next.expect("a row"));
    }
}

impl SealedWiki {
    fn bytes(&self) -> Vec<u8> {
        let Some(Value::Blob(bytes)) = &self.block.values[1] else { panic!("a block") };
        bytes.to_vec()
    }

    /// Replaces the block by other bytes, or deletes it, with a later write time.
    async fn replace(&self, bytes: Option<Vec<u8>>) {
        let key = &self.block.key;
        let stored = self.store.get(&schemas::ARCHIVE_BLOCKS, key).await.unwrap();
        let at = stored.map_or(self.block.written_at, |row| row.written_at);
        let at = at.saturating_add(Duration::from_micros(1));
        let mut batch = Batch::new(key.partition.clone());
        match bytes {
            Some(bytes) => {
                let values = vec![self.block.values[0].clone(), Some(Value::Blob(Bytes::from(bytes)))];
                batch.put(&schemas::ARCHIVE_BLOCKS, key.clustering.clone(), values, at);
            }
            None => batch.delete(&schemas::ARCHIVE_BLOCKS, key.clustering.clone(), at),
        }
        self.store.write(Vec::new(), batch).await.unwrap();
    }

    /// Exports, and skips damage.
    async fn export(&self, format: Format) -> (ExportReport, String) {
        let wiki = Wiki::on(Arc::clone(&self.store), Arc::clone(&self.clock), settings()).await;
        wiki.buckets.maintenance().skip_damage();
        wiki.export(format).await
    }
}

/// All bodies of an export, by page, revision, render and name.
fn bodies(export: &str) -> BTreeMap<(String, i64, String, String), Vec<u8>> {
    let (events, end) = events(export);
    end.unwrap();
    let mut bodies = BTreeMap::new();
    for event in events {
        let Event::Revision(title, revision) = event else { continue };
        let rev = revision.record.rev.get();
        let mut add = |render: String, properties: &[rashomon_dumps::SourceProperty]| {
            for property in properties {
                let key = (title.to_string(), rev, render.clone(), property.name.to_string());
                bodies.insert(key, property.body.to_vec());
            }
        };
        add(String::new(), &revision.properties);
        for render in &revision.renders {
            add(render.tid.to_string(), &render.properties);
        }
    }
    bodies
}

#[tokio::test]
async fn readable_revisions_are_exported_and_lost_ones_are_reported() {
    let sealed = sealed().await;
    let mut whole = BTreeMap::new();
    for format in [Format::Xml, Format::JsonLines] {
        let (report, export) = sealed.export(format).await;
        assert!(report.is_clean() && report.revisions == 49, "{report:?}");
        whole.insert(format == Format::Xml, bodies(&export));
    }
    let bytes = sealed.bytes();
    let (mut in_part, mut as_a_whole) = (0, 0);
    for place in (0..bytes.len()).step_by(41) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        sealed.replace(Some(damaged)).await;
        for format in [Format::Xml, Format::JsonLines] {
            let (report, export) = sealed.export(format).await;
            let (found, whole) = (bodies(&export), &whole[&(format == Format::Xml)]);
            assert!(found.iter().all(|(key, body)| whole.get(key) == Some(body)), "at {place}, {format:?}");
            // The report names every missing revision.
            let named = |title: &str, rev: i64| {
                report.unreadable.first.iter().any(|lost| {
                    let (first, last) = lost.revisions;
                    lost.title.as_str() == title && (first.get()..=last.get()).contains(&rev)
                })
            };
            let missing = whole.keys().filter(|key| !found.contains_key(key));
            for (title, rev, ..) in missing {
                assert!(named(title, *rev), "at {place}, {format:?}: {rev} of {title}: {report:#?}");
            }
            assert!(report.left_out.is_empty(), "at {place}, {format:?}: {report:#?}");
            assert_eq!(report.is_clean(), report.unreadable.is_empty());
            let of_parts = report.unreadable.first.iter().any(|lost| lost.revisions.0 == lost.revisions.1);
            in_part += u32::from(of_parts && found.len() < whole.len());
            as_a_whole += u32::from(report.unreadable.first.iter().any(|lost| lost.count == 39));
            // The latest of each page is in the tables.
            for latest in [40, 103, 206] {
                assert!(found.keys().any(|(_, rev, ..)| *rev == latest), "at {place}, {format:?}");
            }
            // The exported revisions are consistent with their own metadata.
            let other = Wiki::new().await;
            let again = other.import(&export).await.unwrap();
            assert_eq!(
                (again.created, again.mismatches.count),
                (report.revisions, 0),
                "at {place}: {again:?}"
            );
        }
    }
    assert!(in_part > 10 && as_a_whole > 10, "{in_part} {as_a_whole}");
}

#[tokio::test]
async fn missing_block_is_reported_for_each_page() {
    let sealed = sealed().await;
    sealed.replace(None).await;
    let (report, export) = sealed.export(Format::JsonLines).await;
    let lost: Vec<_> = (report.unreadable.first.iter())
        .map(|lost| (lost.title.as_str(), lost.revisions.0.get(), lost.revisions.1.get(), lost.count))
        .collect();
    assert_eq!(lost, [("A", 1, 39, 39), ("B", 101, 102, 2), ("C", 201, 205, 5)]);
    assert!(report.unreadable.first.iter().all(|lost| lost.why.contains("is incomplete: restore it from")));
    assert_eq!((report.revisions, report.unreadable.count), (3, 46));
    assert_eq!(bodies(&export).keys().map(|(_, rev, ..)| *rev).collect::<Vec<_>>(), [40, 40, 103, 206]);
    // Without `skip_damage`, the reads of exports and statistics fail.
    let wiki = Wiki::on(Arc::clone(&sealed.store), Arc::clone(&sealed.clock), settings()).await;
    let page = wiki.page("A");
    assert!(wiki.buckets.history(&page, None, 100).await.is_err());
    let stats = rashomon_pages::operations::stats(&wiki.buckets, &wiki.domain, &mut |_| {}).await;
    assert!(stats.is_err(), "{stats:?}");
    wiki.buckets.maintenance().skip_damage();
    let stats =
        rashomon_pages::operations::stats(&wiki.buckets, &wiki.domain, &mut |_| {}).await.unwrap().page;
    let archive = stats.archive.unwrap();
    assert_eq!((stats.revisions, archive.blocks, archive.damaged_blocks), (3, 1, 1), "{archive:?}");
}

#[tokio::test]
async fn chosen_page_with_a_damaged_latest_revision_is_not_missing() {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = rashomon_testing::stores::open(clock.clone()).await;
    let wiki = Wiki::on(Arc::clone(&store), clock, Settings::default()).await;
    let revision = "<revision><id>5</id><timestamp>2011-01-01T00:00:00Z</timestamp><text>x</text></revision>";
    wiki.import(format!("<page><title>A</title>{revision}</page>")).await.unwrap();
    // The render of the revision stays.
    let row = the_row(&*store, &schemas::REVISIONS).await;
    let mut batch = Batch::new(row.key.partition);
    batch.delete(&schemas::REVISIONS, row.key.clustering, row.written_at);
    store.write(Vec::new(), batch).await.unwrap();

    let titles = ["A", "nowhere"].map(|title| Title::new(title).unwrap());
    for format in [Format::Xml, Format::JsonLines] {
        let options = ExportOptions {
            bucket: BucketName::page(),
            titles: Some(titles.to_vec()),
            history: false,
            format,
        };
        let (report, _) = wiki.export_with(options).await;
        assert_eq!((report.pages, report.damaged.count), (0, 1), "{format:?}: {report:?}");
        assert!(
            report.damaged.first[0].starts_with("the latest revision of A is left out: "),
            "{format:?}: {report:?}"
        );
        assert_eq!(report.missing, titles[1..], "{format:?}");
    }
}
