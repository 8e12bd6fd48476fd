//! Tests with a small history, for which every number is known.

use std::{fmt::Write as _, io::Write as _, sync::Arc};

use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::Memory;

use super::{ActionReport, CONTESTANTS, Contestant, History, StrategyReport, replay, timelines};

/// The number of edits of each page. The edits are so far apart that all superseded values are eligible
/// before the next edit.
const EDITS: u64 = 12;

/// Reads, writes and deletes.
type Core = (f64, f64, f64);

const fn reads(reads: f64) -> Option<Core> {
    Some((reads, 0.0, 0.0))
}

/// The actions, in the order of [`COUNTED`].
const ACTIONS: [&str; 5] = [
    "write a later revision",
    "read current",
    "read recent",
    "read recent, grace nearly over",
    "read historical",
];

/// The core operations of each action, for each of [`CONTESTANTS`]. `None` if the value is gone.
/// docs/comparison.md has the same numbers, unless they depend on how often a page is edited.
const COUNTED: [[Option<Core>; ACTIONS.len()]; CONTESTANTS.len()] = {
    const ONE: Option<Core> = reads(1.0);
    const TWO: Option<Core> = reads(2.0);
    // The first update of each page finds nothing to cull.
    const CULLED: f64 = (EDITS - 2) as f64 / (EDITS - 1) as f64;
    [
        // When a write looks for eligible values, the sweep has culled them already. So the write deletes
        // nothing.
        [Some((0.1, 2.0, 0.0)), ONE, ONE, ONE, TWO],
        [Some((1.0, 2.0, CULLED)), ONE, ONE, ONE, ONE],
        [Some((1.0, 3.0, 1.0)), ONE, TWO, TWO, TWO],
        [Some((1.0, 5.0, 0.0)), ONE, ONE, ONE, ONE],
        // A value is copied only when it is written. In this history, the copy expires (after `grace` and `slack`
        // together) before the next edit, so superseded values cannot be read.
        [Some((1.0, 3.0, 0.0)), ONE, None, None, None],
        [Some((1.0, 3.0, 0.0)), Some((4.0, 2.0, 0.0)), ONE, Some((3.0, 2.0, 0.0)), ONE],
        [Some((1.0, 5.0, 1.0)), ONE, ONE, ONE, ONE],
        [Some((0.0, 3.0, 1.0)), ONE, None, None, None],
        [Some((0.0, 1.0, 1.0)), Some((4.0, 2.0, 0.0)), ONE, Some((3.0, 2.0, 0.0)), ONE],
    ]
};

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
    replay(contestant, history, clock, memory).await.unwrap()
}

fn action<'a>(report: &'a StrategyReport, what: &str) -> &'a ActionReport {
    report.done.iter().find(|done| done.what == what).unwrap()
}

fn core(done: &ActionReport) -> Core {
    (done.core.reads, done.core.writes, done.core.deletes)
}

#[tokio::test]
async fn each_action_takes_the_expected_operations() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    assert_eq!((history.pages(), history.edits()), (2, 2 * EDITS));
    for (contestant, counted) in CONTESTANTS.into_iter().zip(COUNTED) {
        let report = replayed(&history, contestant).await;
        assert_eq!(action(&report, ACTIONS[0]).times, 2 * (EDITS - 1), "{}", report.name);
        for (what, counted) in ACTIONS.into_iter().zip(counted) {
            let done = action(&report, what);
            let all = done.times + done.missed;
            let mut found = (done.times > 0).then(|| core(done));
            if what == ACTIONS[0] && contestant.delete_probability < 1.0 {
                // With so few writes, the share of writes that look for values to delete is not exactly a
                // tenth.
                let looks = done.core.reads * done.times as f64;
                assert!((0.9..7.1).contains(&looks), "{}: {looks}", report.name);
                found = found.map(|(_, writes, deletes)| (contestant.delete_probability, writes, deletes));
            }
            assert_eq!(found, counted, "{}: {what}", report.name);
            assert!(all > 0 && (done.times == 0 || done.missed == 0), "{}: {what}", report.name);
            // A reason exists exactly if the measurement differs from the notes.
            let notes = done.notes.map(|notes| (notes.reads, notes.writes, notes.deletes));
            let differs = found.is_some() && found != notes;
            assert_eq!(done.because.is_some(), differs, "{}: {what}: {:?}", report.name, done.because);
        }
    }
}

#[tokio::test]
async fn app_ttl_reads_historical_values_with_one_more_read() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    let report = replayed(&history, CONTESTANTS[0]).await;
    for (what, reads) in [
        ("read current", 1.0),
        ("read recent", 1.0),
        ("read recent, grace nearly over", 1.0),
        ("read historical", 2.0),
    ] {
        let done = action(&report, what);
        assert!(done.times > 0 && done.missed == 0, "{what}");
        assert_eq!(core(done), (reads, 0.0, 0.0), "{what}");
    }
    // Each page has its latest, and one superseded revision whose grace is not over.
    assert_eq!(report.stored.current_rows, 2 + 2);
}

#[tokio::test]
async fn simulated_timeline_has_an_entry_for_each_edit() {
    let file = export();
    let history = History::read(file.path(), None).await.unwrap();
    let simulated = timelines::timeline(&history, "mkwikimedia", 100.0);
    let near = |count: u64, expected: f64| (count as f64 / expected - 1.0).abs() < 0.2;
    assert!(near(simulated.all.of_30_days, 3000.0), "{simulated:?}");
    assert!(near(simulated.all.of_10_days, 1000.0), "{simulated:?}");
    // No page is edited twice within a minute here.
    assert_eq!(simulated.sampled.of_30_days, simulated.all.of_30_days);
    assert!(simulated.limited.of_30_days <= simulated.sampled.of_30_days);
}
