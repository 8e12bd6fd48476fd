//! Stores the entries of an export.

use std::collections::BTreeMap;

use crate::{CountedItems, DecompressionLimits, Source, compression};
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_entries::{BucketType, Definition, EntryKey, Error};
use rashomon_pages::{Headers, IgnoredHeaders, RequestHeaders, excerpt};
use tokio::sync::mpsc;

use crate::entries::{
    line::{BucketLine, CounterLine, EntryLine, Line, MAX_PART_BYTES, VERSION, from_base64},
    reader::{self, NumberedLine},
    target::{Comparison, EntryTarget, ExportedEntry, StoreOutcome},
};

/// How an import reads an export.
#[derive(Debug, Clone)]
pub struct EntryImportOptions {
    /// The time of the import. Entries that have expired before are left out.
    pub now: Timestamp,
    /// The limits of decompression.
    pub decompression: DecompressionLimits,
}

/// What an import has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryImportReport {
    /// Whether the import made the bucket.
    pub is_new_bucket: bool,
    /// The number of entries and counters that were stored.
    pub stored: u64,
    /// The number of entries and counters that were already stored with the content of the export.
    pub unchanged: u64,
    /// The number of entries that are left out, since they have expired.
    pub expired: u64,
    /// Entries that are stored with another body or other headers, and counters with another value. They stay as they
    /// are. Each has the reason.
    pub conflicts: CountedItems<String>,
    /// Entries that cannot be stored: each with the reason.
    pub left_out: CountedItems<String>,
    /// Headers that are not stored, by their names: the number of entries from which each was left out.
    pub dropped_headers: BTreeMap<String, u64>,
}

impl EntryImportReport {
    /// Whether each entry that has not expired is stored as it is in the export.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.conflicts.is_empty() && self.left_out.is_empty()
    }

    /// The maximum number of names of headers that are counted separately. The rest is counted as `others`.
    const MAX_DROPPED_HEADERS: usize = 32;

    fn drop_header(&mut self, name: &str) {
        let is_counted =
            self.dropped_headers.contains_key(name) || self.dropped_headers.len() < Self::MAX_DROPPED_HEADERS;
        let name = if is_counted { excerpt(name) } else { "others".to_owned() };
        *self.dropped_headers.entry(name).or_default() += 1;
    }

    /// The number of entries and counters that were read.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.stored + self.unchanged + self.expired + self.conflicts.count + self.left_out.count
    }
}

/// The error that ended an import. Entries that were stored before the error stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryImportError {
    /// The input is damaged, truncated, or no export of entries.
    #[error("line {line}: {problem}")]
    Input {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// The bucket exists with another definition.
    #[error(
        "the bucket exists with another definition\n  stored:        {stored}\n  in the export: {exported}"
    )]
    OtherDefinition {
        /// The stored definition.
        stored: Box<Definition>,
        /// The definition in the export.
        exported: Box<Definition>,
    },
    /// The store failed.
    #[error("cannot import into the store: {0}")]
    Store(#[from] Error),
    /// The server failed, or refused a request.
    #[error("{0}")]
    Server(String),
}

/// The result of a step.
pub(crate) type Result<T> = std::result::Result<T, EntryImportError>;

/// Stores the entries of an export, and makes the bucket if it is missing. The bucket may have another name than in the
/// export. An entry is stored as a whole or not at all, and its `ttl` begins at the import. A stored entry that has not
/// expired stays as it is, whatever its content is. So a second import of the same file changes nothing.
///
/// Must be called within a runtime of tokio. Returns the report also if an error ended the import.
pub async fn import_entries<T: EntryTarget>(
    target: &mut T,
    source: Source,
    options: &EntryImportOptions,
    progress: impl FnMut(&EntryImportReport) + Send,
) -> (EntryImportReport, Result<()>) {
    let lines = Lines { receiver: reader::start(source, options.decompression.clone()), number: 0 };
    let mut import = Import { target, options, lines, report: EntryImportReport::default() };
    let outcome = import.run(progress).await;
    (import.report, outcome)
}

/// Checks whether an input begins like an export of entries, and fails with what is wrong otherwise. Reads only the first
/// line. May block.
pub fn check_beginning(source: Source) -> Result<()> {
    let at_line = |line, problem| EntryImportError::Input { line, problem };
    match reader::first_line(source, &DecompressionLimits::default()) {
        Ok(Some(line)) => {
            line.and_then(bucket_of).map_err(|problem| at_line(1, problem))?;
            Ok(())
        }
        Ok(None) => Err(at_line(0, EMPTY.to_owned())),
        Err(error) if compression::source_failed(&error) => Ok(()),
        Err(error) => Err(at_line(1, reader::describe(&error))),
    }
}

/// The problem of an input without a line.
const EMPTY: &str = "the input is empty";

