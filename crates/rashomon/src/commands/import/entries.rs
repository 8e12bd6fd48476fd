//! The import of a key-value bucket.

use std::{path::Path, sync::Arc};

use rashomon_clock::Clock;
use rashomon_dumps::entries::{
    EntryImportError, EntryImportOptions, EntryImportReport, EntryTarget, import_entries,
};
use rashomon_dumps::{CountedItems, DecompressionLimits, Source};
use rashomon_entries::{BucketType, check_new_bucket};
use rashomon_pages::{Shown, visible};

use super::{display_name, inputs::Inputs, list_unread_files, progress_label};
use crate::{
    arguments::ImportArguments,
    errors::CommandError,
    exit::Exit,
    output::{self, entries, thousands},
    progress::{Progress, ProgressCounts},
    signals::Signals,
};

/// Imports files into the bucket of the target, which is a key-value bucket or does not exist. `before` is the type of
/// the bucket, if the bucket exists.
pub(super) async fn run<T: EntryTarget>(
    arguments: &ImportArguments,
    before: Option<BucketType>,
    target: &mut T,
    inputs: &mut Inputs,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Exit, CommandError> {
    let bucket = &arguments.bucket;
    check_new_bucket(bucket).map_err(|error| CommandError::Usage(error.to_string()))?;
    let only_pages = [
        ("--archive", arguments.archive),
        ("--rows", arguments.rows),
        ("--jobs", arguments.jobs.is_some()),
        ("--skip-broken", arguments.skip_broken),
        ("--json", arguments.json),
    ];
    if let Some((flag, _)) = only_pages.into_iter().find(|(_, is_given)| *is_given) {
        return Err(CommandError::Usage(format!(
            "{flag} is for pages, and not for entries of the bucket {bucket}: omit {flag}"
        )));
    }
    let mut is_clean = true;
    for file in &arguments.files {
        match import_file(file, inputs.open(file)?, target, clock, signals).await? {
            Ok((report, outcome)) => {
                // Of a file that is no export of entries, there is nothing to count.
                if !matches!(outcome, Err(EntryImportError::Input { line: 0 | 1, .. })) {
                    print(&report, file, arguments)?;
                }
                is_clean &= report.is_clean();
                if let Err(error) = outcome {
                    return Err(import_error(&error, before, arguments, file));
                }
            }
            Err(exit) => {
                output::to_stderr(format_args!(
                    "stopped in {}: stored entries stay; to continue, import the files again",
                    display_name(file)
                ));
                return Ok(exit);
            }
        }
    }
    Ok(if is_clean { Exit::Done } else { Exit::Partly })
}

/// The report of the import of one file, and the error that ended the import, if any.
type FileOutcome = (EntryImportReport, Result<(), EntryImportError>);

/// Imports a file. Returns the exit code of a signal that interrupted the import.
async fn import_file<T: EntryTarget>(
    file: &Path,
    source: Source,
    target: &mut T,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Result<FileOutcome, Exit>, CommandError> {
    let options = EntryImportOptions { now: clock.now(), decompression: DecompressionLimits::default() };
    let mut progress = Progress::new(Arc::clone(clock), progress_label(file), "entry", source.size());
    let consumed = source.consumed();
    let import = import_entries(target, source, &options, |now| {
        let position = consumed.load(std::sync::atomic::Ordering::Relaxed);
        progress.show(ProgressCounts { items: now.entries(), bytes: 0, position });
    });
    let ended = tokio::select! {
        imported = Box::pin(import) => Ok(imported),
        exit = signals.first() => Err(exit),
    };
    progress.finish();
    Ok(ended)
}

/// Describes the error that ended an import. `before` is the type that the bucket had before, if it existed.
pub(super) fn import_error(
    error: &EntryImportError,
    before: Option<BucketType>,
    arguments: &ImportArguments,
    file: &Path,
) -> CommandError {
    let ImportArguments { domain, bucket, .. } = arguments;
    let cure = match (error, before) {
        (EntryImportError::OtherDefinition { stored, exported }, _)
            if stored.bucket_type == exported.bucket_type =>
        {
            format!(
                "\nImport into a bucket of another name with --bucket, change the stored definition with `rashomon \
                 bucket create {domain}/{bucket} --type {} --replace`, or delete the bucket with `rashomon bucket delete \
                 {domain}/{bucket} --yes`",
                stored.bucket_type
            )
        }
        (EntryImportError::OtherDefinition { .. }, _) => format!(
            "\nImport into a bucket of another name with --bucket, or delete the bucket with `rashomon bucket delete \
             {domain}/{bucket} --yes`: the type of a bucket never changes"
        ),
        (EntryImportError::Input { line: 0 | 1, .. }, None) => format!(
            "\nThere is no bucket {domain}/{bucket}, so the file was read as an export of entries. To import pages, create \
             the bucket first: `rashomon bucket create {domain}/{bucket} --type revisioned`"
        ),
        (EntryImportError::Input { line: 0 | 1, .. }, Some(bucket_type)) => format!(
            "\nThe bucket {domain}/{bucket} has the type {bucket_type}, so the file was read as an export of entries. To \
             import pages, name a bucket of type revisioned with --bucket, or omit --bucket for the bucket page"
        ),
        _ => String::new(),
    };
    let rest = list_unread_files(&arguments.files, file);
    CommandError::Import(format!("{}: {error}{cure}{rest}", display_name(file)))
}

fn print(report: &EntryImportReport, file: &Path, arguments: &ImportArguments) -> Result<(), CommandError> {
    let file = display_name(file);
    print_items(&file, &report.conflicts, "is stored with other content, which stays");
    print_items(&file, &report.left_out, "was left out");
    for (name, count) in &report.dropped_headers {
        let entries = entries(*count);
        output::to_stderr(format_args!(
            "{file}: the header {name} of {entries} was left out: it is not stored"
        ));
    }
    let made = if report.is_new_bucket { " (a new bucket)" } else { "" };
    output::line(format_args!(
        "{file}: {} of {}/{}{made}: {} stored, {} stored before, {} in conflict, {} left out, {} expired",
        entries(report.entries()),
        arguments.domain,
        arguments.bucket,
        thousands(report.stored),
        thousands(report.unchanged),
        thousands(report.conflicts.count),
        thousands(report.left_out.count),
        thousands(report.expired),
    ))
}

fn print_items(file: &str, items: &CountedItems<String>, what: &str) {
    for item in &items.first {
        let item = visible(item, Shown::InLine);
        output::to_stderr(format_args!("{file}: an entry {what}: {item}"));
    }
    let rest = items.count.saturating_sub(items.first.len() as u64);
    if rest > 0 {
        output::to_stderr(format_args!("{file}: and {} more: an entry {what}", thousands(rest)));
    }
}
