//! Describes the outcome of an import, in the same words for local imports and imports by a server.

use std::{collections::BTreeMap, time::Duration};

use rashomon_dumps::{Conflict, CountedItems, ImportReport, LeftOut, Mismatch};
use rashomon_pages::{RowReason, SealReport, Shown, visible};
use serde::{Deserialize, Serialize};

use crate::{
    errors::CommandError,
    output::{self, counted, thousands},
};

/// The command that packs what an import has left in rows.
const PACK: &str = "`rashomon archive seal --after 0s --idle 0s`";

/// The outcome of an import. It is also read from the last line of a server's answer, and written by `--json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pages: u64,
    created: u64,
    unchanged: u64,
    conflicts: u64,
    left_out: u64,
    mismatches: u64,
    #[serde(default)]
    misplaced: u64,
    #[serde(default)]
    broken: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    skipped: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_conflicts: Vec<Exception>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_left_out: Vec<Exception>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_mismatches: Vec<Exception>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_misplaced: Vec<Exception>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_broken: Vec<Exception>,
    /// Changes of the metadata of the wiki, and peculiarities of the input.
    #[serde(default)]
    notices: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_notices: Vec<String>,
    /// The revisions that were sealed in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<SealReport>,
    /// The revisions that are stored as rows although the others were sealed, by the reason.
    #[serde(skip)]
    as_rows: BTreeMap<RowReason, u64>,
    /// The same number, from a server.
    #[serde(default)]
    in_rows: u64,
}

/// The maximum number of exceptions of each kind that the total of several files lists.
const MAX_LISTED: usize = 100;

/// A revision that is reported (in conflict, left out, or with another sha1 than the file declares), an element or a
/// page.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Exception {
    /// The file of the command line, in the total of several files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
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
            misplaced: report.misplaced.count,
            broken: report.broken.count,
            skipped: report.skipped,
            notices: report.notices.count + report.site_changes.count,
            first_notices: (report.site_changes.first.iter().map(ToString::to_string))
                .chain(report.notices.first)
                .collect(),
            first_misplaced: exceptions(report.misplaced, |misplaced| Exception {
                detail: misplaced.to_string(),
                ..Exception::new(misplaced.title, None, misplaced.line)
            }),
            first_broken: exceptions(report.broken, |broken| Exception {
                detail: broken.to_string(),
                ..Exception::new(broken.title, None, broken.line)
            }),
            first_conflicts: exceptions(report.conflicts, |Conflict { title, rev, line, difference }| {
                Exception {
                    detail: difference,
                    ..Exception::new(Some(title.to_string()), Some(rev.get()), line)
                }
            }),
            first_left_out: exceptions(report.left_out, |LeftOut { line, title, rev, reason, .. }| {
                Exception {
                    detail: reason.to_string(),
                    ..Exception::new(title, rev.map(rashomon_pages::Revision::get), line)
                }
            }),
            first_mismatches: exceptions(
                report.mismatches,
                |Mismatch { title, rev, line, what, declared, actual }| Exception {
                    detail: format!("the sha1 of {what} is {actual}, not {declared}"),
                    ..Exception::new(Some(title.to_string()), Some(rev.get()), line)
                },
            ),
            sealed: report.sealed,
            as_rows: report.as_rows,
            in_rows: 0,
        }
    }
}

fn exceptions<T>(items: CountedItems<T>, describe: impl Fn(T) -> Exception) -> Vec<Exception> {
    items.first.into_iter().map(describe).collect()
}

impl Exception {
    const fn new(title: Option<String>, rev: Option<i64>, line: u64) -> Self {
        Self { file: None, title, rev, line, detail: String::new() }
    }
}