/// Returns the bucket of the first line, or what is wrong with the line.
fn bucket_of(line: Line) -> std::result::Result<BucketLine, String> {
    match line {
        Line::Bucket(line) if line.version == VERSION => Ok(line),
        Line::Bucket(BucketLine { version, .. }) => Err(format!(
            "the export has the format {version}, and this program reads the format {VERSION}: use a newer Rashomon"
        )),
        _ => Err("the first line of an export of entries names its bucket".to_owned()),
    }
}

/// The lines of the input.
struct Lines {
    receiver: mpsc::Receiver<NumberedLine>,
    /// The number of the last line.
    number: u64,
}

impl Lines {
    /// Returns the next line. An input without a next line is truncated.
    async fn next(&mut self) -> Result<Line> {
        match self.receiver.recv().await {
            Some((number, line)) => {
                self.number = number;
                line.map_err(|problem| EntryImportError::Input { line: number, problem })
            }
            None if self.number == 0 => Err(self.input_error(EMPTY)),
            None => Err(self.input_error("the input is truncated: its last line is missing")),
        }
    }

    fn input_error(&self, problem: impl Into<String>) -> EntryImportError {
        EntryImportError::Input { line: self.number, problem: problem.into() }
    }
}

struct Import<'a, T> {
    target: &'a mut T,
    options: &'a EntryImportOptions,
    lines: Lines,
    report: EntryImportReport,
}

