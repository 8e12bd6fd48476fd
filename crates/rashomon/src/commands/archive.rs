//! `rashomon archive`.

mod erase;

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt, stream};

use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::operations::{PageStats, PropertyStats};
use rashomon_pages::{
    ArchiveSettings, ArchiveStats, BucketName, CompactionOptions, CompactionReport, DomainName, FoundDamage,
    SealOptions, SealReport,
};
use serde::Serialize;

use super::stats::stats_of;
use crate::{
    arguments::{
        ArchiveCommand, ArchiveStatsArguments, ArchiveVerifyArguments, EraseArguments, MergeArguments,
        SealArguments,
    },
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted, share, thousands},
    page_buckets::{bucket_label, domains, page_buckets},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::{IfMissing, Store},
};

/// Runs a command of `rashomon archive`.
pub(crate) async fn run(command: ArchiveCommand) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = match &command {
        ArchiveCommand::Seal(arguments) => Store::open_for_sealing(arguments, Arc::clone(&clock)).await?,
        ArchiveCommand::Merge(MergeArguments { store, .. })
        | ArchiveCommand::Erase(EraseArguments { store, .. }) => {
            Store::open_offline(store, Arc::clone(&clock), IfMissing::Refuse).await?
        }
        ArchiveCommand::Verify(ArchiveVerifyArguments { store })
        | ArchiveCommand::Stats(ArchiveStatsArguments { store, .. }) => {
            Store::open_for_reading(store, Arc::clone(&clock)).await?
        }
    };
    let drops_renders =
        || store.buckets().settings().archive.as_ref().is_some_and(ArchiveSettings::drops_renders);
    match &command {
        ArchiveCommand::Seal(SealArguments { trust_clock, .. }) if drops_renders() => {
            store.check_clock(&clock, *trust_clock);
        }
        ArchiveCommand::Merge(MergeArguments { trust_clock, .. })
        | ArchiveCommand::Erase(EraseArguments { trust_clock, .. })
            if store.cluster().is_some() =>
        {
            store.check_clock(&clock, *trust_clock);
        }
        _ => {}
    }
    let done = tokio::select! {
        done = Box::pin(work(&command, &store, &clock)) => done,
        exit = signals.first() => Ok(exit),
    };
    store.close().await;
    done
}

async fn work(command: &ArchiveCommand, store: &Store, clock: &Arc<dyn Clock>) -> Result<Exit, CommandError> {
    match command {
        ArchiveCommand::Seal(arguments) => seal(arguments, store, clock).await,
        ArchiveCommand::Merge(arguments) => merge(arguments, store, clock).await,
        ArchiveCommand::Erase(arguments) if arguments.status => erase::status(arguments, store).await,
        ArchiveCommand::Erase(arguments) => erase::erase(arguments, store).await,
        ArchiveCommand::Verify(_) => verify(store, clock).await,
        ArchiveCommand::Stats(arguments) => stats(arguments, store, clock).await,
    }
}

/// The maximum number of damaged rows that are named.
const MAX_NAMED: usize = 20;

/// The number of buckets that are sealed at once. With many small wikis, a seal waits for the disk most of the time, and
/// several commits need the disk once. Each seal has one block in memory.
const BUCKETS_AT_ONCE: usize = 16;

async fn seal(
    arguments: &SealArguments,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    let buckets = page_buckets(store, arguments.domain.as_ref()).await?;
    let progress = Progress::new(Arc::clone(clock), String::new(), "revision", None);
    let shown = Mutex::new((progress, ProgressCounts::default()));
    let lock = || shown.lock().unwrap_or_else(PoisonError::into_inner);
    let seals = buckets.into_iter().map(async |(domain, bucket)| {
        let name = bucket_label(&domain, &bucket);
        let mut before = SealReport::default();
        let mut show = |sealed: &SealReport| {
            let (progress, counts) = &mut *lock();
            counts.items += sealed.revisions - before.revisions;
            counts.bytes += sealed.raw_bytes - before.raw_bytes;
            before = *sealed;
            progress.set_label(name.clone());
            progress.show(*counts);
        };
        let maintenance = store.buckets().maintenance();
        let sealed = maintenance.seal(&domain, &bucket, SealOptions::default(), &mut show).await;
        sealed.map(|sealed| (name, sealed))
    });
    let mut seals = pin!(stream::iter(seals).buffered(BUCKETS_AT_ONCE));
    let mut damaged = 0;
    while let Some(sealed) = seals.next().await {
        let (name, sealed) = sealed.inspect_err(|_| lock().0.finish())?;
        damaged += sealed.damaged();
        lock().0.above(|| output::line(format_args!("{name}: {}", describe_seal(&sealed))))?;
    }
    lock().0.finish();
    Ok(if print_damaged_rows(store) || damaged > 0 { Exit::Failed } else { Exit::Done })
}

