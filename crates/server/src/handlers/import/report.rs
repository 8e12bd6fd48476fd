//! The JSON lines in the answer to an import.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_dumps::{
    ImportError, ImportFailure, ImportProgress, ImportReport, InputPosition, LeftOutReason, ReadError,
};
use rashomon_pages::{Revision, SealReport, shorten};
use serde::Serialize;

use crate::{
    json,
    problem::{MAX_DETAIL_BYTES, Problem},
};

/// The detail about a revision that conflicts with stored content, for a client that may not read.
const CONCEALED: &str = "it does not fit what is stored; the right 'read' shows why";

/// Serialises a document as a line.
pub(super) fn to_line(document: &impl Serialize) -> Bytes {
    (json::to_shown_json(document) + "\n").into()
}

/// A line about the progress.
#[derive(Serialize)]
pub(super) struct ProgressJson {
    status: &'static str,
    pages: u64,
    revisions: u64,
    text_bytes: u64,
    read_bytes: u64,
}

impl ProgressJson {
    pub(super) const fn of(progress: &ImportProgress) -> Self {
        let ImportProgress { pages, revisions, text_bytes, read, .. } = *progress;
        Self { status: "progress", pages, revisions, text_bytes, read_bytes: read }
    }
}

/// The last line: `done` or `failed`, the counts, the first exceptions, and the error.
#[derive(Serialize)]
pub(super) struct ReportJson<'a> {
    status: &'static str,
    pages: u64,
    revisions: u64,
    created: u64,
    unchanged: u64,
    conflicts: u64,
    left_out: u64,
    mismatches: u64,
    #[serde(skip_serializing_if = "is_zero")]
    misplaced: u64,
    #[serde(skip_serializing_if = "is_zero")]
    broken: u64,
    #[serde(skip_serializing_if = "is_zero")]
    notices: u64,
    text_bytes: u64,
    /// The revisions that were moved into the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<SealReport>,
    /// The revisions that stay in rows, if others were moved into the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_rows: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    skipped: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_conflicts: Vec<ExceptionJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_left_out: Vec<ExceptionJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_mismatches: Vec<ExceptionJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_misplaced: Vec<ExceptionJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_broken: Vec<ExceptionJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_notices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<PositionJson<'a>>,
}

/// A revision that conflicts with the stored one, was left out, or does not match its declared sha1.
#[derive(Serialize)]
struct ExceptionJson<'a> {
    title: Option<&'a str>,
    rev: Option<i64>,
    line: u64,
    detail: String,
}

