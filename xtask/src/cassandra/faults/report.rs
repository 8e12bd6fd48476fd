//! Prints the report of all faults, after the last one, and decides whether the run passes.

use std::{collections::BTreeMap, path::Path};

use super::{
    journal::{FAILURE_WINDOW, Journal, ReadOutcome, Run, Share},
    judge::Findings,
};

/// The maximum number of different reasons of failures that are shown.
const MAX_REASONS: usize = 6;

/// The maximum number of failed requests that are shown for a fault. Failures right after an event do not count.
const MAX_SHORTFALLS: usize = 6;

/// The results of one injection of a fault.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) run: Run,
    pub(super) findings: Findings,
}

impl Row {
    /// Whether the run passes: no promise of the [module](super) is broken (availability counts only in the last run),
    /// no write was refused, and after a fault that must leave unknown outcomes, a repeated write is stored once.
    fn is_fine(&self) -> bool {
        let Run { fault, journal, is_last } = &self.run;
        let [_, _, refused] = journal.outcomes();
        self.findings.are_none()
            && (self.findings.once > 0 || !fault.leaves_unknown())
            && refused == 0
            && self.wrong().is_empty()
            && (journal.is_available() || !is_last)
    }

    fn wrong(&self) -> Vec<&str> {
        let wrong = self.run.journal.reads.iter().filter_map(|read| match &read.outcome {
            ReadOutcome::Wrong(what) => Some(&**what),
            _ => None,
        });
        wrong.collect()
    }

    fn print(&self) {
        let Self { run: Run { fault, journal, .. }, findings } = self;
        let name = fault.name();
        let [acknowledged, unknown, refused] = journal.outcomes();
        println!(
            "{name:<6} {acknowledged:>6} {unknown:>7} {refused:>7}  {:<20} {:>6} {:>5}  {:<20} {:>5} {:>4} {:>4} {:>5}",
            journal.write_success().to_string(),
            journal.reads.len(),
            self.wrong().len(),
            journal.read_success().to_string(),
            findings.once,
            findings.lost.len(),
            findings.partial.len(),
            findings.doubled.len(),
        );
    }

    /// Prints each cause for which the run does not pass, and the first reasons of failures.
    fn print_details(&self) {
        let Run { fault, journal, is_last } = &self.run;
        let (name, [_, _, refused]) = (fault.name(), journal.outcomes());
        let seconds = FAILURE_WINDOW.as_secs();
        let broken = self.findings.to_string();
        for line in broken.lines().chain(self.wrong()) {
            println!("{name}: VIOLATION: {line}");
        }
        if refused > 0 {
            println!("{name}: VIOLATION: {refused} writes were refused");
        }
        if fault.leaves_unknown() && self.findings.once == 0 {
            println!(
                "{name}: VIOLATION: no write with an unknown outcome was repeated, acknowledged and stored once"
            );
        }
        if *is_last && !journal.is_available() {
            println!(
                "{name}: VIOLATION: too few writes or reads succeeded ({seconds} s after each event excepted)"
            );
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, why) in journal.failures() {
            *reasons.entry(why).or_default() += 1;
        }
        for (why, count) in reasons.iter().take(MAX_REASONS) {
            println!("{name}: {count} requests (reads and writes) failed: {why}");
        }
        for (sent, what) in journal.shortfalls().into_iter().take(MAX_SHORTFALLS) {
            println!(
                "{name}: failure that no event excuses, {:.3} s after the start: {what} (requests may fail for \
                 {seconds} s after an event)",
                sent.as_secs_f64()
            );
        }
    }
}

/// Whether the run passes with every fault, and enough requests of all faults together succeeded.
pub(super) fn are_fine(rows: &[Row]) -> bool {
    rows.iter().all(Row::is_fine) && shortfalls_of_all(rows).is_empty()
}

/// Says for writes and for reads if too few of them succeeded with all faults together.
fn shortfalls_of_all(rows: &[Row]) -> Vec<String> {
    let of_all = |share: fn(&Journal) -> Share| -> Share {
        rows.iter().filter(|row| row.run.is_last).map(|row| share(&row.run.journal)).sum()
    };
    let shares = [("writes", of_all(Journal::write_success)), ("reads", of_all(Journal::read_success))];
    let too_few = shares.into_iter().filter(|(_, share)| !share.is_enough());
    too_few.map(|(kind, share)| format!("too few {kind} succeeded: {share}")).collect()
}

/// Prints the table with its legend, the details of each fault and of all faults together, and the folder of the
/// journals.
pub(super) fn print(rows: &[Row], folder: &Path) {
    println!(
        "\n       ------------------ writes ------------------ ------------- reads -------------- - stored at the end -"
    );
    println!(
        "fault   acked unknown refused  ok                      all wrong  ok                    once lost part twice"
    );
    rows.iter().for_each(Row::print);
    println!(
        "ok: successes among the requests that were not in flight in the {} s after an event; wrong: reads with wrong \
         content; once: writes with an unknown outcome that were repeated and acknowledged, and are stored once; part: \
         stored in part, or with other bytes; twice: stored as two renders, or acknowledged under two tids",
        FAILURE_WINDOW.as_secs()
    );
    rows.iter().for_each(Row::print_details);
    for line in shortfalls_of_all(rows) {
        println!("all faults together: VIOLATION: {line}");
    }
    println!("The journals are in {}.", folder.display());
}

#[cfg(test)]
mod tests;
