//! `rashomon retention`.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{BucketName, DomainName, DryRun, Policy, RevisionStore, Sweep};
use serde::Serialize;

use crate::{
    arguments::RetentionArguments,
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted, thousands},
    page_buckets::{bucket_label, page_buckets},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// The values that the policies would delete. With --now, also the number of values that were deleted.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// The policy, if all buckets have the same policy.
    policy: Option<String>,
    /// The buckets, as `enwiki` for the bucket `page`, and `enwiki/docs` for another one.
    domains: BTreeMap<String, BucketReport>,
    /// The buckets for which the configuration keeps everything.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    kept: BTreeSet<String>,
    #[serde(flatten)]
    culled: Option<CullReport>,
}

/// The values that the policy of a bucket would delete.
#[derive(Debug, Serialize)]
struct BucketReport {
    policy: String,
    #[serde(flatten)]
    run: DryRun,
}

/// The number of deleted values, and the reasons why other values were not deleted.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct CullReport {
    renders_culled: u64,
    bytes_culled: u64,
    /// Whether pages could not be culled, because some of their rows are damaged.
    damaged: bool,
    /// Whether values were kept because of a recent clock jump.
    paused: bool,
}

/// Reports the values that the policies would delete, or deletes them.
pub(crate) async fn run(arguments: RetentionArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open_for_retention(&arguments, Arc::clone(&clock)).await?;
    store.check_clock(&clock, arguments.trust_clock);
    let done = tokio::select! {
        done = Box::pin(report_or_cull(&arguments, &store, &clock)) => done,
        exit = signals.first() => Ok(exit),
    };
    store.close().await;
    done
}

async fn report_or_cull(
    arguments: &RetentionArguments,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Result<Exit, CommandError> {
    let buckets = store.buckets();
    let (mut report, mut culled_buckets) = (Report::default(), Vec::new());
    for (domain, bucket) in page_buckets(store, arguments.domain.as_ref()).await? {
        let name = bucket_label(&domain, &bucket);
        let Some(policy) = buckets.settings().retention.of_bucket(&domain, &bucket) else {
            report.kept.insert(name);
            continue;
        };
        let policy = describe_policy(policy);
        let mut progress = Progress::new(Arc::clone(clock), name.clone(), "page", None);
        let mut show = |pages| progress.show(ProgressCounts { items: pages, bytes: 0, position: 0 });
        let run = buckets.maintenance().dry_run(&domain, &bucket, &mut show).await;
        progress.finish();
        report.domains.insert(name, BucketReport { policy, run: run? });
        culled_buckets.push((domain, bucket));
    }
    report.policy = report.one_policy().map(str::to_owned);
    if !arguments.json {
        report.print(arguments.dry_run)?;
    }
    if arguments.now {
        report.culled = Some(cull(buckets, &culled_buckets).await?);
    }
    match report.culled {
        _ if arguments.json => output::json(&report)?,
        Some(culled) => culled.print()?,
        None => {}
    }
    report.culled.map_or(Ok(()), CullReport::check_complete)?;
    Ok(Exit::Done)
}

/// Processes the queue, enqueues all superseded values, and processes the queue again.
async fn cull(buckets: &RevisionStore, of: &[(DomainName, BucketName)]) -> Result<CullReport, CommandError> {
    let limit = NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN);
    let mut culled = CullReport::default();
    // If everything is kept, there is nothing to process.
    let mut must_rescan = !of.is_empty();
    if must_rescan {
        // If the clock was set back, the first sweep sets the cursor of the queue to the present, and skips
        // entries that are eligible already. So it runs before the values are enqueued.
        let sweep = buckets.maintenance().sweep(limit).await?;
        culled.add(sweep);
    }
    // If queue entries have expired, all superseded values are enqueued once more.
    while std::mem::take(&mut must_rescan) {
        enqueue_existing(buckets, of).await?;
        loop {
            let sweep = buckets.maintenance().sweep(limit).await?;
            culled.add(sweep);
            must_rescan |= sweep.lapsed;
            if sweep.entries == 0 {
                break;
            }
        }
    }
    Ok(culled)
}

