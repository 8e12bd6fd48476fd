//! `rashomon migrate --from URL --to URL`.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::configuration::StoreUrl;
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{
    migration::{Comparison, Counts, Difference, Migration, MigrationError, MigrationState, Outcome},
    schemas,
};

use crate::{
    arguments::{MigrateArguments, StoreArguments},
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted, thousands},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// Copies one store into another, and compares both stores if --verify is given.
pub(crate) async fn run(arguments: MigrateArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    if name_of(&arguments.from) == name_of(&arguments.to) {
        let message = format!("{} is both --from and --to: name another store", arguments.from);
        return Err(CommandError::Usage(message));
    }
    // The source is opened first, so that no target is created if the source is mistyped.
    let of = |store: &StoreUrl| StoreArguments {
        data: None,
        store: Some(store.clone()),
        config: arguments.config.clone(),
        accept_lost_log: arguments.accept_lost_log,
    };
    let source = Box::pin(Store::open_for_reading(&of(&arguments.from), Arc::clone(&clock))).await?;
    let target = Box::pin(Store::open_target(&of(&arguments.to), &source, Arc::clone(&clock))).await;
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            source.close().await;
            return Err(error);
        }
    };
    let run = MigrationRun { clock, signals, verify: arguments.verify };
    let outcome = Box::pin(run.migrate(&source, &target, &name_of(&arguments.from))).await;
    // In any case, copied rows must be on disk.
    target.close().await;
    source.close().await;
    outcome
}

/// Returns a name that identifies a store. The name of a directory is its canonical path, if there is such a directory.
fn name_of(store: &StoreUrl) -> String {
    let whole = |directory: &Path| std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    match store {
        StoreUrl::Sqlite(directory) => StoreUrl::Sqlite(whole(directory)).to_string(),
        store => store.to_string(),
    }
}

/// A run of the command on open stores.
struct MigrationRun {
    clock: Arc<dyn Clock>,
    signals: Signals,
    verify: bool,
}

impl MigrationRun {
    async fn migrate(mut self, source: &Store, target: &Store, name: &str) -> Result<Exit, CommandError> {
        let (source, target) = (source.tables(), target.tables());
        let tables = schemas::all();
        let mut migration = Migration::begin(source, target, name, &tables, Arc::clone(&self.clock)).await?;
        print_state(migration.state());
        if let Some(exit) = self.copy(&mut migration).await? {
            return Ok(exit);
        }
        let mut exit = Exit::Done;
        if self.verify {
            match self.compare(&migration).await? {
                Ok(same) => exit = if same { Exit::Done } else { Exit::Failed },
                Err(stopped) => return Ok(stopped),
            }
        }
        if migration.damaged_rows() > 0 {
            print_damaged(&migration);
            return Ok(Exit::Failed);
        }
        migration.finish().await?;
        Ok(exit)
    }

