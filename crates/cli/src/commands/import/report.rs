//! Describes the outcome of an import, in the same words for local imports and imports by a server.

use std::{collections::BTreeMap, time::Duration};

use rashomon_buckets::{RowReason, SealReport};
use rashomon_dumps::{Conflict, CountedItems, ImportReport, LeftOut, Mismatch};
use serde::Deserialize;

use crate::output::{self, counted, thousands};

/// The outcome of an import. It is also read from the last line of a server's answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Outcome {
    pages: u64,
    created: u64,
    unchanged: u64,
    conflicts: u64,
    left_out: u64,
    mismatches: u64,
    #[serde(default)]
    skipped: BTreeMap<String, u64>,
    #[serde(default)]
    first_conflicts: Vec<Exception>,
    #[serde(default)]
    first_left_out: Vec<Exception>,
    #[serde(default)]
    first_mismatches: Vec<Exception>,
    /// The revisions that were sealed in blocks. An import by a server seals nothing.
    #[serde(skip)]
    sealed: Option<SealReport>,
    /// The revisions that are stored as rows although the others were sealed, by the reason.
    #[serde(skip)]
    as_rows: BTreeMap<RowReason, u64>,
}

/// A revision that is reported: in conflict, left out, or with another sha1 than the file declares.
#[derive(Debug, Deserialize)]
struct Exception {
    title: Option<String>,
    rev: Option<i64>,
    line: u64,
    detail: String,
}

impl From<ImportReport> for Outcome {
    fn from(report: ImportReport) -> Self {
        Self {
            pages: report.pages,
            created: report.created,
            unchanged: report.unchanged,
            conflicts: report.conflicts.count,
            left_out: report.left_out.count,
            mismatches: report.mismatches.count,
            skipped: report.skipped,
            first_conflicts: exceptions(report.conflicts, |Conflict { title, rev, line, difference }| {
                Exception { title: Some(title.to_string()), rev: Some(rev.get()), line, detail: difference }
            }),
            first_left_out: exceptions(report.left_out, |LeftOut { line, title, rev, reason, .. }| {
                Exception {
                    title,
                    rev: rev.map(rashomon_buckets::Revision::get),
                    line,
                    detail: reason.to_string(),
                }
            }),
            first_mismatches: exceptions(
                report.mismatches,
                |Mismatch { title, rev, line, what, declared, actual }| Exception {
                    title: Some(title.to_string()),
                    rev: Some(rev.get()),
                    line,
                    detail: format!("the sha1 of {what} is {actual}, not {declared}"),
                },
            ),
            sealed: report.sealed,
            as_rows: report.as_rows,
        }
    }
}

fn exceptions<T>(items: CountedItems<T>, describe: impl Fn(T) -> Exception) -> Vec<Exception> {
    items.first.into_iter().map(describe).collect()
}

impl Outcome {
    /// Whether every revision is stored as it is in the files. A revision with another sha1 in the file
    /// counts as stored.
    pub(super) const fn is_clean(&self) -> bool {
        self.conflicts == 0 && self.left_out == 0
    }

    /// Adds the counts of another file, as far as the summary shows them.
    pub(super) fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.created += other.created;
        self.unchanged += other.unchanged;
        self.conflicts += other.conflicts;
        self.left_out += other.left_out;
        self.mismatches += other.mismatches;
        for (reason, count) in &other.as_rows {
            *self.as_rows.entry(*reason).or_default() += count;
        }
        self.sealed = self.sealed.into_iter().chain(other.sealed).reduce(|one, other| one + other);
    }

    /// Prints the first exceptions of each kind on standard error, and the number of the others.
    pub(super) fn print_exceptions(&self, file: &str) {
        print_items(
            file,
            self.conflicts,
            &self.first_conflicts,
            "is stored with different content; the stored revision stays",
        );
        print_items(file, self.left_out, &self.first_left_out, "was left out");
        print_items(
            file,
            self.mismatches,
            &self.first_mismatches,
            "is stored as it is in the file, but its sha1 differs from that in the file",
        );
        for (name, count) in &self.skipped {
            output::to_stderr(format_args!("{file}: {} <{name}> not imported", counted(*count, "element")));
        }
    }

    /// The counts, in one line.
    pub(super) fn summary(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let revisions = self.created + self.unchanged + self.conflicts + self.left_out;
        let sealed = self.sealed.map_or_else(String::new, |sealed| {
            let (raw, stored) = (sealed.raw_bytes, sealed.stored_bytes);
            let (revisions, blocks) =
                (counted(sealed.revisions, "revision"), counted(sealed.blocks, "block"));
            format!("; {revisions} in {blocks}, {} in {}", output::bytes(raw), output::share(raw, stored))
        });
        format!(
            "{} of {} in {seconds:.1} s ({}/s): {} stored, {} stored before, {} in conflict, {} left out; \
             {} with another sha1{sealed}{}",
            counted(revisions, "revision"),
            counted(self.pages, "page"),
            thousands((revisions as f64 / seconds) as u64),
            thousands(self.created),
            thousands(self.unchanged),
            thousands(self.conflicts),
            thousands(self.left_out),
            counted(self.mismatches, "text"),
            self.describe_rows(),
        )
    }

    /// Describes how many revisions an import into blocks stored as rows, and why.
    fn describe_rows(&self) -> String {
        let total: u64 = self.as_rows.values().sum();
        if total == 0 {
            return String::new();
        }
        let of_reason = |(reason, count): (&RowReason, &u64)| {
            format!("{} {}", thousands(*count), describe_reason(*reason))
        };
        let reasons: Vec<_> = self.as_rows.iter().map(of_reason).collect();
        format!("; {} as rows: {}", counted(total, "revision"), reasons.join(", "))
    }
}

/// Describes which revisions became rows for this reason, as the end of a sentence.
fn describe_reason(reason: RowReason) -> &'static str {
    match reason {
        RowReason::StoredPage => "of pages that had revisions before",
        RowReason::Repeated => "of pages with a revision that the input has twice",
        RowReason::TooLarge => "of pages with a revision that is too large for a block",
        RowReason::Latest => "latest of their pages",
        _ => "of pages with too many revisions",
    }
}

fn print_items(file: &str, count: u64, first: &[Exception], what: &str) {
    for Exception { title, rev, line, detail } in first {
        let rev = rev.map_or_else(String::new, |rev| format!(" {rev}"));
        let title = title.as_ref().map_or_else(String::new, |title| format!(" of {title}"));
        output::to_stderr(format_args!("{file}, line {line}: revision{rev}{title} {what}: {detail}"));
    }
    let rest = count.saturating_sub(first.len() as u64);
    if rest > 0 {
        output::to_stderr(format_args!("{file}: and {} more: revision ... {what}", thousands(rest)));
    }
}
