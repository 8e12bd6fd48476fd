//! `rashomon rewrite`.

use std::{borrow::Cow, sync::Arc};

use crate::configuration::transformers_for_rewrite;
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::rewriting::{RewriteError, RewriteOptions, RewriteReport, Rewriter};
use rashomon_pages::{BucketName, DomainName, Page};

use crate::{
    arguments::RewriteArguments,
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted, thousands},
    page_buckets::{bucket_label, page_bucket, page_buckets},
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::Store,
};

/// Brings stored values to the current version of their spec.
pub(crate) async fn run(arguments: RewriteArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = Store::settings_offline(&arguments.store)?;
    let current = arguments.to_version.as_ref();
    let made = transformers_for_rewrite(&settings, arguments.with.as_deref(), current)
        .map_err(CommandError::Usage)?;
    let (transformers, target) = made;
    let store = Store::open_for_rewrite(&settings, Arc::clone(&clock)).await?;
    let options = RewriteOptions {
        property: arguments.property.clone(),
        target,
        archived: arguments.archived,
        rate: arguments.rate(),
        concurrency: arguments.concurrency(),
    };
    let mut rewriter = Rewriter::new(store.buckets().clone(), Arc::new(transformers), options);
    let mut progress = Progress::new(clock, format!("rewrite {}", arguments.property), "value", None);
    let done = tokio::select! {
        done = Box::pin(rewrite(&arguments, &store, &mut rewriter, &mut progress)) => done.map(|()| None),
        exit = signals.first() => Ok(Some(exit)),
    };
    progress.finish();
    let printed = print(&rewriter.report(), progress.elapsed().as_secs_f64());
    store.close().await;
    let interrupted = done?;
    printed?;
    Ok(match interrupted {
        Some(exit) => exit,
        None if rewriter.report().is_clean() => Exit::Done,
        None => Exit::Partly,
    })
}

async fn rewrite(
    arguments: &RewriteArguments,
    store: &Store,
    rewriter: &mut Rewriter,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    for (domain, bucket) in buckets_of(arguments, store).await? {
        progress.set_label(bucket_label(&domain, &bucket));
        let mut show = |now: &RewriteReport| {
            progress.show(ProgressCounts { items: now.all_rewritten(), bytes: now.new_bytes, position: 0 });
        };
        let rewritten = rewriter.rewrite_bucket(&domain, &bucket, arguments.from.as_ref(), &mut show).await;
        rewritten.map_err(|error| match error {
            RewriteError::Store(error) => CommandError::Store(error),
            error => CommandError::Rewrite(error.to_string()),
        })?;
    }
    Ok(())
}

/// Returns the buckets that the arguments name.
async fn buckets_of(
    arguments: &RewriteArguments,
    store: &Store,
) -> Result<Vec<(DomainName, BucketName)>, CommandError> {
    let all = page_buckets(store, arguments.domain.as_ref()).await?;
    match (&arguments.domain, &arguments.bucket) {
        (Some(domain), Some(name)) => Ok(vec![(domain.clone(), page_bucket(store, domain, name).await?)]),
        _ => Ok(all),
    }
}

/// Quotes a title where a shell would otherwise change it.
fn quote_for_shell(title: &str) -> Cow<'_, str> {
    // A title has no NUL, which cannot be quoted.
    shlex::try_quote(title).unwrap_or(Cow::Borrowed(title))
}

/// Prints the failures on standard error, and the counts on standard output.
fn print(report: &RewriteReport, seconds: f64) -> Result<(), CommandError> {
    for failure in &report.failures.first {
        output::to_stderr(format_args!("not rewritten: {failure}"));
    }
    let rest = report.failures.count.saturating_sub(report.failures.first.len() as u64);
    if rest > 0 {
        output::to_stderr(format_args!("and {} more", thousands(rest)));
    }
    if let Some(Page { domain, bucket, title }) = &report.position {
        let title = quote_for_shell(title.as_str());
        output::to_stderr(format_args!(
            "to continue in this bucket, add --domain {domain} --bucket {bucket} --from {title}"
        ));
    }
    let blocks = match report.blocks {
        0 => String::new(),
        blocks => format!(" ({} of them in {})", thousands(report.archived), counted(blocks, "block")),
    };
    output::line(format_args!(
        "{} of {} rewritten{blocks}, {} before and {} after, in {seconds:.1} s",
        counted(report.all_rewritten(), "value"),
        counted(report.pages, "page"),
        output::bytes(report.old_bytes),
        output::bytes(report.new_bytes),
    ))?;
    output::line(format_args!(
        "left alone: {} of the current version, {} of a later version, {} without a version of this spec, {} deleted",
        thousands(report.current),
        thousands(report.later),
        thousands(report.other),
        thousands(report.deleted),
    ))?;
    if !report.is_clean() {
        output::line(format_args!(
            "not rewritten: {} failed, {} changed meanwhile, {} kept old blocks; run the command again",
            thousands(report.failures.count),
            thousands(report.changed),
            counted(report.kept_pages, "page"),
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_quoted_only_where_a_shell_would_change_them() {
        assert_eq!(quote_for_shell("Main_Page"), "Main_Page");
        for title in ["A&B", "Who's_who", "C_(language)", "$HOME", "a\\b", "Ä"] {
            let quoted = quote_for_shell(title);
            assert_eq!(shlex::split(&quoted), Some(vec![title.to_owned()]), "{quoted}");
        }
        assert_eq!(quote_for_shell("A&B"), "'A&B'");
    }
}