/// Enqueues all superseded values, and waits until the queue may be processed.
async fn enqueue_existing(
    buckets: &RevisionStore,
    of: &[(DomainName, BucketName)],
) -> Result<(), CommandError> {
    let mut eligible_in = Duration::ZERO;
    for (domain, bucket) in of {
        loop {
            let rescan = buckets.maintenance().rescan(domain, bucket).await?;
            eligible_in = eligible_in.max(rescan.eligible_in);
            if rescan.finished {
                break;
            }
        }
    }
    tokio::time::sleep(eligible_in).await;
    Ok(())
}

impl CullReport {
    fn add(&mut self, sweep: Sweep) {
        self.renders_culled += sweep.renders;
        self.bytes_culled += sweep.bytes;
        self.damaged |= sweep.damaged > 0;
        self.paused |= sweep.paused;
    }

    fn print(self) -> Result<(), CommandError> {
        let (renders, bytes) = (counted(self.renders_culled, "render"), output::bytes(self.bytes_culled));
        output::line(format_args!("culled {renders}, {bytes}"))
    }

    /// Returns an error if eligible values were not deleted.
    fn check_complete(self) -> Result<(), CommandError> {
        if self.paused {
            return Err(CommandError::Retention(
                "the clock of this machine was set less than one grace ago, or no process saw the last time pass, \
                 so values may look older than they are; nothing more is culled until the clock has run for one \
                 grace without a jump. Check the clock, and run the command again after that time"
                    .to_owned(),
            ));
        }
        if self.damaged {
            return Err(CommandError::Retention(
                "some pages could not be culled, because rows of them are damaged; `rashomon verify` names the \
                 rows"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

impl Report {
    /// The policy of all buckets. `None` if there is no bucket with a policy, or if there are several policies.
    fn one_policy(&self) -> Option<&str> {
        let mut policies = self.domains.values().map(|of| of.policy.as_str());
        let first = policies.next()?;
        policies.all(|policy| policy == first).then_some(first)
    }

    fn print(&self, dry_run: bool) -> Result<(), CommandError> {
        if self.domains.is_empty() && self.kept.is_empty() {
            return output::line("the store has no pages to which a policy applies");
        }
        if let Some(policy) = &self.policy {
            output::line(policy)?;
        }
        for (name, BucketReport { policy, run }) in &self.domains {
            if self.policy.is_none() {
                output::line(format_args!("{name}: {policy}"))?;
            }
            let share = if run.bytes == 0 { 0.0 } else { run.bytes_culled as f64 / run.bytes as f64 * 100.0 };
            output::line(format_args!(
                "{name}: {} {} of {} ({share:.0} %): the bodies of {} of {}, and of {}, on {} of {}",
                if dry_run { "would free" } else { "frees" },
                output::bytes(run.bytes_culled),
                output::bytes(run.bytes),
                thousands(run.renders_culled),
                counted(run.renders, "render"),
                counted(run.revisions_culled, "revision"),
                thousands(run.pages_culled),
                counted(run.pages, "page"),
            ))?;
        }
        for name in &self.kept {
            output::line(format_args!("{name}: the configuration keeps everything"))?;
        }
        if dry_run {
            output::line(
                "nothing was changed; the sizes are those of uncompressed bodies, and the records of \
                 revisions stay",
            )?;
        }
        Ok(())
    }
}

fn describe_policy(policy: &Policy) -> String {
    let what = match policy.cull {
        rashomon_pages::Cull::Revisions => "superseded revisions and renders",
        rashomon_pages::Cull::Renders => "superseded renders",
    };
    format!(
        "{what} are deleted {} after they were superseded; the newest {} of each page stay",
        crate::configuration::Span(policy.grace),
        counted(u64::from(policy.min_keep.get()), "revision"),
    )
}