/// The outcome of all files, for programs.
#[derive(Serialize)]
struct TotalJson<'a> {
    #[serde(flatten)]
    total: &'a Outcome,
    /// The error that ended the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Outcome {
    /// Whether every revision is stored as it is in the files. A revision with another sha1 in the file
    /// counts as stored.
    pub(super) const fn is_clean(&self) -> bool {
        self.conflicts == 0 && self.left_out == 0 && self.misplaced == 0 && self.broken == 0
    }

    /// Whether nothing of the input was an export: there is nothing to count.
    const fn is_empty(&self) -> bool {
        self.pages == 0 && self.created == 0 && self.unchanged == 0 && self.is_clean()
    }

    /// Writes the counts of all files to standard output, as a line or as JSON. `error` has ended the import. If the
    /// error is all that happened, there is no line. Exports without pages are correct, but may not be what was meant,
    /// so standard error says that there are none.
    pub(super) fn print_total(
        &self,
        as_json: bool,
        elapsed: Duration,
        error: Option<&str>,
    ) -> Result<(), CommandError> {
        if error.is_none() && self.is_empty() {
            output::to_stderr("there are no pages in the input");
        }
        match (as_json, error) {
            (true, error) => output::json(&TotalJson { total: self, error }),
            (false, Some(_)) if self.is_empty() => Ok(()),
            (false, _) => output::line(self.summary(elapsed)),
        }
    }

    /// Adds the outcome of the file with this name.
    pub(super) fn add(&mut self, other: &Self, file: &str) {
        self.pages += other.pages;
        self.created += other.created;
        self.unchanged += other.unchanged;
        self.conflicts += other.conflicts;
        self.left_out += other.left_out;
        self.mismatches += other.mismatches;
        self.misplaced += other.misplaced;
        self.broken += other.broken;
        self.notices += other.notices;
        for (name, count) in &other.skipped {
            *self.skipped.entry(name.clone()).or_default() += count;
        }
        for (total, added) in [
            (&mut self.first_conflicts, &other.first_conflicts),
            (&mut self.first_left_out, &other.first_left_out),
            (&mut self.first_mismatches, &other.first_mismatches),
            (&mut self.first_misplaced, &other.first_misplaced),
            (&mut self.first_broken, &other.first_broken),
        ] {
            let room = MAX_LISTED.saturating_sub(total.len());
            let added = added.iter().take(room).cloned();
            total.extend(added.map(|item| Exception { file: Some(file.to_owned()), ..item }));
        }
        let room = MAX_LISTED.saturating_sub(self.first_notices.len());
        self.first_notices.extend(other.first_notices.iter().take(room).cloned());
        self.in_rows += other.in_rows;
        for (reason, count) in &other.as_rows {
            *self.as_rows.entry(*reason).or_default() += count;
        }
        self.sealed = self.sealed.into_iter().chain(other.sealed).reduce(|one, other| one + other);
    }

    /// Prints the first exceptions of each kind on standard error, and the number of the others.
    pub(super) fn print_exceptions(&self, file: &str) {
        for notice in &self.first_notices {
            output::to_stderr(format_args!("{file}: {}", visible(notice, Shown::InLine)));
        }
        if let more @ 1.. = self.notices.saturating_sub(self.first_notices.len() as u64) {
            output::to_stderr(format_args!("{file}: and {} more notices", thousands(more)));
        }
        print_elements(file, self.broken, &self.first_broken, "page");
        print_elements(file, self.misplaced, &self.first_misplaced, "");
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
            let name = visible(name, Shown::InLine);
            let what = match name.strip_prefix("header ") {
                Some(header) => format!("{} {header}", counted(*count, "header")),
                None => format!("{} <{name}>", counted(*count, "element")),
            };
            output::to_stderr(format_args!("{file}: {what} not imported"));
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
             {} with another sha1{}{sealed}{}",
            counted(revisions, "revision"),
            counted(self.pages, "page"),
            thousands((revisions as f64 / seconds) as u64),
            thousands(self.created),
            thousands(self.unchanged),
            thousands(self.conflicts),
            thousands(self.left_out),
            counted(self.mismatches, "text"),
            self.describe_skipped(),
            self.describe_rows(),
        )
    }

    /// Describes how many pages were broken and how many elements were misplaced, if any.
    fn describe_skipped(&self) -> String {
        let of = |count: u64, one: &str| match count {
            0 => String::new(),
            count => format!("; {} skipped", counted(count, one)),
        };
        of(self.broken, "broken page") + &of(self.misplaced, "misplaced element")
    }

    /// Describes how many revisions are in rows although others were packed into blocks, why, and which command packs
    /// them.
    fn describe_rows(&self) -> String {
        if self.in_rows > 0 {
            return format!(
                "; {} in rows: the server packs them later, and {PACK} packs them when it is stopped",
                counted(self.in_rows, "revision")
            );
        }
        let total: u64 = self.as_rows.values().sum();
        if total == 0 {
            return String::new();
        }
        let of_reason = |(reason, count): (&RowReason, &u64)| {
            format!("{} {}", thousands(*count), describe_reason(*reason))
        };
        let reasons: Vec<_> = self.as_rows.iter().map(of_reason).collect();
        format!("; {} as rows: {}; {PACK} packs them", counted(total, "revision"), reasons.join(", "))
    }
}

/// Describes which revisions became rows for this reason, as the end of a sentence.
fn describe_reason(reason: RowReason) -> &'static str {
    match reason {
        RowReason::StoredPage => "of pages that had revisions before",
        RowReason::Repeated => "of pages with a revision that the input has twice",
        RowReason::TooLarge => "of pages with a revision that is too large for a block",
        RowReason::Latest => "latest of their pages",
        RowReason::NotSealed => "that could not be packed at once",
        _ => "of pages with too many revisions",
    }
}

fn print_items(file: &str, count: u64, first: &[Exception], what: &str) {
    for Exception { title, rev, line, detail, .. } in first {
        let rev = rev.map_or_else(String::new, |rev| format!(" {rev}"));
        let title =
            title.as_ref().map_or_else(String::new, |title| format!(" of {}", visible(title, Shown::InLine)));
        let detail = visible(detail, Shown::InLine);
        output::to_stderr(format_args!("{file}, line {line}: revision{rev}{title} {what}: {detail}"));
    }
    let rest = count.saturating_sub(first.len() as u64);
    if rest > 0 {
        output::to_stderr(format_args!("{file}: and {} more: revision ... {what}", thousands(rest)));
    }
}

/// Prints pages, or elements of pages.
fn print_elements(file: &str, count: u64, first: &[Exception], kind: &str) {
    for Exception { title, line, detail, .. } in first {
        let title = title.as_ref().map(|title| visible(title, Shown::InLine));
        let (title, detail) = (title.as_deref(), visible(detail, Shown::InLine));
        let place = match (kind, title) {
            ("", Some(title)) => format!("page {title}: "),
            ("", None) => String::new(),
            (kind, Some(title)) => format!("{kind} {title} is "),
            (kind, None) => format!("{kind} without a title is "),
        };
        output::to_stderr(format_args!("{file}, line {line}: {place}{detail}"));
    }
    let rest = count.saturating_sub(first.len() as u64);
    if rest > 0 {
        let what = if kind.is_empty() { "misplaced elements" } else { "broken pages" };
        output::to_stderr(format_args!("{file}: and {} more {what}", thousands(rest)));
    }
}
