//! Imports into a store that this process opens.

use std::{fs::File, path::Path, sync::Arc};

use rashomon_buckets::BucketName;
use rashomon_clock::Clock;
use rashomon_dumps::{ImportError, ImportOptions, ImportProgress, Source};
use rashomon_entry_dumps::StoreTarget;

use super::{entries, is_standard_input, label, not_read, report::Outcome, shown};
use crate::{
    arguments::ImportArguments,
    errors::CommandError,
    exit::Exit,
    output,
    page_buckets::{FoundBucket, find_bucket},
    progress::{Done, Progress},
    signals::Signals,
    store::{Absent, Store},
};

/// How an import of one file ended.
enum Ended {
    Finished(Outcome),
    Failed(ImportError),
    Stopped(Exit, ImportProgress),
}

pub(super) async fn run(
    arguments: &ImportArguments,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    let store = match arguments.archive {
        true => Store::open_archiving(&arguments.store, Arc::clone(&clock)).await,
        false => Store::open_offline(&arguments.store, Arc::clone(&clock), Absent::Make).await,
    };
    let store =
        store.map_err(|error| error.if_busy(", import through the server: --to http://127.0.0.1:7231"))?;
    let (domain, bucket) = (&arguments.domain, &arguments.bucket);
    let outcome = match find_bucket(&store, domain, bucket).await {
        Ok(FoundBucket::Pages(bucket)) => files(arguments, &bucket, &store, &clock, &mut signals).await,
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

async fn files(
    arguments: &ImportArguments,
    bucket: &BucketName,
    store: &Store,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Exit, CommandError> {
    let started = clock.monotonic();
    let mut total = Outcome::default();
    for file in &arguments.files {
        match one_file(arguments, bucket, file, store, clock, signals).await? {
            Ended::Finished(outcome) => {
                outcome.print_exceptions(&shown(file));
                total.add(&outcome);
            }
            Ended::Failed(error) => {
                let outcome = Outcome::from(*error.report);
                outcome.print_exceptions(&shown(file));
                total.add(&outcome);
                output::line(total.summary(clock.monotonic().saturating_sub(started)))?;
                let message = format!("{}: {}", shown(file), error.failure);
                return Err(CommandError::Import(message + &not_read(&arguments.files, file)));
            }
            Ended::Stopped(exit, progress) => {
                output::to_stderr(format_args!(
                    "stopped in {} after {}: stored revisions stay; to continue, import the files again",
                    shown(file),
                    output::counted(progress.revisions, "revision"),
                ));
                return Ok(exit);
            }
        }
    }
    output::line(total.summary(clock.monotonic().saturating_sub(started)))?;
    Ok(if total.is_clean() { Exit::Done } else { Exit::Partly })
}

async fn one_file(
    arguments: &ImportArguments,
    bucket: &BucketName,
    file: &Path,
    store: &Store,
    clock: &Arc<dyn Clock>,
    signals: &mut Signals,
) -> Result<Ended, CommandError> {
    let source = source(file)?;
    // Where the archive is off, all revisions are stored as rows. Servers may write to a cluster meanwhile, and
    // nothing else may write to pages that are imported into blocks.
    let is_alone = store.sqlite().is_some();
    let archive = arguments.archive || (is_alone && !arguments.rows);
    let mut options = ImportOptions { bucket: bucket.clone(), archive, ..ImportOptions::default() };
    if let Some(jobs) = arguments.jobs {
        options.jobs = jobs.get();
    }
    let mut progress = Progress::new(Arc::clone(clock), label(file), "revision", source.size());
    let mut last = ImportProgress { pages: 0, revisions: 0, text_bytes: 0, read: 0, size: None };
    let (buckets, catalog) = (store.buckets(), store.buckets().catalog());
    let mut show = |now: &ImportProgress| {
        last = *now;
        progress.show(Done { items: now.revisions, bytes: now.text_bytes, position: now.read });
    };
    let import = rashomon_dumps::import(buckets, catalog, &arguments.domain, source, &options, &mut show);
    let ended = tokio::select! {
        outcome = Box::pin(import) => Ok(outcome),
        exit = signals.first() => Err(exit),
    };
    progress.finish();
    Ok(match ended {
        Ok(Ok(report)) => Ended::Finished(report.into()),
        Ok(Err(error)) => Ended::Failed(error),
        Err(exit) => Ended::Stopped(exit, last),
    })
}

pub(super) fn source(file: &Path) -> Result<Source, CommandError> {
    if is_standard_input(file) {
        return Ok(Source::stream(std::io::stdin()));
    }
    let failure = |source| CommandError::Io { doing: format!("cannot read {}", file.display()), source };
    Source::file(File::open(file).map_err(failure)?).map_err(failure)
}
