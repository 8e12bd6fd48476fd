//! Imports into a store that this process opens.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rashomon_clock::Clock;
use rashomon_dumps::entries::StoreTarget;
use rashomon_dumps::{Import, ImportFailure, ImportOptions, ImportProgress, Source};
use rashomon_pages::BucketName;

use super::{
    display_name, entries,
    inputs::{Expected, Inputs, input_error},
    list_unread_files, progress_label,
    report::Outcome,
};
use crate::{
    arguments::ImportArguments,
    errors::CommandError,
    exit::Exit,
    output,
    page_buckets::{FoundBucket, find_bucket},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::{Store, is_missing},
};

/// The outcome of the import of one file.
enum FileOutcome {
    Finished,
    Failed(ImportFailure),
    Stopped(Exit, ImportProgress),
}

pub(super) async fn run(
    arguments: &ImportArguments,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    let (domain, bucket) = (&arguments.domain, &arguments.bucket);
    let settings = Store::settings_offline(&arguments.store)?;
    let expected = match is_missing(&settings.store) {
        _ if *bucket == BucketName::page() => Expected::Pages,
        true => Expected::Entries,
        false => Expected::Either,
    };
    let mut inputs = match Inputs::check(arguments, expected, &mut signals).await? {
        Ok(inputs) => inputs,
        Err(exit) => {
            output::to_stderr("stopped: nothing is stored");
            return Ok(exit);
        }
    };
    let store = Store::open_to_import(settings, arguments.archive, Arc::clone(&clock)).await;
    let store =
        store.map_err(|error| error.if_busy(", import through the server: --to http://127.0.0.1:7231"))?;
    let outcome = match find_bucket(&store, domain, bucket).await {
        Ok(FoundBucket::Pages(bucket)) => {
            import_files(arguments, &bucket, &store, &mut inputs, &clock, &mut signals).await
        }
        Ok(FoundBucket::NoPages(before)) => {
            let mut target = StoreTarget::new(store.key_value(), domain.clone(), bucket.clone());
            Box::pin(entries::run(arguments, before, &mut target, &mut inputs, &clock, &mut signals)).await
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
    inputs: &mut Inputs,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Exit, CommandError> {
    let started = clock.monotonic();
    // Where the archive is off, all revisions are stored as rows. Nothing else may write to pages that are imported
    // into blocks, but servers may write to a cluster during the import.
    let is_alone = store.sqlite().is_some();
    let archive = arguments.archive || (is_alone && !arguments.rows);
    let mut options =
        ImportOptions { bucket: bucket.clone(), archive, seal_rows: archive, ..options_of(arguments) };
    if let Some(jobs) = arguments.jobs {
        options.jobs = jobs.get();
    }
    let free_before = free_bytes(store)?;
    let (buckets, catalog) = (store.buckets(), store.buckets().catalog());
    let mut import = Import::new(buckets, catalog, &arguments.domain, &options);
    let mut total = Outcome::default();
    let mut failure = None;
    for file in &arguments.files {
        match import_file(&mut import, Some((file, inputs.open(file)?)), clock, signals).await? {
            FileOutcome::Finished => {}
            FileOutcome::Failed(error) => {
                failure = Some((file, error));
                break;
            }
            FileOutcome::Stopped(exit, progress) => return Ok(stopped(exit, file, &progress)),
        }
        add_reports(&mut import, &arguments.files, &mut total);
    }
    // Revisions of pages that come in several parts wait until all files were read.
    let last = failure.as_ref().map_or(arguments.files.last(), |(file, _)| Some(*file));
    if let Some(last) = last
        && failure.as_ref().is_none_or(|(_, failure)| matches!(failure, ImportFailure::Read(_)))
    {
        match import_file(&mut import, None, clock, signals).await? {
            FileOutcome::Finished => {}
            FileOutcome::Failed(error) => failure = Some((last, error)),
            FileOutcome::Stopped(exit, progress) => return Ok(stopped(exit, last, &progress)),
        }
    }
    add_reports(&mut import, &arguments.files, &mut total);
    if archive {
        give_space_back(store, free_before).await?;
    }
    let elapsed = clock.monotonic().saturating_sub(started);
    if let Some((file, failure)) = failure {
        let message = input_error(file, &failure, arguments.skip_broken);
        total.print_total(arguments.json, elapsed, Some(&message))?;
        return Err(CommandError::Import(message + &list_unread_files(&arguments.files, file)));
    }
    total.print_total(arguments.json, elapsed, None)?;
    Ok(if total.is_clean() { Exit::Done } else { Exit::Partly })
}

/// The free bytes in the file of a SQLite store.
fn free_bytes(store: &Store) -> Result<u64, CommandError> {
    let size = store.sqlite().map(|sqlite| sqlite.file_size()).transpose();
    Ok(size.map_err(rashomon_pages::Error::from)?.map_or(0, |size| size.free_bytes))
}

/// Makes the file of a SQLite store smaller, if the import has left free pages in it: by packing rows, or by merging
/// blocks.
async fn give_space_back(store: &Store, free_before: u64) -> Result<(), CommandError> {
    let Some(sqlite) = store.sqlite().filter(|_| free_bytes(store).is_ok_and(|free| free > free_before))
    else {
        return Ok(());
    };
    if let Err(error) = sqlite.vacuum(|_| {}).await {
        output::to_stderr(format_args!("free pages stay in the file of the store: {error}"));
    }
    Ok(())
}

/// Prints the exceptions of all files since the last call, and adds their reports to the total.
fn add_reports(import: &mut Import<'_>, files: &[PathBuf], total: &mut Outcome) {
    for (report, file) in import.take_reports().into_iter().zip(files) {
        let outcome = Outcome::from(report);
        outcome.print_exceptions(&display_name(file));
        total.add(&outcome, &display_name(file));
    }
}

fn stopped(exit: Exit, file: &Path, progress: &ImportProgress) -> Exit {
    output::to_stderr(format_args!(
        "stopped in {} after {}: stored revisions stay; to continue, import the files again",
        display_name(file),
        output::counted(progress.revisions, "revision"),
    ));
    exit
}

/// Imports a file. Without a file, stores the revisions that wait.
async fn import_file(
    import: &mut Import<'_>,
    file: Option<(&Path, Source)>,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<FileOutcome, CommandError> {
    let (label, source) = match file {
        Some((file, source)) => (progress_label(file), Some(source)),
        None => ("pages in several parts".to_owned(), None),
    };
    let size = source.as_ref().and_then(Source::size);
    let mut progress = Progress::new(Arc::clone(clock), label, "revision", size);
    let mut last = ImportProgress { pages: 0, revisions: 0, text_bytes: 0, read: 0, size: None };
    let mut show = |now: &ImportProgress| {
        last = *now;
        progress.show(ProgressCounts { items: now.revisions, bytes: now.text_bytes, position: now.read });
    };
    let ended = {
        let work = async {
            match source {
                Some(source) => import.read(source, &mut show).await,
                None => import.finish(&mut show).await,
            }
        };
        tokio::select! {
            outcome = Box::pin(work) => Ok(outcome),
            exit = signals.first() => Err(exit),
        }
    };
    progress.finish();
    Ok(match ended {
        Ok(Ok(())) => FileOutcome::Finished,
        Ok(Err(failure)) => FileOutcome::Failed(failure),
        Err(exit) => FileOutcome::Stopped(exit, last),
    })
}

/// The options that do not depend on the store.
fn options_of(arguments: &ImportArguments) -> ImportOptions {
    ImportOptions { skip_broken: arguments.skip_broken, ..ImportOptions::default() }
}
