//! `rashomon upgrade`.

use std::{path::PathBuf, sync::Arc};

use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::schemas;
use rashomon_tables::{Error, Outage};
use rashomon_tables_cassandra::CassandraStore;
use rashomon_tables_sqlite::{
    MissingSpace, UpgradeOptions, UpgradeOutcome, UpgradeProgress, UpgradeReport, UpgradeStep,
};
use serde_json::json;

use crate::{
    arguments::UpgradeArguments,
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted},
    progress::{Progress, ProgressCounts},
    signals::{Signals, run_until_signal},
    store::{Store, StoreToUpgrade},
};

/// Converts a store to the format of this program.
pub(crate) async fn run(arguments: UpgradeArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    match Store::find_for_upgrade(&arguments.store, Arc::clone(&clock)).await? {
        StoreToUpgrade::Sqlite(directory) => upgrade_file(&arguments, directory, clock).await,
        StoreToUpgrade::Cassandra(cluster) => {
            let mut signals = Signals::listen()?;
            tokio::select! {
                exit = Box::pin(upgrade_cluster(&cluster, arguments.json)) => exit,
                exit = signals.first() => Ok(exit),
            }
        }
    }
}

/// Adds the columns that the tables of a cluster lack.
async fn upgrade_cluster(cluster: &CassandraStore, json: bool) -> Result<Exit, CommandError> {
    let mut changed_tables = Vec::new();
    for schema in schemas::all() {
        if cluster.upgrade(schema).await.map_err(CommandError::Open)? {
            if !json {
                output::line(format_args!("table {}: columns added", schema.name()))?;
            }
            changed_tables.push(schema.name());
        }
    }
    if json {
        output::json(&json!({ "changed_tables": changed_tables }))?;
    } else if changed_tables.is_empty() {
        output::line("no table lacks columns: nothing was changed")?;
    }
    Ok(Exit::Done)
}

/// Converts the file of a SQLite store.
async fn upgrade_file(
    arguments: &UpgradeArguments,
    directory: PathBuf,
    clock: Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    let options = UpgradeOptions {
        directory,
        schemas: schemas::all().to_vec(),
        accept_lost_log: arguments.store.accept_lost_log,
        keeps_old_file: arguments.keep_old,
    };
    let started = clock.monotonic();
    let of_progress = Arc::clone(&clock);
    let (outcome, exit) = run_until_signal(move |is_interrupted| {
        let mut shown: Option<(UpgradeStep, Progress)> = None;
        let outcome = rashomon_tables_sqlite::upgrade(&options, is_interrupted, &mut |now| {
            show(&mut shown, &of_progress, now);
        });
        shown.iter().for_each(|(_, progress)| progress.finish());
        outcome
    })
    .await?;
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    match outcome.map_err(upgrade_error)? {
        UpgradeOutcome::Upgraded(report) => report_upgrade(report, seconds, arguments.json),
        UpgradeOutcome::Current { format } => {
            if arguments.json {
                output::json(&json!({ "from": format, "to": format }))?;
            } else {
                output::line(format_args!(
                    "the store has format version {format} already: nothing was changed"
                ))?;
            }
            Ok(Exit::Done)
        }
        UpgradeOutcome::MissingSpace(missing) => Err(CommandError::Upgrade(describe_missing(&missing))),
        UpgradeOutcome::Interrupted => {
            let advice = "the store is as it was before: run the command again to upgrade it";
            output::to_stderr(format_args!("interrupted; {advice}"));
            Ok(exit.unwrap_or(Exit::Interrupted))
        }
    }
}

/// Shows the progress of a step. Each step has a line or a bar of its own.
fn show(shown: &mut Option<(UpgradeStep, Progress)>, clock: &Arc<dyn Clock>, now: UpgradeProgress) {
    if shown.as_ref().is_none_or(|(step, _)| *step != now.step) {
        let (label, total) = match now.step {
            UpgradeStep::Copy => ("copying", Some(now.total_bytes)),
            UpgradeStep::Compare => ("comparing", Some(now.total_bytes)),
            UpgradeStep::Check => ("checking the new file", None),
        };
        let progress = Progress::new(Arc::clone(clock), label.to_owned(), "row", total);
        shown.replace((now.step, progress)).iter().for_each(|(_, progress)| progress.finish());
    }
    if let Some((_, progress)) = shown {
        progress.show(ProgressCounts { items: now.rows, bytes: now.bytes, position: now.bytes });
    }
}

fn report_upgrade(report: UpgradeReport, seconds: f64, json: bool) -> Result<Exit, CommandError> {
    let damaged_rows = report.damaged_rows.len() as u64 + report.more_damaged_rows;
    for row in &report.damaged_rows {
        output::to_stderr(format_args!("damaged, and copied as it is: {row}"));
    }
    if damaged_rows > 0 {
        output::to_stderr(format_args!(
            "{} were copied as they are; run `rashomon verify`, and see docs/verify.md",
            counted(damaged_rows, "damaged row")
        ));
    }
    let exit = if damaged_rows > 0 { Exit::Partly } else { Exit::Done };
    let UpgradeReport { from, to, rows, bytes_before, bytes_after, restored_keys, .. } = report;
    if json {
        output::json(&json!({
            "from": from,
            "to": to,
            "rows": rows,
            "before_bytes": bytes_before,
            "after_bytes": bytes_after,
            "damaged_rows": damaged_rows,
            "restored_keys": restored_keys,
            "changed_tables": report.grown_tables,
            "old_file": report.old_file,
            "seconds": seconds,
        }))?;
        return Ok(exit);
    }
    output::line(format_args!(
        "upgraded from format version {from} to {to}: {}, copied and compared, in {seconds:.1} s",
        counted(rows, "row")
    ))?;
    let (before, after) = (output::bytes(bytes_before), output::bytes(bytes_after));
    output::line(format_args!("before: {before}; after: {after}"))?;
    for table in report.grown_tables {
        output::line(format_args!("table {table}: columns added"))?;
    }
    if restored_keys > 0 {
        let keys = counted(restored_keys, "key");
        output::line(format_args!("{keys} with a flipped bit restored"))?;
    }
    if let Some(old_file) = report.old_file {
        output::line(format_args!("the old file is {}", old_file.display()))?;
    }
    Ok(exit)
}

fn describe_missing(missing: &MissingSpace) -> String {
    format!(
        "not enough disk space for the new file: the upgrade needs {} in {}, and {} are free. Nothing was \
         changed: free {} more, and run the command again",
        output::bytes(missing.needed_bytes),
        missing.directory.display(),
        output::bytes(missing.free_bytes),
        output::bytes(missing.needed_bytes.saturating_sub(missing.free_bytes)),
    )
}

/// Converts an error of the upgrade.
fn upgrade_error(error: Error) -> CommandError {
    match error {
        Error::Unavailable(outage @ Outage::StorageFull { .. }) => CommandError::Upgrade(format!(
            "{outage}: the store is as it was before: free more space, and run the command again"
        )),
        // After the rename, only the synchronization of the directory can fail.
        Error::Unavailable(outage) if outage.is_caused_by_disk() => CommandError::Upgrade(format!(
            "{outage}: the old file, or the complete new file, is in its place: check the disk, and run the \
             command again"
        )),
        error => CommandError::Open(error),
    }
}
