//! Simulates the number of entries in a timeline for wikis of several sizes. The notes do not give these numbers.
//!
//! A wiki with many edits a day is simulated by copies of the imported wiki. Each copy begins at another time of the
//! history. So the edits of a page come in bursts, as in reality. All copies together are one domain.

use std::time::Duration;

use rashomon_pages::{BucketName, DomainName, Page, Retention, Sampling, Title};
use serde::Serialize;

use super::History;

/// The wikis in the notes, and their edits per day.
const WIKIS: [(&str, f64); 4] =
    [("mkwikimedia", 1.3), ("cebwiki", 29_578.0), ("commonswiki", 151_434.0), ("enwiki", 186_497.0)];

const DAY: i64 = 24 * 3600 * 1_000_000;

/// The longer of the two times for which the notes keep the entries of an index, in days.
const DAYS: i64 = 30;

/// The shorter of the two times, in days.
const FEW_DAYS: i64 = 10;

/// A limit of entries per domain and second that a large wiki reaches. No wiki reaches the default of 50.
const LOW_RATE: u32 = 1;

/// The bytes of an entry without the names of its page: its time and its revision.
const ENTRY_BYTES: u64 = 16;

/// The timeline of one wiki.
#[derive(Debug, Serialize)]
pub struct TimelineReport {
    /// The name of the wiki.
    pub wiki: &'static str,
    /// The edits of the wiki in a day.
    pub edits_a_day: f64,
    /// An entry for each edit.
    pub all: Entries,
    /// At most one entry per page and minute, and 50 per domain and second: the defaults.
    pub sampled: Entries,
    /// At most one entry per page and minute, and one per domain and second.
    pub limited: Entries,
}

/// The number of entries that are kept at one time.
#[derive(Debug, Default, Serialize)]
pub struct Entries {
    /// Entries, if each is kept for 30 days.
    pub of_30_days: u64,
    /// Entries, if each is kept for 10 days.
    pub of_10_days: u64,
    /// The bytes of the entries of 30 days.
    pub bytes_of_30_days: u64,
}

/// An edit of one of the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// Microseconds since the beginning of the simulated month.
    at: i64,
    copy: u32,
    page: u32,
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number from 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Simulates the timeline of each wiki of the notes for a month, with the code that samples entries in a
/// server. `progress` is called with the name of each wiki.
pub fn timelines(history: &History, progress: &mut dyn FnMut(&str)) -> Vec<TimelineReport> {
    WIKIS
        .iter()
        .map(|(wiki, edits_a_day)| {
            progress(wiki);
            timeline(history, wiki, *edits_a_day)
        })
        .collect()
}

pub(crate) fn timeline(history: &History, wiki: &'static str, edits_a_day: f64) -> TimelineReport {
    let events = events(history, edits_a_day);
    let domain = DomainName::new(wiki).expect("a domain");
    let default = Retention::default();
    let low = Retention { domain_rate: LOW_RATE.try_into().expect("not zero"), ..Retention::default() };
    let (sampling, limiting) = (Sampling::new(&default), Sampling::new(&low));
    let mut report = TimelineReport {
        wiki,
        edits_a_day,
        all: Entries::default(),
        sampled: Entries::default(),
        limited: Entries::default(),
    };
    for event in events {
        let title = &history.pages[event.page as usize].title;
        let bytes = ENTRY_BYTES + (domain.as_str().len() + "page".len() + title.as_str().len()) as u64;
        let now = Duration::from_micros(u64::try_from(event.at).unwrap_or(0));
        // Each copy has pages of its own.
        let title = Title::new(&format!("{}/{title}", event.copy)).unwrap_or_else(|_| title.clone());
        let page = Page { domain: domain.clone(), bucket: BucketName::page(), title };
        report.all.add(event, bytes);
        if sampling.try_count_entry(&page, now) {
            report.sampled.add(event, bytes);
        }
        if limiting.try_count_entry(&page, now) {
            report.limited.add(event, bytes);
        }
    }
    report
}

impl Entries {
    fn add(&mut self, event: Event, bytes: u64) {
        self.of_30_days += 1;
        self.bytes_of_30_days += bytes;
        self.of_10_days += u64::from(event.at >= (DAYS - FEW_DAYS) * DAY);
    }
}

/// Returns the edits of a month, in order of time. The number of edits per day determines the number of copies.
fn events(history: &History, edits_a_day: f64) -> Vec<Event> {
    let edits = &history.edits;
    let (Some(first), Some(last)) = (edits.first(), edits.last()) else { return Vec::new() };
    let length = last.at.as_micros() - first.at.as_micros();
    // Between the end of a copy and its restart, there is the mean time between two edits.
    let span = (length + length / edits.len() as i64).max(DAY);
    let copies = edits_a_day / (edits.len() as f64 / span as f64 * DAY as f64);
    // The number of copies is rounded up, so only this share of the pages of each copy is used.
    let share = copies / copies.ceil();
    let mut dice = Dice(1);
    let mut events = Vec::with_capacity((edits_a_day * DAYS as f64 * 1.1) as usize);
    for copy in 0..copies.ceil() as u32 {
        let begins = (dice.share() * span as f64) as i64;
        let seed = dice.next();
        let from = edits.partition_point(|edit| edit.at.as_micros() - first.at.as_micros() < begins);
        // After its last edit, the copy restarts with its first edit.
        let around = edits[from..].iter().chain(edits.iter()).take(edits.len());
        for edit in around {
            let mut at = edit.at.as_micros() - first.at.as_micros() - begins;
            if at < 0 {
                at += span;
            }
            if at >= DAYS * DAY {
                break;
            }
            if Dice(seed ^ edit.page as u64).share() < share {
                events.push(Event { at, copy, page: edit.page as u32 });
            }
        }
    }
    events.sort_unstable();
    events
}