/// The position in the input at which reading failed.
#[derive(Serialize)]
struct PositionJson<'a> {
    page: Option<&'a str>,
    revision: Option<&'a str>,
    /// The line in which the page begins, if the page has not ended before the position.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_line: Option<u64>,
    line: u64,
    offset: u64,
    compressed_offset: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl<'a> ReportJson<'a> {
    /// Makes the line for a report. For a client that may not read, the line does not show how many revisions were
    /// already stored unchanged, nor how stored revisions differ.
    pub(super) fn of(report: &'a ImportReport, error: Option<&'a ImportError>, may_read: bool) -> Self {
        let (created, unchanged) = match may_read {
            true => (report.created, report.unchanged),
            false => (report.created + report.unchanged, 0),
        };
        let place = match error.map(|error| &error.failure) {
            Some(ImportFailure::Read(ReadError { position, .. })) => Some(PositionJson::of(position)),
            _ => None,
        };
        Self {
            status: if error.is_some() { "failed" } else { "done" },
            pages: report.pages,
            revisions: report.revisions(),
            created,
            unchanged,
            conflicts: report.conflicts.count,
            left_out: report.left_out.count,
            mismatches: report.mismatches.count,
            misplaced: report.misplaced.count,
            broken: report.broken.count,
            notices: report.notices.count + if may_read { report.site_changes.count } else { 0 },
            text_bytes: report.text_bytes,
            // Only revisions that were not stored before are sealed.
            sealed: report.sealed.filter(|_| may_read),
            in_rows: report.sealed.filter(|_| may_read).map(|_| report.as_rows.values().sum()),
            skipped: &report.skipped,
            first_conflicts: (report.conflicts.first.iter())
                .map(|conflict| ExceptionJson {
                    title: Some(conflict.title.as_str()),
                    rev: Some(conflict.rev.get()),
                    line: conflict.line,
                    detail: if may_read { conflict.difference.clone() } else { CONCEALED.to_owned() },
                })
                .collect(),
            first_left_out: (report.left_out.first.iter())
                .map(|left_out| ExceptionJson {
                    title: left_out.title.as_deref(),
                    rev: left_out.rev.map(Revision::get),
                    line: left_out.line,
                    detail: match left_out.reason {
                        LeftOutReason::Erased(_) if !may_read => CONCEALED.to_owned(),
                        ref reason => reason.to_string(),
                    },
                })
                .collect(),
            first_mismatches: (report.mismatches.first.iter())
                .map(|mismatch| ExceptionJson {
                    title: Some(mismatch.title.as_str()),
                    rev: Some(mismatch.rev.get()),
                    line: mismatch.line,
                    detail: format!(
                        "the sha1 of {} is {}, not {}",
                        mismatch.what, mismatch.actual, mismatch.declared
                    ),
                })
                .collect(),
            first_misplaced: (report.misplaced.first.iter())
                .map(|misplaced| ExceptionJson {
                    title: misplaced.title.as_deref(),
                    rev: None,
                    line: misplaced.line,
                    detail: misplaced.to_string(),
                })
                .collect(),
            first_broken: (report.broken.first.iter())
                .map(|broken| ExceptionJson {
                    title: broken.title.as_deref(),
                    rev: None,
                    line: broken.line,
                    detail: broken.to_string(),
                })
                .collect(),
            first_notices: (report.site_changes.first.iter().filter(|_| may_read))
                .map(ToString::to_string)
                .chain(report.notices.first.iter().cloned())
                .collect(),
            error: error.map(|error| match &error.failure {
                ImportFailure::Store { error: cause, .. } | ImportFailure::Catalog(cause) if !may_read => {
                    Problem::of_bucket(cause.clone()).concealed().detail().to_owned()
                }
                _ => shorten(error, MAX_DETAIL_BYTES),
            }),
            place,
        }
    }
}

impl<'a> PositionJson<'a> {
    fn of(position: &'a InputPosition) -> Self {
        Self {
            page: position.page.as_deref(),
            revision: position.revision.as_deref(),
            page_line: position.page_line,
            line: position.line,
            offset: position.offset,
            compressed_offset: position.compressed,
        }
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::Timestamp;
    use rashomon_pages::{Conflict, Error, Title};

    use super::*;

    /// The error in the last line of an import that the store refused.
    fn shown(error: Error, may_read: bool) -> String {
        let failure = ImportFailure::Store {
            title: Title::new("Main_Page").unwrap(),
            first: Revision::new(1).unwrap(),
            last: Revision::new(2).unwrap(),
            error,
        };
        let error = ImportError { failure, report: Box::default() };
        ReportJson::of(&error.report, Some(&error), may_read).error.unwrap()
    }

    #[test]
    fn error_shows_stored_content_only_to_clients_that_may_read() {
        let rev = Revision::new(1).unwrap();
        for error in [
            Error::Conflict(Conflict::Revision { rev, differs: "other bytes" }),
            Error::Erased { rev, at: Timestamp::EPOCH },
        ] {
            assert!(shown(error.clone(), true).contains(&error.to_string()));
            assert_eq!(
                shown(error, false),
                "the write does not fit what is stored; the right 'read' shows why"
            );
        }
        // An error that does not depend on stored content is shown to all clients.
        let invalid = Error::Invalid("give the time of the edit".to_owned());
        assert!(shown(invalid, false).contains("give the time of the edit"));
    }
}
