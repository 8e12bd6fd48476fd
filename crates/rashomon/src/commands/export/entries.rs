//! The export of a key-value bucket.

use std::{sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_dumps::Format;
use rashomon_dumps::entries::{EntryExportError, EntryExportReport, export_entries};
use rashomon_entries::Bucket;

use super::{check_domain, target::Target, until_signal, write_error};
use crate::{
    arguments::ExportArguments,
    errors::CommandError,
    exit::Exit,
    output::{self, entries},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// Refuses flags that are for pages only. Entries have only one format.
fn check_arguments(arguments: &ExportArguments, format: Format) -> Result<(), CommandError> {
    let bucket = &arguments.bucket;
    let wrong = if !arguments.titles.is_empty() {
        "--title"
    } else if arguments.history {
        "--history"
    } else if format == Format::Xml && (arguments.format.is_some() || arguments.output.is_some()) {
        return Err(CommandError::Usage(format!(
            "entries of the bucket {bucket} are exported as JSON lines: end the name of --output with .jsonl (then \
             .gz, .bz2, .zst or nothing), or use --format jsonl"
        )));
    } else {
        return Ok(());
    };
    Err(CommandError::Usage(format!("{wrong} is for pages, and the bucket {bucket} has none: omit {wrong}")))
}

/// Writes the entries of the bucket.
pub(super) async fn write(
    arguments: &ExportArguments,
    format: Format,
    store: &Store,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    check_domain(arguments, store).await?;
    let bucket = bucket_of(arguments, store).await?;
    check_arguments(arguments, format)?;
    let (target, gone) = Target::open(arguments.output.as_deref())?;
    let label = format!("{}/{}", arguments.domain, arguments.bucket);
    let mut progress = Progress::new(clock, label, "entry", None);
    let exported = export_entries(store.key_value(), &bucket, target, |now| {
        progress.show(ProgressCounts { items: now.entries, bytes: now.body_bytes, position: 0 });
    });
    let exported = until_signal(exported, &mut signals, gone, arguments.output.is_some()).await;
    progress.finish();
    let (report, target) = match exported {
        Ok(exported) => exported.map_err(|error| failure(&error, arguments))?,
        Err(exit) => return Ok(exit),
    };
    target.finish()?;
    print(&report, progress.elapsed());
    Ok(if report.unreadable.is_empty() { Exit::Done } else { Exit::Partly })
}

async fn bucket_of(arguments: &ExportArguments, store: &Store) -> Result<Arc<Bucket>, CommandError> {
    let (domain, name) = (&arguments.domain, &arguments.bucket);
    let bucket = store.key_value().bucket(domain, name).await.map_err(CommandError::of_bucket)?;
    bucket.ok_or_else(|| {
        CommandError::Export(format!(
            "{domain} has no bucket {name}: `rashomon bucket list {domain}` lists the existing buckets; nothing was \
             written"
        ))
    })
}

fn failure(error: &EntryExportError, arguments: &ExportArguments) -> CommandError {
    match error {
        EntryExportError::Write(source) => write_error(source, arguments.output.as_deref()),
        error => CommandError::Export(error.to_string()),
    }
}

fn print(report: &EntryExportReport, elapsed: Duration) {
    for what in &report.unreadable.first {
        output::to_stderr(format_args!("left out: {what}"));
    }
    if report.unreadable.count > 0 {
        output::to_stderr(format_args!(
            "{} could not be read and are left out; `rashomon verify` names the damage: restore them from a \
             replica or a backup, and export the bucket again",
            entries(report.unreadable.count),
        ));
    }
    output::to_stderr(format_args!(
        "{} with {} in bodies, in {:.1} s",
        entries(report.entries),
        output::bytes(report.body_bytes),
        elapsed.as_secs_f64(),
    ));
}