impl<T: EntryTarget> Import<'_, T> {
    async fn run(&mut self, mut progress: impl FnMut(&EntryImportReport) + Send) -> Result<()> {
        let has_counters = self.ensure_bucket().await? == BucketType::Counter;
        let mut entries = 0;
        loop {
            match self.lines.next().await? {
                Line::Entry(line) if !has_counters => self.import_entry(line).await?,
                Line::Counter(line) if has_counters => self.import_counter(line).await?,
                Line::End(end) => {
                    if end.entries != entries {
                        let problem = format!(
                            "the last line counts {} entries, but the export has {entries}",
                            end.entries
                        );
                        return Err(self.lines.input_error(problem));
                    }
                    return match self.lines.receiver.recv().await {
                        None => Ok(()),
                        Some((line, _)) => Err(EntryImportError::Input {
                            line,
                            problem: "the export goes on after its last line".to_owned(),
                        }),
                    };
                }
                Line::Entry(_) | Line::Counter(_) => {
                    return Err(self.lines.input_error("this line does not fit the type of the bucket"));
                }
                Line::Part(_) | Line::Incomplete(_) => {
                    return Err(self
                        .lines
                        .input_error("this line continues a body, but no body is incomplete here"));
                }
                Line::Bucket(_) => return Err(self.lines.input_error("the export has a second bucket")),
            }
            entries += 1;
            progress(&self.report);
        }
    }

    /// Makes the bucket if it is missing, and returns its type.
    async fn ensure_bucket(&mut self) -> Result<BucketType> {
        let first = self.lines.next().await?;
        let BucketLine { definition, .. } =
            bucket_of(first).map_err(|problem| self.lines.input_error(problem))?;
        match self.target.ensure_bucket(&definition).await {
            Ok((stored, is_new)) => {
                self.report.is_new_bucket = is_new;
                Ok(stored.bucket_type)
            }
            Err(EntryImportError::Store(error @ Error::Definition(_))) => {
                Err(self.lines.input_error(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn parse_key(&self, text: &str) -> Result<EntryKey> {
        EntryKey::new(text).map_err(|error| self.lines.input_error(error.0))
    }

    async fn import_counter(&mut self, CounterLine { key, value }: CounterLine) -> Result<()> {
        let key = self.parse_key(&key)?;
        match self.target.counter(&key).await? {
            Some(stored) if stored == value => self.report.unchanged += 1,
            Some(stored) => {
                self.report
                    .conflicts
                    .add(format!("{key}: the counter has {stored}, and {value} in the export"));
            }
            None => {
                self.target.store_counter(&key, value).await?;
                self.report.stored += 1;
            }
        }
        Ok(())
    }

    async fn import_entry(&mut self, line: EntryLine) -> Result<()> {
        let key = self.parse_key(&line.key)?;
        // `None`: the body is read, but not stored.
        let mut body = match self.entry_to_store(&key, &line).await? {
            Some(entry) => Some(self.target.begin(&key, entry).await?),
            None => None,
        };
        let mut received = 0;
        let mut piece = line.body;
        while received < line.size || piece.is_some() {
            let text = match piece.take() {
                Some(text) => text,
                None => match self.lines.next().await? {
                    Line::Part(text) => text,
                    Line::Incomplete(line) => {
                        let reason = line.reason;
                        if body.is_some() {
                            self.report
                                .left_out
                                .add(format!("{key}: the export has only a part of the body: {reason}"));
                        }
                        return Ok(());
                    }
                    _ => {
                        let missing = line.size - received;
                        return Err(self
                            .lines
                            .input_error(format!("{missing} bytes of the body of {key} are missing")));
                    }
                },
            };
            let bytes = from_base64(&text)
                .filter(|bytes| bytes.len() <= MAX_PART_BYTES)
                .ok_or_else(|| self.lines.input_error(format!("a piece of the body of {key} is damaged")))?;
            received += bytes.len() as u64;
            if received > line.size || (bytes.is_empty() && line.size > 0) {
                return Err(self
                    .lines
                    .input_error(format!("the body of {key} does not have {} bytes", line.size)));
            }
            if let Some(body) = &mut body {
                self.target.write(body, bytes).await?;
            }
        }
        let Some(body) = body else { return Ok(()) };
        match self.target.finish(body).await? {
            StoreOutcome::New { not_stored } => {
                self.report.stored += 1;
                not_stored.iter().for_each(|name| self.report.drop_header(name));
            }
            StoreOutcome::Exists => {
                self.report
                    .conflicts
                    .add(format!("{key}: another process stored an entry during the import"));
            }
            StoreOutcome::Damaged { sha1 } => {
                let expected = line.sha1;
                let problem = format!("the body of {key} is damaged: its SHA-1 is {sha1}, not {expected}");
                return Err(self.lines.input_error(problem));
            }
            StoreOutcome::Refused { reason } => self.report.left_out.add(format!("{key}: {reason}")),
        }
        Ok(())
    }

    /// Returns the headers without those that are not stored, and counts these. Leaves out headers that proxies add.
    fn without_dropped(&mut self, headers: &Headers) -> Headers {
        let (rule, ignored) = (self.target.stored_headers(), IgnoredHeaders::default());
        let mut headers = headers.clone();
        headers.other.retain(|name, _| {
            let is_kept = rule.keep_with_entry(name) || !name.starts_with("x-");
            if !is_kept && !ignored.contains(name) {
                self.report.drop_header(name);
            }
            is_kept
        });
        headers
    }

    /// Returns the entry if it has to be stored. Otherwise reports why it is not stored.
    async fn entry_to_store(&mut self, key: &EntryKey, line: &EntryLine) -> Result<Option<ExportedEntry>> {
        let expires = line.expires.as_deref().map(|text| {
            let time = rfc3339::parse(text);
            time.ok_or_else(|| {
                self.lines.input_error(format!("the time at which {key} expires is malformed"))
            })
        });
        if expires.transpose()?.is_some_and(|expires| expires <= self.options.now) {
            self.report.expired += 1;
            return Ok(None);
        }
        let headers = match check_headers(self.without_dropped(&line.headers)) {
            Ok(headers) => headers,
            Err(reason) => {
                self.report.left_out.add(format!("{key}: {reason}"));
                return Ok(None);
            }
        };
        let (size, limit) = (line.size, self.target.body_limit());
        if size > limit {
            self.report
                .left_out
                .add(format!("{key}: the body has {size} bytes, and the bucket allows {limit}"));
            return Ok(None);
        }
        let entry = ExportedEntry { headers, size, sha1: line.sha1.clone() };
        match self.target.compare(key, &entry).await? {
            Comparison::Missing => return Ok(Some(entry)),
            Comparison::Same => self.report.unchanged += 1,
            Comparison::Other { modified } => {
                self.report
                    .conflicts
                    .add(format!("{key}: the stored entry of {modified} has another body or other headers"));
            }
        }
        Ok(None)
    }
}

/// Checks that all headers are valid and can be stored with an entry.
fn check_headers(headers: Headers) -> std::result::Result<Headers, String> {
    let (of_entry, of_property): (Vec<_>, Vec<_>) = headers
        .other
        .iter()
        .partition(|(name, _)| matches!(name.as_str(), "content-disposition" | "cache-control"));
    let is_stored = |name: &str| name == "content-language" || name.starts_with("x-");
    if let Some((name, _)) = of_property.iter().find(|(name, _)| !is_stored(name)) {
        return Err(format!("the header {name} cannot be stored with an entry"));
    }
    let content_type = [("content-type", headers.content_type.as_str())];
    let given = content_type
        .into_iter()
        .chain(of_property.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    RequestHeaders::parse_any(given).map_err(|error| error.to_string())?;
    let is_printable = |value: &&String| value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if let Some((name, _)) = of_entry.iter().find(|(_, value)| !is_printable(value)) {
        return Err(format!("the value of {name} has a character other than printable ASCII"));
    }
    let bytes: usize = headers.other.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes + headers.content_type.len() > Headers::MAX_BYTES {
        return Err(format!("the headers of an entry have at most {} bytes", Headers::MAX_BYTES));
    }
    Ok(headers)
}
