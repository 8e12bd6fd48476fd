//! `rashomon export --domain NAME`.

mod entries;
mod target;

use std::{future::Future, io, path::Path, sync::Arc, time::Duration};

use rashomon_clock::{Clock, SystemClock};
use rashomon_dumps::{
    CountedItems, ExportError, ExportOptions, ExportReport, Format, Loss, Unreadable, Warning, export,
};
use rashomon_pages::{BucketName, DomainName, Listing, Page};

use self::target::{DeletionWaiter, Target};
use crate::{
    arguments::{ExportArguments, ExportFormat},
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted, thousands},
    page_buckets::{FoundBucket, bucket_label, find_bucket},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// The maximum number of buckets that a warning names.
const MAX_NAMED_BUCKETS: usize = 10;

/// Writes a domain to a file or to standard output.
pub(crate) async fn run(arguments: ExportArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let format = format_of(&arguments)?;
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open_for_reading(&arguments.store, Arc::clone(&clock)).await?;
    let outcome = match find_bucket(&store, &arguments.domain, &arguments.bucket).await {
        Ok(FoundBucket::Pages(bucket)) => {
            Box::pin(write(&arguments, bucket, format, &store, clock, signals)).await
        }
        Ok(FoundBucket::NoPages(_)) => {
            Box::pin(entries::write(&arguments, format, &store, clock, signals)).await
        }
        Err(error) => Err(error),
    };
    store.close().await;
    outcome
}

/// The format of the export.
fn format_of(arguments: &ExportArguments) -> Result<Format, CommandError> {
    let by_name =
        arguments.output.as_deref().map(|path| format_by_ending(path, arguments.format)).transpose()?;
    Ok(match arguments.format.or(by_name.flatten()) {
        Some(ExportFormat::Jsonl) => Format::JsonLines,
        Some(ExportFormat::Xml) | None => Format::Xml,
    })
}

/// The given format, or else that of the suffix of a file. Refuses a suffix of a format or compression that cannot be
/// written.
fn format_by_ending(path: &Path, given: Option<ExportFormat>) -> Result<Option<ExportFormat>, CommandError> {
    let ending = |path: &Path| path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let compressed = matches!(ending(path).as_deref(), Some("gz" | "bz2" | "zst"));
    let inner = if compressed { path.with_extension("") } else { path.to_owned() };
    match (ending(&inner).as_deref(), given) {
        (Some("xz" | "lzma" | "7z" | "zip"), _) => Err(CommandError::Usage(format!(
            "{}: exports are compressed as .gz, .bz2 or .zst, or not at all",
            path.display()
        ))),
        (_, Some(given)) => Ok(Some(given)),
        (Some("xml"), None) => Ok(Some(ExportFormat::Xml)),
        (Some("jsonl" | "ndjson"), None) => Ok(Some(ExportFormat::Jsonl)),
        _ => Err(CommandError::Usage(format!(
            "{}: end the name with .xml or .jsonl (then .gz, .bz2, .zst or nothing), or give --format",
            path.display()
        ))),
    }
}

/// Refuses a domain without data, since its name is probably mistyped.
async fn check_domain(arguments: &ExportArguments, store: &Store) -> Result<(), CommandError> {
    let domains = store.buckets().catalog().domains().await?;
    if !domains.contains(&arguments.domain) {
        let known: Vec<String> = domains.iter().map(ToString::to_string).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("the store has no domain {}; it has {known}", arguments.domain);
        return Err(CommandError::Export(message));
    }
    Ok(())
}