fn describe_seal(sealed: &SealReport) -> String {
    let mut words = format!(
        "sealed {} with {} of {}, {} in {}",
        counted(sealed.revisions, "revision"),
        counted(sealed.renders, "render"),
        counted(sealed.pages, "page"),
        output::bytes(sealed.raw_bytes),
        share(sealed.raw_bytes, sealed.stored_bytes),
    );
    words.push_str(&format!(", {}", counted(sealed.blocks, "block")));
    if sealed.left > 0 {
        words.push_str(&format!(
            "; {} not sealed yet, since new, being changed, or without some bodies",
            counted(sealed.left, "revision")
        ));
    }
    if sealed.too_large > 0 {
        words.push_str(&format!(
            "; {} not sealed, since larger than a block allows",
            counted(sealed.too_large, "revision")
        ));
    }
    if sealed.damaged() > 0 {
        words.push_str(&format!(
            "; {} not sealed, since damaged: see `rashomon verify`",
            counted(sealed.damaged(), "revision")
        ));
    }
    words
}

async fn merge(
    arguments: &MergeArguments,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    let mut exit = Exit::Done;
    for (domain, bucket) in page_buckets(store, arguments.domain.as_ref()).await? {
        let name = bucket_label(&domain, &bucket);
        let mut progress = Progress::new(Arc::clone(clock), name.clone(), "revision", None);
        let mut show = |merged: &CompactionReport| {
            progress.show(ProgressCounts {
                items: merged.revisions,
                bytes: merged.raw_bytes,
                position: merged.pages,
            });
        };
        let options = CompactionOptions::default();
        let merged =
            store.buckets().maintenance().compact_archive(&domain, &bucket, options, &mut show).await;
        progress.finish();
        let merged = merged?;
        let mut words = format!(
            "looked at {}, and merged {} of blocks with {}: {} in {}, {}",
            counted(merged.pages, "page"),
            counted(merged.parts, "part"),
            counted(merged.revisions, "revision"),
            output::bytes(merged.raw_bytes),
            share(merged.raw_bytes, merged.stored_bytes),
            counted(merged.blocks, "block"),
        );
        if merged.kept > 0 {
            words.push_str(&format!(
                "; {} not merged, since they or parts grouped with them are damaged: see `rashomon archive verify`",
                counted(merged.kept, "part")
            ));
            exit = Exit::Failed;
        }
        output::line(format_args!("{name}: {words}"))?;
    }
    let collected = store.buckets().maintenance().collect_blocks().await?;
    if collected > 0 {
        output::line(format_args!(
            "deleted {} that no page references any more",
            counted(collected, "block")
        ))?;
    }
    Ok(exit)
}

async fn verify(store: &Store, clock: &Arc<dyn Clock>) -> Result<Exit, CommandError> {
    let started = clock.monotonic();
    let mut progress = Progress::new(Arc::clone(clock), "archive".to_owned(), "block", None);
    let mut show = |verified| progress.show_verified(verified);
    let deleted = store.key_value().deleted_page_buckets().await.map_err(rashomon_pages::Error::from)?;
    let verified = store.buckets().maintenance().verify_archive(&deleted, &mut show).await;
    progress.finish();
    let report = verified?;
    report.problems.iter().try_for_each(output::line)?;
    if report.more_problems > 0 {
        output::line(format_args!("and {} more", counted(report.more_problems, "problem")))?;
    }
    let sound = report.problems.is_empty();
    let (words, blocks) = (if sound { "sound" } else { "NOT SOUND" }, counted(report.blocks, "block"));
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    output::line(format_args!("{words}: {blocks}, in {seconds:.1} s"))?;
    Ok(if sound { Exit::Done } else { Exit::Failed })
}

/// The content of a bucket's archive.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    archive: ArchiveStats,
    /// The size of blocks and index, in per cent of the uncompressed bodies.
    percent: Option<f64>,
    /// The goal for that size, from measurements of real wikis: see docs/benchmarks.md.
    goal_percent: Option<f64>,
    /// The figures of each property.
    properties: BTreeMap<String, PropertyReport>,
}

