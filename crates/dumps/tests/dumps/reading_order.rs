//! Exports read pages in another order than that of their titles.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use async_trait::async_trait;
use rashomon_clock::ManualClock;
use rashomon_dumps::{Event, Format};
use rashomon_pages::{ArchiveSettings, Settings, schemas};
use rashomon_tables::{DamagedRow, Decorator, OnDamage, Page, Result, Scan, Schema, TableStore, Value};

use crate::wiki::{NOW, Wiki, events};

/// Text that hardly compresses.
fn noise(seed: u64, count: usize) -> String {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:x} ", state >> 8)
    });
    words.take(count).collect()
}

fn page(title: &str, revisions: &[(i64, String)]) -> String {
    let mut xml = format!("<page><title>{title}</title><ns>0</ns><id>{}</id>", revisions[0].0);
    for (rev, text) in revisions {
        let _ = write!(
            xml,
            "<revision><id>{rev}</id><timestamp>2020-01-01T00:00:00Z</timestamp><contributor><username>Ann</username>\
             </contributor><text>{text}</text></revision>"
        );
    }
    xml + "</page>"
}

type Texts = BTreeMap<(String, i64), Vec<u8>>;

/// The texts of an export by title and number, and the titles in its order.
fn texts(export: &str) -> (Texts, Vec<String>) {
    let (events, end) = events(export);
    end.unwrap();
    let (mut texts, mut titles) = (Texts::new(), Vec::<String>::new());
    for event in events {
        let Event::Revision(title, revision) = event else { continue };
        if titles.last().is_none_or(|last| *last != title.to_string()) {
            titles.push(title.to_string());
        }
        texts.insert((title.to_string(), revision.record.rev.get()), revision.properties[0].body.to_vec());
    }
    (texts, titles)
}

/// The pages are more than fit into the first windows, and are in blocks in another order than their titles. One of
/// them has more output than is kept in memory, one has more revisions than are read at once, and the output of others
/// waits compressed.
#[tokio::test]
async fn pages_are_in_the_order_of_their_titles() {
    const PAGES: i64 = 400;
    let archive = Some(ArchiveSettings::default());
    let wiki = Wiki::with(Settings { archive, ..Settings::default() }).await;
    let (mut xml, mut expected) = (String::new(), Texts::new());
    for place in 0..PAGES {
        let number = place * 163 % PAGES;
        let title = format!("P{number:03}");
        let (count, words) = match number {
            77 => (3, 40_000),
            78 => (150, 10),
            _ if number % 5 == 0 => (3, 500),
            _ => (3, 10),
        };
        let unchanged = if words == 500 { noise(number as u64, words) } else { String::new() };
        let text = |rev| unchanged.clone() + &noise(rev as u64, words.min(40));
        let text = |rev| if words > 500 { noise(rev as u64, words) } else { text(rev) };
        let revisions: Vec<_> =
            (1..=count).map(|rev| number * 1_000 + rev).map(|rev| (rev, text(rev))).collect();
        xml.push_str(&page(&title, &revisions));
        expected
            .extend(revisions.into_iter().map(|(rev, text)| ((title.clone(), rev), text.trim_end().into())));
    }
    wiki.import(xml).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        let (report, export) = wiki.export(format).await;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((report.pages, report.revisions), (PAGES as u64, expected.len() as u64));
        assert_eq!(report.bytes, export.len() as u64);
        let (texts, titles) = texts(&export);
        let trimmed = |text: Vec<u8>| String::from_utf8(text).unwrap().trim_end().to_owned().into_bytes();
        let texts: Texts = texts.into_iter().map(|(key, text)| (key, trimmed(text))).collect();
        assert!(texts == expected, "{format:?}");
        assert_eq!(titles, (0..PAGES).map(|number| format!("P{number:03}")).collect::<Vec<_>>());
    }
}

/// A store in which one body is damaged.
#[derive(Debug)]
struct Damaged(Arc<dyn TableStore>);

#[async_trait]
impl Decorator for Damaged {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.0
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<rashomon_tables::Row>> {
        let is_reported = scan.on_damage == OnDamage::Report;
        let mut page = self.below().scan(table, scan).await?;
        if table.name() == schemas::REVISION_CONTENT.name() && is_reported {
            let is_damaged = |row: &mut rashomon_tables::Row| row.key.clustering.contains(&Value::Int(3));
            for row in page.items.extract_if(.., is_damaged) {
                page.damaged.push(DamagedRow { key: row.key, reason: "a flipped bit".to_owned() });
            }
        }
        Ok(page)
    }
}

/// The damage is found when the page is read ahead, and not found again when it is read in its turn.
#[tokio::test]
async fn damage_of_a_page_that_is_too_large_to_be_read_ahead_is_reported() {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = Arc::new(Damaged(rashomon_testing::stores::open(clock.clone()).await));
    let wiki = Wiki::on(Arc::clone(&store) as _, Arc::clone(&clock), Settings::default()).await;
    let large: Vec<_> = (1..=60).map(|rev| (rev, noise(rev as u64, 6_000))).collect();
    let small = [(101, "short".to_owned())];
    wiki.import(page("Large", &large) + &page("Small", &small)).await.unwrap();
    for format in [Format::Xml, Format::JsonLines] {
        // Each process reports damage once.
        let wiki = Wiki::on(Arc::clone(&store) as _, Arc::clone(&clock), Settings::default()).await;
        let (report, export) = wiki.export(format).await;
        assert_eq!((report.pages, report.revisions, report.unreadable.count), (2, 60, 1), "{report:?}");
        assert_eq!(report.unreadable.first[0].title.as_str(), "Large");
        assert_eq!(texts(&export).1, ["Large", "Small"]);
    }
}