/// Refuses the titles if none of them has a page, before a file is replaced by an empty export.
async fn check_titles(
    arguments: &ExportArguments,
    bucket: &BucketName,
    store: &Store,
) -> Result<(), CommandError> {
    for title in &arguments.titles {
        let page = Page { domain: arguments.domain.clone(), bucket: bucket.clone(), title: title.clone() };
        match store.buckets().latest_render(&page).await {
            Ok(_) => return Ok(()),
            Err(rashomon_pages::Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let Some(first) = arguments.titles.first() else { return Ok(()) };
    let name = bucket_label(&arguments.domain, bucket);
    let message = format!("{name} has no page {first}: nothing was written");
    Err(CommandError::Export(message))
}

/// Names the buckets of a domain that has no page in the bucket `page`: the flag --bucket may have been forgotten.
async fn warn_of_no_pages(
    arguments: &ExportArguments,
    bucket: &BucketName,
    store: &Store,
) -> Result<(), CommandError> {
    let domain = &arguments.domain;
    if *bucket != BucketName::page()
        || !store.buckets().catalog().titles(domain, bucket, None, 1).await?.items.is_empty()
    {
        return Ok(());
    }
    let others = store.key_value().buckets(domain, None, MAX_NAMED_BUCKETS).await;
    let Listing { items, next } = others.map_err(CommandError::of_bucket)?;
    if !items.is_empty() {
        let names: Vec<_> = items.iter().map(|bucket| bucket.name.to_string()).collect();
        let more = if next.is_some() { ", and others" } else { "" };
        output::to_stderr(format_args!(
            "the bucket page of {domain} has no pages, so this export is empty; export another bucket with --bucket: {}{more}",
            names.join(", ")
        ));
    }
    Ok(())
}

async fn write(
    arguments: &ExportArguments,
    bucket: BucketName,
    format: Format,
    store: &Store,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    check_domain(arguments, store).await?;
    check_titles(arguments, &bucket, store).await?;
    warn_of_no_pages(arguments, &bucket, store).await?;
    let (target, gone) = Target::open(arguments.output.as_deref())?;
    let titles = Some(arguments.titles.clone()).filter(|titles| !titles.is_empty());
    let options = ExportOptions { bucket, titles, history: arguments.history, format };
    let mut progress = Progress::new(clock, arguments.domain.to_string(), "revision", None);
    let buckets = store.buckets();
    buckets.maintenance().skip_damage();
    let exported = export(buckets, buckets.catalog(), &arguments.domain, &options, target, |now| {
        progress.show(ProgressCounts { items: now.revisions, bytes: now.bytes, position: 0 });
    });
    let exported = until_signal(exported, &mut signals, gone, arguments.output.is_some()).await;
    progress.finish();
    let (report, target) = match exported {
        Ok(exported) => exported.map_err(|error| export_error(&error, arguments.output.as_deref()))?,
        Err(exit) => return Ok(exit),
    };
    target.finish()?;
    print_unreadable(&report, &arguments.domain);
    print(&report, progress.elapsed());
    Ok(if report.is_clean() { Exit::Done } else { Exit::Partly })
}

/// Waits for the end of an export, or for a signal. The exit code of the signal is the outer error. If the export is
/// not complete, also waits until its temporary file is deleted.
async fn until_signal<T, E>(
    export: impl Future<Output = Result<T, E>>,
    signals: &mut Signals,
    gone: DeletionWaiter,
    has_file: bool,
) -> Result<Result<T, E>, Exit> {
    let exported = tokio::select! {
        exported = Box::pin(export) => Ok(exported),
        exit = signals.first() => Err(exit),
    };
    if !matches!(exported, Ok(Ok(_))) {
        gone.wait().await;
    }
    if exported.is_err() {
        let file = if has_file { ", and the file of --output was not written" } else { "" };
        output::to_stderr(format_args!("stopped: the export is incomplete{file}"));
    }
    exported
}

fn export_error(error: &ExportError, output: Option<&Path>) -> CommandError {
    match error {
        ExportError::Write(source) => write_error(source, output),
        error => CommandError::Export(error.to_string()),
    }
}

/// The error for a target that cannot be written.
fn write_error(source: &io::Error, output: Option<&Path>) -> CommandError {
    if source.kind() == io::ErrorKind::BrokenPipe {
        return CommandError::Export("the reader of the export stopped before its end".to_owned());
    }
    let target = output.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
    CommandError::Export(format!("cannot write {target}: {source}"))
}

/// Reports the losses of the format and the totals on standard error.
fn print(report: &ExportReport, elapsed: Duration) {
    for title in &report.missing {
        output::to_stderr(format_args!("there is no page {title}"));
    }
    print_warnings(&report.left_out, "left out", "more were left out");
    print_warnings(
        &report.invalid,
        "written, although the schema does not allow it",
        "more are not allowed by the schema",
    );
    if report.invalid.first.iter().any(|warning| matches!(warning.loss, Loss::NotUnique { .. })) {
        output::to_stderr(
            "some numbers occur twice: MediaWiki would mix up the pages, and the schema refuses them; \
             export these pages separately with --title, or all pages with --format jsonl, which allows \
             such numbers",
        );
    }
    if report.properties_left_out > 0 {
        output::to_stderr(format_args!(
            "left out, since XML cannot hold properties of renders, such as html: {}; --format jsonl \
             exports them",
            thousands(report.properties_left_out)
        ));
    }
    output::to_stderr(format_args!(
        "{} of {}, {} before compression, in {:.1} s",
        counted(report.revisions, "revision"),
        counted(report.pages, "page"),
        output::bytes(report.bytes),
        elapsed.as_secs_f64(),
    ));
}

/// Reports the data that the store has lost.
fn print_unreadable(report: &ExportReport, domain: &DomainName) {
    for what in &report.damaged.first {
        output::to_stderr(format_args!("damaged: {what}"));
    }
    if report.damaged.count > 0 {
        output::to_stderr(format_args!(
            "{} damaged, besides those of revisions; `rashomon verify --repair` restores rows that can be \
             derived from others",
            counted(report.damaged.count, "row"),
        ));
    }
    for Unreadable { title, revisions: (first, last), count, why } in &report.unreadable.first {
        let revisions = match *count {
            1 => format!("revision {first}"),
            count => format!("up to {} from {first} to {last}", counted(count, "revision")),
        };
        output::to_stderr(format_args!("left out: {revisions} of {title} of {domain}: {why}"));
    }
    if report.unreadable.count > 0 {
        output::to_stderr(format_args!(
            "{} could not be read: they, or some of their renders, are left out; `rashomon verify` names \
             the damage: restore it from a replica or a backup, and export these pages again",
            counted(report.unreadable.count, "revision"),
        ));
    }
}

fn print_warnings(warnings: &CountedItems<Warning>, what: &str, more: &str) {
    for Warning { title, rev, loss } in &warnings.first {
        let rev = rev.map_or_else(String::new, |rev| format!("revision {rev} of "));
        output::to_stderr(format_args!("{what}: {rev}{title}: {loss}"));
    }
    let rest = warnings.count.saturating_sub(warnings.first.len() as u64);
    if rest > 0 {
        output::to_stderr(format_args!("and {} {more}", thousands(rest)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(name: &str, given: Option<ExportFormat>) -> Result<Option<ExportFormat>, String> {
        format_by_ending(Path::new(name), given).map_err(|error| error.to_string())
    }

    #[test]
    fn suffix_determines_the_format() {
        for name in ["a.xml", "a.xml.gz", "a.XML.zst", "b.jsonl/a.xml.bz2"] {
            assert_eq!(by_name(name, None), Ok(Some(ExportFormat::Xml)), "{name}");
        }
        assert_eq!(by_name("a.jsonl.zst", None), Ok(Some(ExportFormat::Jsonl)));
        assert_eq!(by_name("a.txt.zst", Some(ExportFormat::Xml)), Ok(Some(ExportFormat::Xml)));
    }

    #[test]
    fn unknown_suffix_is_refused() {
        assert!(by_name("a.xml.xz", None).unwrap_err().contains(".gz, .bz2 or .zst"));
        assert!(by_name("a.xml.7z", Some(ExportFormat::Xml)).is_err());
        assert!(by_name("a.txt", None).unwrap_err().contains("--format"));
        assert!(by_name("a", None).unwrap_err().contains("--format"));
    }
}
