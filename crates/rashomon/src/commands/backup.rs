//! `rashomon backup` and `rashomon restore`.

use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering},
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_tables_sqlite::backup::{
    BackupError, Progress as BackupProgress, RestoreOptions, StateInfo, TakeOptions,
};
use serde::Serialize;

use crate::{
    arguments::{BackupArguments, RestoreArguments},
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted},
    progress::{Progress, ProgressCounts},
    signals::run_until_signal,
    store::Store,
};

/// What to do instead for a store that is not in SQLite.
const ADVICE: &str = "to back up a Cassandra cluster, use `nodetool snapshot` on all nodes, as described in \
                      docs/cassandra-backup.md";

/// The result of a backup.
#[derive(Debug, Serialize)]
struct BackupOutput<'a> {
    #[serde(flatten)]
    state: StateOutput<'a>,
    read_pages: u64,
    log_bytes: u64,
    last_snapshot_ms: u128,
    deleted_states: usize,
}

/// A state of a backup.
#[derive(Debug, Serialize)]
struct StateOutput<'a> {
    state: u32,
    time: &'a str,
    store: &'a str,
    pages: u32,
    bytes: u64,
    written_pages: u64,
    written_bytes: u64,
}

/// The result of a restore.
#[derive(Debug, Serialize)]
struct RestoreOutput<'a> {
    #[serde(flatten)]
    state: StateOutput<'a>,
    needs_upgrade: bool,
}

impl<'a> From<&'a StateInfo> for StateOutput<'a> {
    fn from(info: &'a StateInfo) -> Self {
        Self {
            state: info.number,
            time: &info.time,
            store: &info.store,
            pages: info.pages,
            bytes: info.bytes(),
            written_pages: info.written_pages,
            written_bytes: info.written_bytes,
        }
    }
}

/// Adds a state to a backup, and prints what it holds.
pub(crate) async fn back_up(arguments: BackupArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let store = Store::sqlite_directory(&arguments.store, ADVICE)?;
    // A rate of 0 is no limit.
    let bytes_per_second = NonZeroUsize::new(usize::try_from(arguments.rate.0).unwrap_or(usize::MAX));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let progress = Progress::new(Arc::clone(&clock), store.display().to_string(), "database page", None);
    let options = TakeOptions {
        store,
        folder: arguments.to,
        bytes_per_second,
        keep: arguments.keep,
        is_moved: arguments.moved,
        accept_lost_log: arguments.store.accept_lost_log,
    };
    let work = move |on_progress: rashomon_tables_sqlite::backup::OnProgress<'_>| {
        rashomon_tables_sqlite::backup::take(&options, &clock, on_progress)
    };
    let report = match run(progress, work).await? {
        Ok(report) => report,
        Err(exit) => return Ok(exit),
    };
    let state = &report.state;
    if arguments.json {
        output::json(&BackupOutput {
            state: state.into(),
            read_pages: report.read_pages,
            log_bytes: report.log_bytes,
            last_snapshot_ms: report.last_snapshot.as_millis(),
            deleted_states: report.deleted_states,
        })?;
        return Ok(Exit::Done);
    }
    output::line(format_args!(
        "state {}, of {}: {} in {}; {} written ({}), read again and compared",
        state.number,
        state.time,
        output::bytes(state.bytes()),
        counted(u64::from(state.pages), "database page"),
        counted(state.written_pages, "page"),
        output::bytes(state.written_bytes),
    ))?;
    output::line(format_args!(
        "last snapshot: open for {} ms, while the log of the store grew by {}",
        report.last_snapshot.as_millis(),
        output::bytes(report.log_bytes),
    ))?;
    if report.deleted_states > 0 {
        output::line(format_args!("{} deleted", counted(report.deleted_states as u64, "older state")))?;
    }
    Ok(Exit::Done)
}

/// Makes a store from a backup, or lists the states of the backup.
pub(crate) async fn restore(arguments: RestoreArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let Some(directory) = arguments.data.filter(|_| !arguments.list) else {
        let states = rashomon_tables_sqlite::backup::states(&arguments.from)?;
        if arguments.json {
            output::json(&states.iter().map(StateOutput::from).collect::<Vec<_>>())?;
            return Ok(Exit::Done);
        }
        for state in states {
            output::line(format_args!(
                "state {}, of {}: {} of {}; {} written",
                state.number,
                state.time,
                output::bytes(state.bytes()),
                state.store.escape_debug(),
                output::bytes(state.written_bytes),
            ))?;
        }
        return Ok(Exit::Done);
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let progress = Progress::new(clock, directory.display().to_string(), "database page", None);
    let options =
        RestoreOptions { folder: arguments.from, directory: directory.clone(), state: arguments.state };
    let work = move |on_progress: rashomon_tables_sqlite::backup::OnProgress<'_>| {
        rashomon_tables_sqlite::backup::restore(&options, on_progress)
    };
    let report = match run(progress, work).await? {
        Ok(report) => report,
        Err(exit) => return Ok(exit),
    };
    if arguments.json {
        let (state, needs_upgrade) = (StateOutput::from(&report.state), report.needs_upgrade);
        output::json(&RestoreOutput { state, needs_upgrade })?;
    } else {
        output::line(format_args!(
            "state {}, of {}, restored into {}: {} in {}, each compared with its hash",
            report.state.number,
            report.state.time,
            directory.display(),
            output::bytes(report.state.bytes()),
            counted(u64::from(report.state.pages), "database page"),
        ))?;
        if report.needs_upgrade {
            output::line(format_args!(
                "the store has an earlier format: run `rashomon upgrade --data {}` before you use it",
                directory.display()
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// Runs blocking work, and shows its progress. The inner error is the exit code of the signal that has
/// interrupted the work.
async fn run<T: Send + 'static>(
    mut progress: Progress,
    work: impl FnOnce(rashomon_tables_sqlite::backup::OnProgress<'_>) -> Result<T, BackupError> + Send + 'static,
) -> Result<Result<T, Exit>, CommandError> {
    let (result, exit) = run_until_signal(move |is_interrupted| {
        let result = work(&mut |copied: BackupProgress| {
            progress.set_total(copied.total);
            progress.show(ProgressCounts {
                items: copied.pages,
                bytes: copied.bytes,
                position: copied.finished,
            });
            !is_interrupted.load(Ordering::Relaxed)
        });
        progress.finish();
        result
    })
    .await?;
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(error @ BackupError::Interrupted) => {
            output::to_stderr(error);
            Ok(Err(exit.unwrap_or(Exit::Interrupted)))
        }
        Err(error) => Err(error.into()),
    }
}