/// The goals for the size of blocks and index, in per cent of the uncompressed wikitext and html of a whole
/// wiki.
const SIZE_GOALS: [(&str, f64); 2] = [("wikitext", 1.9), ("html", 0.4)];

/// The goal for bodies of several properties: the mean of their goals, weighted by their bytes. Other
/// properties have no goal.
fn goal(properties: &BTreeMap<String, PropertyReport>) -> Option<f64> {
    let with_goals =
        SIZE_GOALS.iter().filter_map(|(name, goal)| Some((properties.get(*name)?.raw_bytes as f64, goal)));
    let (bytes, weighted) =
        with_goals.fold((0.0, 0.0), |(sum, weighted), (bytes, goal)| (sum + bytes, weighted + bytes * goal));
    (bytes > 0.0).then(|| weighted / bytes)
}

/// The figures of a property: its bodies in blocks, and its bodies in tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct PropertyReport {
    bodies: u64,
    raw_bytes: u64,
    stored_bytes: u64,
    /// Stored bytes in per cent of uncompressed bytes.
    percent: Option<f64>,
    blocks: u64,
    open_bodies: u64,
    open_raw_bytes: u64,
    open_stored_bytes: u64,
}

fn percent(raw: u64, stored: u64) -> Option<f64> {
    (raw > 0).then(|| stored as f64 * 100.0 / raw as f64)
}

impl PropertyReport {
    fn of(stats: &PropertyStats) -> Self {
        Self {
            bodies: stats.archived,
            raw_bytes: stats.archived_raw_bytes,
            stored_bytes: stats.archived_stored_bytes,
            percent: percent(stats.archived_raw_bytes, stats.archived_stored_bytes),
            blocks: stats.blocks,
            open_bodies: stats.bodies.saturating_sub(stats.archived),
            open_raw_bytes: stats.raw_bytes.saturating_sub(stats.archived_raw_bytes),
            open_stored_bytes: stats.stored_bytes,
        }
    }
}

impl Report {
    fn of(stats: PageStats) -> Self {
        let open = ArchiveStats { open_revisions: stats.revisions, ..ArchiveStats::default() };
        let archive = stats.archive.unwrap_or(open);
        let properties: BTreeMap<_, _> =
            stats.properties.iter().map(|(name, of)| (name.to_string(), PropertyReport::of(of))).collect();
        let percent = percent(archive.raw_bytes, archive.block_bytes + archive.index_bytes);
        Self { percent, goal_percent: goal(&properties), archive, properties }
    }

    fn print(&self, domain: &DomainName, bucket: &BucketName) -> Result<(), CommandError> {
        let archive = &self.archive;
        let open = counted(archive.open_revisions, "revision");
        if archive.blocks == 0 {
            output::line(format_args!("{domain}/{bucket}: nothing in blocks; {open} not in blocks"))?;
        } else {
            let left_out = match archive.left_out {
                0 => String::new(),
                count => format!(" ({} of them not kept)", thousands(count)),
            };
            output::line(format_args!(
                "{domain}/{bucket}: {} and {}{left_out} in {}, {} in {}; an index of {} in {}; {open} not in blocks",
                counted(archive.revisions, "revision"),
                counted(archive.renders, "render"),
                counted(archive.blocks, "block"),
                output::bytes(archive.raw_bytes),
                share(archive.raw_bytes, archive.block_bytes),
                counted(archive.index_rows, "row"),
                output::bytes(archive.index_bytes),
            ))?;
        }
        if let (Some(percent), Some(goal)) = (self.percent, self.goal_percent) {
            output::line(format_args!(
                "  blocks and index: {percent:.2} %; the goal for a wiki with a long history is {goal:.2} %"
            ))?;
        }
        for (name, of) in &self.properties {
            output::line(format_args!(
                "  {name}: {} times in {}, {} in {}; in tables {} times, {} in {}",
                thousands(of.bodies),
                counted(of.blocks, "block"),
                output::bytes(of.raw_bytes),
                share(of.raw_bytes, of.stored_bytes),
                thousands(of.open_bodies),
                output::bytes(of.open_raw_bytes),
                share(of.open_raw_bytes, of.open_stored_bytes),
            ))?;
        }
        if archive.blocks > 0 {
            let records = output::bytes(archive.record_bytes);
            output::line(format_args!("  records and checksums: {records} of the blocks"))?;
        }
        Ok(())
    }
}

