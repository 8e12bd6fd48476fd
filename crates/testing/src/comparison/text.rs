//! The results as text, for a terminal.

use std::fmt::Write;

use bytesize::ByteSize;

use super::{ActionReport, Entries, Operations, Report, StrategyReport, TimelineReport};

/// Writes the results as tables.
#[must_use]
pub fn tables(report: &Report) -> String {
    let mut text = format!(
        "{} edits of {} pages, {}, replayed on {}\n\
         core: operations that the notes count; keeping: operations that keep a read value for its ttl; \
         overhead: indexes, titles, retention queue\n\
         each as the mean of reads / writes / deletes, of one property\n",
        report.edits,
        report.pages,
        bytes(report.bytes),
        report.backend,
    );
    let mut whats: Vec<&str> = Vec::new();
    for done in report.strategies.iter().flat_map(|strategy| &strategy.done) {
        if !whats.contains(&done.what) {
            whats.push(done.what);
        }
    }
    for what in whats {
        let _ = writeln!(text, "\n{what}\n{}", action_table(&report.strategies, what));
    }
    let _ = writeln!(text, "\nstored after the last edit\n{}", stored(&report.strategies));
    if !report.timelines.is_empty() {
        let _ = writeln!(text, "\nentries of an index by time\n{}", timelines(&report.timelines));
    }
    text
}

fn bytes(count: u64) -> String {
    ByteSize(count).display().si().to_string()
}

fn action_table(strategies: &[StrategyReport], what: &str) -> String {
    let mut text = format!(
        "  {:<34} {:>7}  {:<20} {:<15} {:<20} {:<20} {:>10} {:>10} {:>9} {:>9}\n",
        "", "times", "core", "notes", "keeping", "overhead", "read", "written", "median", "p99"
    );
    let mut because = String::new();
    for strategy in strategies {
        let Some(done) = strategy.done.iter().find(|done| done.what == what) else { continue };
        let _ = writeln!(
            text,
            "  {:<34} {:>7}  {:<20} {:<15} {:<20} {:<20} {:>10} {:>10} {:>6} µs {:>6} µs{}",
            strategy.name,
            done.times,
            exactly(done.core),
            done.notes.map_or_else(String::new, roughly),
            exactly(done.keeping),
            exactly(done.overhead),
            bytes(done.core.bytes_read as u64),
            bytes(done.core.bytes_written as u64),
            done.median_microseconds,
            done.p99_microseconds,
            missed(done),
        );
        if let Some(reason) = done.because {
            let _ = writeln!(because, "  {}: {reason}", strategy.name);
        }
    }
    if !because.is_empty() {
        let _ = write!(text, "  different from the notes, because\n{because}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn missed(done: &ActionReport) -> String {
    if done.missed == 0 { String::new() } else { format!("  {} not found", done.missed) }
}

fn exactly(Operations { reads, writes, deletes, .. }: Operations) -> String {
    format!("{reads:.2} / {writes:.2} / {deletes:.2}")
}

fn roughly(Operations { reads, writes, deletes, .. }: Operations) -> String {
    format!("{reads} / {writes} / {deletes}")
}

fn stored(strategies: &[StrategyReport]) -> String {
    let mut text = format!("  {:<34} {:>22} {:>22} {:>22}\n", "", "current", "expiring", "overhead");
    for StrategyReport { name, stored, .. } in strategies {
        let cell = |rows: u64, size: u64| format!("{} rows, {}", rows, bytes(size));
        let _ = writeln!(
            text,
            "  {name:<34} {:>22} {:>22} {:>22}",
            cell(stored.current_rows, stored.current_bytes),
            cell(stored.expiring_rows, stored.expiring_bytes),
            cell(stored.overhead_rows, stored.overhead_bytes),
        );
    }
    text.truncate(text.trim_end().len());
    text
}

fn timelines(timelines: &[TimelineReport]) -> String {
    let mut text = format!(
        "  {:<12} {:>11}  {:<34} {:<34} {:<34}\n",
        "", "edits a day", "all: 30 days, 10 days", "one a page a minute", "and one a domain a second"
    );
    for TimelineReport { wiki, edits_a_day, all, sampled, limited } in timelines {
        let _ = writeln!(
            text,
            "  {wiki:<12} {edits_a_day:>11}  {:<34} {:<34} {:<34}",
            entries(all),
            entries(sampled),
            entries(limited),
        );
    }
    text.truncate(text.trim_end().len());
    text
}

fn entries(Entries { of_30_days, of_10_days, bytes_of_30_days }: &Entries) -> String {
    format!("{} ({}), {}", of_30_days, bytes(*bytes_of_30_days), of_10_days)
}
