//! A small history, in which every number is known beforehand.

use std::{fmt::Write as _, io::Write as _, sync::Arc};

use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::Memory;

use super::{CONTESTANTS, Contestant, Done, History, StrategyReport, replay, timelines};

/// Edits of each page, so far apart that all is due before the next comes.
const EDITS: u64 = 12;

/// An export of two pages, each edited about every week.
fn export() -> tempfile::NamedTempFile {
    let mut pages = String::new();
    for page in ["Morning", "Night"] {
        let _ = write!(pages, "<page><title>{page}</title><ns>0</ns><id>1</id>");
        for rev in 1..=EDITS {
            let (month, day) = (1 + 6 * rev / 28, 1 + 6 * rev % 28);
            let _ = write!(
                pages,
                "<revision><id>{rev}</id><timestamp>2020-{month:02}-{day:02}T00:00:00Z</timestamp><contributor>\
                 <username>Ann</username></contributor><model>wikitext</model><format>text/x-wiki</format>\
                 <text xml:space=\"preserve\">{page} {rev}</text></revision>",
            );
        }
        pages += "</page>";
    }
    let mut file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    let head = "xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\"";
    write!(file, "<mediawiki {head}>{pages}</mediawiki>").unwrap();
    file
}

async fn replayed(history: &History, contestant: Contestant) -> StrategyReport {
    let clock = Arc::new(ManualClock::new(history.begins()));
    let memory = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    replay(contestant, history, clock, memory, &mut |_| {}).await.unwrap()
}

fn of<'a>(report: &'a StrategyReport, what: &str) -> &'a Done {
    report.done.iter().find(|done| done.what == what).unwrap()
}

/// Reads, writes and deletes.
fn core(done: &Done) -> (f64, f64, f64) {
    (done.core.reads, done.core.writes, done.core.deletes)
}

#[tokio::test]
async fn what_the_notes_count_is_what_is_counted() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    assert_eq!((history.pages(), history.edits()), (2, 2 * EDITS));
    for contestant in CONTESTANTS {
        let report = replayed(&history, contestant).await;
        let update = of(&report, "write a later revision");
        assert_eq!(update.times, 2 * (EDITS - 1), "{}", report.name);
        for done in report.done.iter().filter(|done| done.because.is_none()) {
            let Some(notes) = done.notes.filter(|_| done.times > 0) else { continue };
            let exactly = (notes.reads, notes.writes, notes.deletes);
            assert_eq!(core(done), exactly, "{}: {}", report.name, done.what);
        }
        let (reads, writes, deletes) = core(update);
        match report.name {
            // The sweep comes before any write could delete.
            "app-ttl" => assert_eq!((writes, deletes), (2.0, 0.0)),
            // The first update of each page finds nothing due.
            "app-ttl, every write culls" => {
                let others = (EDITS - 2) as f64 / (EDITS - 1) as f64;
                assert_eq!((reads, writes, deletes), (1.0, 2.0, others));
            }
            "two-table" => assert_eq!((reads, writes, deletes), (1.0, 3.0, 1.0)),
            name if name.ends_with("A, copy-on-update") => {
                assert_eq!((reads, writes, deletes), (1.0, 5.0, 0.0));
            }
            name if name.ends_with("B, copy-on-update") => {
                assert_eq!((reads, writes, deletes), (1.0, 5.0, 1.0));
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn current_and_recent_take_one_read_in_app_ttl_and_historical_one_more() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    let report = replayed(&history, CONTESTANTS[0]).await;
    for (what, reads) in [
        ("read current", 1.0),
        ("read recent", 1.0),
        ("read recent, about to go", 1.0),
        ("read historical", 2.0),
    ] {
        let done = of(&report, what);
        assert!(done.times > 0 && done.missed == 0, "{what}");
        assert_eq!(core(done), (reads, 0.0, 0.0), "{what}");
    }
    // Each page has its latest, and one that it superseded last waits for its time.
    assert_eq!(report.stored.current_rows, 2 + 2);
}

#[tokio::test]
async fn a_timeline_has_the_entries_of_its_days() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    let simulated = timelines::timeline(&history, "mkwikimedia", 100.0);
    let near = |count: u64, expected: f64| (count as f64 / expected - 1.0).abs() < 0.2;
    assert!(near(simulated.all.of_30_days, 3000.0), "{simulated:?}");
    assert!(near(simulated.all.of_10_days, 1000.0), "{simulated:?}");
    // Nobody edits a page twice in a minute here.
    assert_eq!(simulated.sampled.of_30_days, simulated.all.of_30_days);
    assert!(simulated.limited.of_30_days <= simulated.sampled.of_30_days);
}
