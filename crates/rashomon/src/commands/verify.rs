//! `rashomon verify`.

use std::sync::Arc;

use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::operations::MIN_ORPHAN_AGE;

use crate::{
    arguments::VerifyArguments,
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// Checks a store, and names each problem.
pub(crate) async fn run(arguments: VerifyArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = if arguments.repair && !arguments.dry_run {
        Store::open_for_repair(&arguments.store, Arc::clone(&clock)).await?
    } else {
        Store::open_for_reading(&arguments.store, Arc::clone(&clock)).await?
    };
    let verified = tokio::select! {
        verified = Box::pin(run_on(&store, &arguments, clock)) => verified,
        exit = signals.first() => Ok(exit),
    };
    store.close().await;
    verified
}

async fn run_on(
    store: &Store,
    arguments: &VerifyArguments,
    clock: Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    if arguments.repair {
        repair(store, arguments.dry_run).await?;
    }
    verify(store, clock).await
}

/// Repairs keys, restores rows that can be derived from undamaged rows, and prints these repairs. After the first
/// 1,000, restored rows are only counted. With `dry_run`, changes nothing.
async fn repair(store: &Store, dry_run: bool) -> Result<(), CommandError> {
    let verb = if dry_run { "would be repaired" } else { "repaired" };
    let keys = repair_keys(store, dry_run).await?;
    keys.iter().try_for_each(|repair| output::line(format_args!("{verb}: {repair}")))?;
    let report = rashomon_pages::operations::repair(store.buckets(), dry_run).await?;
    report.repairs.iter().try_for_each(|repair| output::line(format_args!("{verb}: {repair}")))?;
    let all = (keys.len() + report.repairs.len()) as u64 + report.more_repairs;
    output::line(format_args!("{} {verb}", counted(all, "row")))?;
    Ok(())
}

/// Restores flipped bits of the keys of a SQLite store, unless `dry_run` is set. Refuses if the page structure of the
/// file is damaged. Returns a line for each repair.
async fn repair_keys(store: &Store, dry_run: bool) -> Result<Vec<String>, CommandError> {
    let Some(sqlite) = store.sqlite() else { return Ok(Vec::new()) };
    let planning = Arc::clone(&sqlite);
    let planned = tokio::task::spawn_blocking(move || planning.plan_key_repair()).await;
    let planned = planned.map_err(|error| CommandError::TaskFailed(error.to_string()))?;
    let plan = planned.map_err(rashomon_pages::Error::from)?;
    if dry_run {
        // The dry run of the other repairs then reads these keys as if they were restored.
        sqlite.read_as_repaired();
    } else {
        sqlite.repair_keys(&plan).await.map_err(rashomon_pages::Error::from)?;
    }
    Ok(plan.repairs)
}

/// The problems that were found in a store.
#[derive(Debug, Default)]
struct Problems {
    named: Vec<String>,
    more: u64,
}

async fn verify(store: &Store, clock: Arc<dyn Clock>) -> Result<Exit, CommandError> {
    let started = clock.monotonic();
    let mut problems = Problems::default();
    check_files(store, &clock, &mut problems).await?;
    let counts = check_buckets(store, &clock, &mut problems).await?;
    if let Some(cluster) = store.cluster() {
        output::line(format_args!(
            "to check the files of the nodes, run `nodetool verify -f {}` on each node",
            cluster.keyspace()
        ))?;
    }
    problems.named.iter().try_for_each(output::line)?;
    if problems.more > 0 {
        output::line(format_args!("and {} more", counted(problems.more, "problem")))?;
    }
    let sound = problems.named.is_empty();
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    output::line(format_args!("{}: {counts}, in {seconds:.1} s", if sound { "sound" } else { "NOT SOUND" }))?;
    Ok(if sound { Exit::Done } else { Exit::Failed })
}

/// With SQLite, compares every row with its checksum, and runs SQLite's own check of the file.
async fn check_files(
    store: &Store,
    clock: &Arc<dyn Clock>,
    problems: &mut Problems,
) -> Result<(), CommandError> {
    let Some(sqlite) = store.sqlite() else { return Ok(()) };
    let clock = Arc::clone(clock);
    let checked = tokio::task::spawn_blocking(move || {
        let mut progress: Option<Progress> = None;
        let report = sqlite.check(|now| {
            let total = Some(now.file_bytes);
            let progress =
                progress.get_or_insert_with(|| Progress::new(clock.clone(), "rows".to_owned(), "row", total));
            progress.show(ProgressCounts { items: now.rows, bytes: now.bytes, position: now.bytes });
        });
        progress.iter().for_each(Progress::finish);
        report
    });
    let report = checked.await.map_err(|error| CommandError::TaskFailed(error.to_string()))?;
    let report = report.map_err(rashomon_pages::Error::from)?;
    problems.named.extend(report.problems);
    problems.more += report.more_problems;
    Ok(())
}

/// Compares the content of rows: bodies with their SHA-1, and indexes with their targets. Returns a text with
/// the numbers of checked pages, revisions, renders, bodies, entries and blocks.
async fn check_buckets(
    store: &Store,
    clock: &Arc<dyn Clock>,
    problems: &mut Problems,
) -> Result<String, CommandError> {
    let mut progress = Progress::new(Arc::clone(clock), "bodies".to_owned(), "text", None);
    let mut show = |verified| progress.show_verified(verified);
    let verified = match rashomon_pages::operations::verify(store.buckets(), &mut show).await {
        Ok(report) => {
            store.buckets().maintenance().count_orphans(MIN_ORPHAN_AGE).await.map(|orphans| (report, orphans))
        }
        Err(error) => Err(error),
    };
    progress.finish();
    let (report, orphans) = match verified {
        Ok(verified) => verified,
        Err(rashomon_pages::Error::Store(error @ rashomon_tables::Error::Corrupt(_))) => {
            problems.named.push(format!("{error}; the rows after it were not compared"));
            return Ok("not everything could be read".to_owned());
        }
        Err(error) => return Err(error.into()),
    };
    problems.named.extend(report.problems);
    problems.more += report.more_problems;
    if orphans > 0 {
        output::line(format_args!(
            "{} in chunks that no property references: `rashomon serve` deletes them at the interval \
             collect_every",
            output::bodies(orphans)
        ))?;
    }
    let blocks = match report.blocks {
        0 => String::new(),
        blocks => format!(", {}", counted(blocks, "block")),
    };
    let entries = match report.entries {
        0 => String::new(),
        entries => format!(", {}", output::entries(entries)),
    };
    Ok(format!(
        "{}, {}, {}, {} of {}{entries}{blocks}",
        counted(report.pages, "page"),
        counted(report.revisions, "revision"),
        counted(report.renders, "render"),
        output::bodies(report.bodies),
        output::bytes(report.bytes),
    ))
}
