//! Imports into a store that this process opens.

use std::{fs::File, path::Path, sync::Arc};

use rashomon_buckets::BucketName;
use rashomon_clock::Clock;
use rashomon_dumps::{ImportError, ImportFailure, ImportOptions, ImportProgress, Source};
use rashomon_entry_dumps::StoreTarget;

use super::{display_name, entries, is_standard_input, list_unread_files, progress_label, report::Outcome};
use crate::{
    arguments::ImportArguments,
    errors::CommandError,
    exit::Exit,
    output,
    page_buckets::{FoundBucket, find_bucket},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::{IfMissing, Store},
};

/// The outcome of the import of one file.
enum FileOutcome {
    Finished(Outcome),
    Failed(ImportError),
    Stopped(Exit, ImportProgress),
}

pub(super) async fn run(
    arguments: &ImportArguments,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    if arguments.bucket == BucketName::page() {
        check_beginnings(arguments)?;
    }
    let store = match arguments.archive {
        true => Store::open_with_archive(&arguments.store, Arc::clone(&clock)).await,
        false => Store::open_offline(&arguments.store, Arc::clone(&clock), IfMissing::Create).await,
    };
    let store =
        store.map_err(|error| error.if_busy(", import through the server: --to http://127.0.0.1:7231"))?;
    let (domain, bucket) = (&arguments.domain, &arguments.bucket);
    let outcome = match find_bucket(&store, domain, bucket).await {
        Ok(FoundBucket::Pages(bucket)) => {
            import_files(arguments, &bucket, &store, &clock, &mut signals).await
        }
        Ok(FoundBucket::NoPages(before)) => {
            let mut target = StoreTarget::new(store.key_value(), domain.clone(), bucket.clone());
            Box::pin(entries::run(arguments, before, &mut target, &clock, &mut signals)).await
        }
        Err(error) => Err(error),
    };
    // In any case, acknowledged writes must be on disk.
    store.close().await;
    outcome
}

async fn import_files(
    arguments: &ImportArguments,
    bucket: &BucketName,
    store: &Store,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Exit, CommandError> {
    let started = clock.monotonic();
    let mut total = Outcome::default();
    for file in &arguments.files {
        match import_file(arguments, bucket, file, store, clock, signals).await? {
            FileOutcome::Finished(outcome) => {
                outcome.print_exceptions(&display_name(file));
                total.add(&outcome, &display_name(file));
            }
            FileOutcome::Failed(error) => {
                let outcome = Outcome::from(*error.report);
                outcome.print_exceptions(&display_name(file));
                total.add(&outcome, &display_name(file));
                let message = input_error(file, &error.failure, arguments.skip_broken);
                total.print_total(
                    arguments.json,
                    clock.monotonic().saturating_sub(started),
                    Some(&message),
                )?;
                return Err(CommandError::Import(message + &list_unread_files(&arguments.files, file)));
            }
            FileOutcome::Stopped(exit, progress) => {
                output::to_stderr(format_args!(
                    "stopped in {} after {}: stored revisions stay; to continue, import the files again",
                    display_name(file),
                    output::counted(progress.revisions, "revision"),
                ));
                return Ok(exit);
            }
        }
    }
    total.print_total(arguments.json, clock.monotonic().saturating_sub(started), None)?;
    Ok(if total.is_clean() { Exit::Done } else { Exit::Partly })
}

async fn import_file(
    arguments: &ImportArguments,
    bucket: &BucketName,
    file: &Path,
    store: &Store,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<FileOutcome, CommandError> {
    let source = open_source(file)?;
    // Where the archive is off, all revisions are stored as rows. Nothing else may write to pages that are imported
    // into blocks, but servers may write to a cluster during the import.
    let is_alone = store.sqlite().is_some();
    let archive = arguments.archive || (is_alone && !arguments.rows);
    let mut options = ImportOptions { bucket: bucket.clone(), archive, ..options_of(arguments) };
    if let Some(jobs) = arguments.jobs {
        options.jobs = jobs.get();
    }
    let mut progress = Progress::new(Arc::clone(clock), progress_label(file), "revision", source.size());
    let mut last = ImportProgress { pages: 0, revisions: 0, text_bytes: 0, read: 0, size: None };
    let (buckets, catalog) = (store.buckets(), store.buckets().catalog());
    let mut show = |now: &ImportProgress| {
        last = *now;
        progress.show(ProgressCounts { items: now.revisions, bytes: now.text_bytes, position: now.read });
    };
    let import = rashomon_dumps::import(buckets, catalog, &arguments.domain, source, &options, &mut show);
    let ended = tokio::select! {
        outcome = Box::pin(import) => Ok(outcome),
        exit = signals.first() => Err(exit),
    };
    progress.finish();
    Ok(match ended {
        Ok(Ok(report)) => FileOutcome::Finished(report.into()),
        Ok(Err(error)) => FileOutcome::Failed(error),
        Err(exit) => FileOutcome::Stopped(exit, last),
    })
}

/// The options that do not depend on the store.
fn options_of(arguments: &ImportArguments) -> ImportOptions {
    ImportOptions { skip_broken: arguments.skip_broken, ..ImportOptions::default() }
}

/// Describes the error that ended the import of a file.
fn input_error(file: &Path, failure: &ImportFailure, skips_broken: bool) -> String {
    let advice = match failure {
        ImportFailure::Read(error) if error.concerns_a_page() && !skips_broken => {
            ". The pages before are stored. To leave out pages that are broken, and go on with the next one, add \
             --skip-broken"
        }
        _ => "",
    };
    format!("{}: {failure}{advice}", display_name(file))
}

/// Checks that the files are exports, as far as their beginnings show, before a store is created for them. Standard input
/// is not checked.
fn check_beginnings(arguments: &ImportArguments) -> Result<(), CommandError> {
    for file in arguments.files.iter().filter(|file| file.is_file()) {
        rashomon_dumps::check_beginning(open_source(file)?)
            .map_err(|error| CommandError::Import(input_error(file, &error.into(), true)))?;
    }
    Ok(())
}

pub(super) fn open_source(file: &Path) -> Result<Source, CommandError> {
    if is_standard_input(file) {
        return Ok(Source::stream(std::io::stdin()));
    }
    let failure = |source| CommandError::Io { doing: format!("cannot read {}", file.display()), source };
    Source::file(File::open(file).map_err(failure)?).map_err(failure)
}