    /// Copies the remaining rows. Returns `Some` with the exit code if the command has to end because of a
    /// signal.
    async fn copy(&mut self, migration: &mut Migration) -> Result<Option<Exit>, CommandError> {
        let mut progress = Progress::new(Arc::clone(&self.clock), "copying".to_owned(), "row", None);
        let stop = AtomicBool::new(false);
        let mut copied = Counts::default();
        let mut show = |now: Counts| {
            copied = now;
            progress.show(ProgressCounts { items: now.rows, bytes: now.bytes, position: 0 });
        };
        let mut stop_signal = None;
        let outcome = {
            let copying = migration.copy(&stop, &mut show);
            tokio::pin!(copying);
            loop {
                tokio::select! {
                    outcome = &mut copying => break outcome,
                    exit = self.signals.first(), if stop_signal.is_none() => {
                        stop_signal = Some(exit);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        progress.finish();
        let outcome = outcome.inspect_err(print_next_step)?;
        if let Some(exit) = stop_signal.filter(|_| outcome == Outcome::Stopped || self.verify) {
            output::to_stderr(format_args!(
                "stopped after {}: copied rows stay; to continue, run the same command again",
                counted(copied.rows, "row")
            ));
            return Ok(Some(exit));
        }
        output::line(summary(migration, copied, progress.elapsed()))?;
        Ok(None)
    }

    /// Returns whether both stores have the same content. The inner error is the exit code if a signal asked
    /// the command to stop.
    async fn compare(&mut self, migration: &Migration) -> Result<Result<bool, Exit>, CommandError> {
        let mut progress = Progress::new(Arc::clone(&self.clock), "comparing".to_owned(), "row", None);
        let mut show = |now: Counts| {
            progress.show(ProgressCounts { items: now.rows, bytes: now.bytes, position: 0 });
        };
        let compared = tokio::select! {
            compared = migration.compare(&mut show) => Ok(compared),
            exit = self.signals.first() => Err(exit),
        };
        progress.finish();
        let compared = match compared {
            Ok(compared) => compared.inspect_err(print_next_step)?,
            Err(exit) => {
                output::to_stderr(
                    "stopped while comparing: everything is copied; to compare, run the same command again",
                );
                return Ok(Err(exit));
            }
        };
        let same = compared.iter().all(|one| one.difference.is_none());
        for one in &compared {
            output::line(describe(one))?;
        }
        let rows = compared.iter().map(|one| one.source.rows).sum();
        output::line(format_args!(
            "{}: {} in {}, compared in {:.1} s",
            if same { "the same" } else { "NOT THE SAME" },
            counted(rows, "row"),
            counted(compared.len() as u64, "table"),
            progress.elapsed().as_secs_f64(),
        ))?;
        if !same && compared.iter().all(|one| one.source.damaged == 0 && one.target.damaged == 0) {
            output::to_stderr(
                "one of the stores was written to, or rows were deleted in the source after they were \
                 copied: stop all writers, and migrate into an empty target",
            );
        }
        Ok(Ok(same))
    }
}

fn print_state(state: MigrationState) {
    match state {
        MigrationState::New => {}
        MigrationState::Resumed(before) => output::to_stderr(format_args!(
            "resuming a migration that was interrupted after {}, {}",
            counted(before.rows, "row"),
            output::bytes(before.bytes)
        )),
        MigrationState::Again => {
            output::to_stderr("the target was migrated from this source before: copying all of it again");
        }
    }
}

/// Reports the rows of the source that were not copied.
fn print_damaged(migration: &Migration) {
    for row in migration.describe_damage() {
        output::to_stderr(format_args!("damaged in the source, and not copied: {row}"));
    }
    output::to_stderr(format_args!(
        "{} of the source damaged, and not copied: `rashomon verify --repair` restores rows that can be \
         derived from others; restore the rest from a backup, and run the same command again to copy them",
        counted(migration.damaged_rows(), "row"),
    ));
}

fn print_next_step(error: &MigrationError) {
    if matches!(error, MigrationError::Source(_) | MigrationError::Target(_)) {
        output::to_stderr("copied rows stay: to continue, run the same command again");
    }
}

fn summary(migration: &Migration, copied: Counts, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let mut text = format!(
        "copied {}, {}, in {seconds:.1} s ({} rows/s, {}/s)",
        counted(copied.rows, "row"),
        output::bytes(copied.bytes),
        thousands((copied.rows as f64 / seconds) as u64),
        output::bytes((copied.bytes as f64 / seconds) as u64),
    );
    if matches!(migration.state(), MigrationState::Resumed(_)) {
        let all = migration.copied().map(|(_, counts)| counts.rows).sum();
        text += &format!("; with the rows of earlier runs, {}", counted(all, "row"));
    }
    text
}

/// Describes a comparison: `revisions: 16,251 rows, 00c1d9...`, or the difference.
fn describe(Comparison { table, source, target, difference }: &Comparison) -> String {
    match difference {
        _ if source.damaged + target.damaged > 0 => format!(
            "  {table}: DAMAGED, {} of the source and {} of the target cannot be read",
            counted(source.damaged, "row"),
            counted(target.damaged, "row"),
        ),
        None if source == target => format!("  {table}: {}, {source}", counted(source.rows, "row")),
        None => {
            format!("  {table}: {}; others expired while they were compared", counted(target.rows, "row"))
        }
        Some(Difference { partition, source: here, target: there }) => format!(
            "  {table}: DIFFERENT, {} in the source and {} in the target; first in {partition}, of which the \
             source has {} and the target {}",
            counted(source.rows, "row"),
            thousands(target.rows),
            counted(here.rows, "row"),
            thousands(there.rows),
        ),
    }
}