async fn stats(
    arguments: &ArchiveStatsArguments,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    store.buckets().maintenance().skip_damage();
    let domains = domains(store, arguments.domain.as_ref()).await?;
    let mut reports = BTreeMap::new();
    for (domain, stats) in stats_of(store, clock, &domains).await? {
        let buckets = stats.into_page_buckets().map(|(bucket, stats)| (bucket, Report::of(stats)));
        reports.insert(domain, buckets.collect::<BTreeMap<_, _>>());
    }
    if arguments.json {
        output::json(&reports)?;
    } else {
        for (domain, buckets) in &reports {
            buckets.iter().try_for_each(|(bucket, report)| report.print(domain, bucket))?;
        }
    }
    let all = reports.values().flat_map(BTreeMap::values);
    let blocks = print_damaged_blocks(all.map(|report| &report.archive));
    Ok(if print_damaged_rows(store) { Exit::Failed } else { blocks })
}

/// Reports the damaged rows that were skipped, and names the first on standard error. Returns whether there are any.
fn print_damaged_rows(store: &Store) -> bool {
    print_damage(&store.buckets().found_damage(), &[])
}

/// Reports damaged rows, each once, and names the first on standard error. Returns whether there are any. `found` are
/// the rows that reads skipped, and `in_file` those that a count of a SQLite file has found.
pub(super) fn print_damage(found: &[FoundDamage], in_file: &[String]) -> bool {
    let known: BTreeSet<_> = found.iter().filter_map(|found| row_in_file(&found.reason)).collect();
    let is_new = |text: &&String| row_in_file(text).is_none_or(|row| !known.contains(row));
    let others = in_file.iter().filter(is_new).cloned();
    let found = found.iter().map(|row| format!("table {}, {}: {}", row.table, row.row, row.reason));
    let found: Vec<_> = found.chain(others).collect();
    for row in found.iter().take(MAX_NAMED) {
        output::to_stderr(format_args!("damaged: {row}"));
    }
    if !found.is_empty() {
        output::to_stderr(format_args!(
            "{} damaged: `rashomon verify --repair` restores rows that can be derived from others; restore \
             the rest from a backup",
            counted(found.len() as u64, "row")
        ));
    }
    !found.is_empty()
}

/// Returns the key and the table of a damaged row in a SQLite file: `the row KEY of table NAME`.
fn row_in_file(text: &str) -> Option<&str> {
    let text = &text[text.find("the row ")?..];
    let table = text.rfind(" of table ")?;
    Some(&text[..table + text[table..].find(':')?])
}

/// Reports on standard error how many blocks are damaged, or of a later version. Returns the exit code.
pub(super) fn print_damaged_blocks<'a>(archives: impl Iterator<Item = &'a ArchiveStats>) -> Exit {
    let counts = archives.map(|archive| (archive.damaged_blocks, archive.newer_blocks));
    let (damaged, newer) = counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    if newer > 0 {
        let written = match newer {
            1 => "1 block was written by a later version".to_owned(),
            blocks => format!("{} blocks were written by a later version", thousands(blocks)),
        };
        output::to_stderr(format_args!(
            "{written}, and cannot be read or counted: use that version of Rashomon, or a later one"
        ));
    }
    if damaged == 0 {
        return if newer == 0 { Exit::Done } else { Exit::Failed };
    }
    let damaged = match damaged {
        1 => "1 block is damaged".to_owned(),
        blocks => format!("{} blocks are damaged", thousands(blocks)),
    };
    output::to_stderr(format_args!(
        "{damaged}, and unreadable content is not counted: `rashomon archive verify` names the damage; \
         restore the damaged blocks from a replica or a backup"
    ));
    Exit::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_is_weighted_by_the_bytes_of_properties() {
        let of = |properties: &[(&str, u64)]| {
            let archived = properties.iter().map(|(name, raw_bytes)| {
                ((*name).to_owned(), PropertyReport { raw_bytes: *raw_bytes, ..PropertyReport::default() })
            });
            goal(&archived.collect()).map(|goal| (goal * 100.0).round() / 100.0)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("data-parsoid", 9)]), None);
        assert_eq!(of(&[("wikitext", 5)]), Some(1.9));
        assert_eq!(of(&[("wikitext", 100), ("html", 200), ("data-parsoid", 9)]), Some(0.9));
    }
}
