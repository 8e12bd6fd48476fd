//! `rashomon vacuum`.

use std::sync::Arc;

use rashomon_clock::{Clock, SystemClock};
use rashomon_tables::{Error, Outage};
use rashomon_tables_sqlite::{FileSize, SqliteStore, VacuumProgress};
use serde::Serialize;

use crate::{
    arguments::VacuumArguments,
    errors::CommandError,
    exit::Exit,
    logging, output,
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// What to do instead for a store that is not in SQLite.
const ADVICE: &str = "Cassandra frees space by itself, by compaction (see docs/cassandra.md); to vacuum a \
                      SQLite store, name its directory with --data DIR";

/// The sizes of the files before and after.
#[derive(Debug, Serialize)]
struct Report {
    before: Size,
    after: Size,
}

/// The sizes of the files.
#[derive(Debug, Clone, Copy, Serialize)]
struct Size {
    file_bytes: u64,
    log_bytes: u64,
    free_bytes: u64,
}

/// Gives free space in the file of a store back to the file system.
pub(crate) async fn run(arguments: VacuumArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open_sqlite(&arguments.store, Arc::clone(&clock), ADVICE);
    let advice = ": a running server gives free pages back by itself, all but 16 MB";
    let store = store.map_err(|error| error.if_busy(advice))?;
    let done = tokio::select! {
        done = Box::pin(vacuum(&store, &arguments, clock)) => done,
        exit = signals.first() => Ok(exit),
    };
    // Finishes the current step.
    store.shutdown().await;
    done
}

async fn vacuum(
    store: &SqliteStore,
    arguments: &VacuumArguments,
    clock: Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    let before = size(store)?;
    if !arguments.json {
        output::line(format_args!("before: {}", before.in_words()))?;
    }
    free_pages(store, &before, clock).await?;
    if arguments.full {
        rewrite(store).await?;
    }
    let after = size(store)?;
    if arguments.json {
        output::json(&Report { before, after })?;
    } else {
        let given_back = before.total().saturating_sub(after.total());
        output::line(format_args!("after: {}; {} given back", after.in_words(), output::bytes(given_back)))?;
    }
    Ok(Exit::Done)
}

/// Gives all free pages back, and shows the progress.
async fn free_pages(store: &SqliteStore, before: &Size, clock: Arc<dyn Clock>) -> Result<(), CommandError> {
    let mut progress = Progress::new(clock, "free pages".to_owned(), "page", Some(before.free_bytes));
    let vacuumed = store
        .vacuum(|now: VacuumProgress| {
            let bytes = now.returned_bytes;
            progress.show(ProgressCounts { items: now.returned_pages, bytes, position: bytes });
        })
        .await;
    progress.finish();
    vacuumed.map_err(|error| vacuum_error(error, "free at least 10 MB"))
}

/// Rewrites the file, if there is room for it.
async fn rewrite(store: &SqliteStore) -> Result<(), CommandError> {
    if let Some(missing) = store.missing_space().map_err(|error| vacuum_error(error, "free some space"))? {
        return Err(CommandError::Vacuum(format!(
            "not enough disk space to rewrite the file: the rewrite needs {} in {}, and {} are free. The \
             free pages were given back, and nothing else was changed: free more space there, or, if temporary \
             files are written there, name another directory for them with the variable TMPDIR",
            output::bytes(missing.needed_bytes),
            missing.directory.display(),
            output::bytes(missing.free_bytes),
        )));
    }
    output::to_stderr("rewriting the file");
    store.rewrite().await.map_err(|error| vacuum_error(error, "free some space"))
}

/// Converts an error of the vacuum. `advice` says what to do if the disk is full.
fn vacuum_error(error: Error, advice: &str) -> CommandError {
    match error {
        Error::Unavailable(outage @ Outage::StorageFull { .. }) => CommandError::Vacuum(format!(
            "{outage}: nothing is lost, and the file system keeps the space that was given back: {advice} on \
             the disk, and run the command again"
        )),
        error => rashomon_pages::Error::from(error).into(),
    }
}

fn size(store: &SqliteStore) -> Result<Size, CommandError> {
    let size = store.file_size().map_err(rashomon_pages::Error::from)?;
    let FileSize { file_bytes, log_bytes, free_bytes, .. } = size;
    Ok(Size { file_bytes, log_bytes, free_bytes })
}

impl Size {
    fn in_words(&self) -> String {
        format!(
            "{} and a log of {}; {} are free",
            output::bytes(self.file_bytes),
            output::bytes(self.log_bytes),
            output::bytes(self.free_bytes),
        )
    }

    /// The size of all files.
    fn total(&self) -> u64 {
        self.file_bytes + self.log_bytes
    }
}
