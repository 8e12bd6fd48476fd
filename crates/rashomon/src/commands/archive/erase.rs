//! `rashomon archive erase`.

use rashomon_clock::Timestamp;
use rashomon_pages::operations::{EraseOptions, EraseReport, ErasureState, SameBytes};
use rashomon_pages::{BucketName, Erasure, Error, Page, Revision, SkippedDamage, StoreError};

use crate::{
    arguments::EraseArguments,
    errors::CommandError,
    exit::Exit,
    output::{self, counted},
    page_buckets::{bucket_label, domains, page_bucket, page_buckets},
    store::Store,
};

/// Erases revisions, one after the other.
pub(super) async fn erase(arguments: &EraseArguments, store: &Store) -> Result<Exit, CommandError> {
    let (Some(domain), Some(title)) = (&arguments.domain, &arguments.title) else {
        return Err(CommandError::Usage("give --domain and --title".to_owned()));
    };
    let bucket = match &arguments.bucket {
        None => BucketName::page(),
        Some(name) => {
            domains(store, Some(domain)).await?;
            page_bucket(store, domain, name).await?
        }
    };
    let page = Page { domain: domain.clone(), bucket, title: title.clone() };
    let buckets = store.buckets();
    // The text to be erased may itself be damaged.
    buckets.maintenance().skip_damage();
    let not_there = |error| match error {
        Error::NotFound(missing) => CommandError::Usage(missing.to_string()),
        error => error.into(),
    };
    // All revisions are checked first. If a revision does not exist or cannot be erased, no revision is
    // erased.
    for rev in &arguments.rev {
        match buckets.maintenance().check_versions(&page, *rev).await {
            Err(Error::Store(StoreError::Unsupported(why))) => {
                return Err(CommandError::Erase(format!(
                    "revision {rev} may be in a block that a later version of Rashomon wrote: erase it with \
                     that version: {why}"
                )));
            }
            checked => checked?,
        }
        let Err(error) = buckets.newest_render(&page, *rev).await else { continue };
        let skipped_damage = buckets.maintenance().skipped_damage();
        match skipped_damage.iter().find(|one| is_of(one, &page, *rev)) {
            Some(_) if arguments.give_up_damaged => {}
            Some(damage) => return Err(unreadable_block_error(*rev, damage)),
            None => {
                domains(store, Some(domain)).await?;
                return Err(not_there(error));
            }
        }
    }
    let mut given_up = GivenUpRevisions::default();
    if arguments.give_up_damaged {
        for rev in &arguments.rev {
            given_up.add(buckets.maintenance().give_up_unreadable(&page, *rev).await?)?;
        }
    }
    let mut exit = Exit::Done;
    for rev in &arguments.rev {
        if given_up.has(&page, *rev)
            && matches!(buckets.newest_render(&page, *rev).await, Err(Error::NotFound(_)))
        {
            output::line(format_args!(
                "revision {rev} was lost with its block, or never existed: no record is left to mark as \
                 erased, so an import that has the revision stores it again"
            ))?;
            continue;
        }
        let options = EraseOptions {
            by: arguments.by.clone(),
            reason: arguments.reason.clone(),
            user: arguments.user,
            comment: arguments.comment,
            give_up_damaged: arguments.give_up_damaged,
        };
        let erased =
            rashomon_pages::operations::erase(buckets, &page, *rev, options).await.map_err(not_there)?;
        print_erasure(*rev, &erased)?;
        print_first_erasure(arguments, &erased)?;
        print_given_up(&erased)?;
        if erased.left > 0 {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// The error for a revision that may be in a damaged block.
fn unreadable_block_error(rev: Revision, damage: &SkippedDamage) -> CommandError {
    CommandError::Erase(format!(
        "revision {rev} may be in a block that cannot be read, and cannot be erased there: {}; if neither a \
         replica nor a backup has the block, --give-up-damaged gives up all revisions in it that cannot be read",
        damage.why
    ))
}

/// The revisions in unreadable blocks that were given up.
#[derive(Debug, Default)]
struct GivenUpRevisions(Vec<SkippedDamage>);

impl GivenUpRevisions {
    /// Adds the revisions that were given up, and reports them.
    fn add(&mut self, given_up: Vec<SkippedDamage>) -> Result<(), CommandError> {
        for SkippedDamage { page, block, revisions: (first, last), count, why } in &given_up {
            output::line(format_args!(
                "given up: up to {} from {first} to {last} of {}, with block {block}: {why}",
                counted(*count, "revision"),
                page.title,
            ))?;
        }
        self.0.extend(given_up);
        Ok(())
    }

    fn has(&self, page: &Page, rev: Revision) -> bool {
        self.0.iter().any(|one| is_of(one, page, rev))
    }
}

fn is_of(passed: &SkippedDamage, page: &Page, rev: Revision) -> bool {
    passed.page == *page && (passed.revisions.0..=passed.revisions.1).contains(&rev)
}

fn print_given_up(erased: &EraseReport) -> Result<(), CommandError> {
    for (title, rev) in &erased.given_up {
        output::line(format_args!("given up, since unreadable: revision {rev} of {title}"))?;
    }
    if erased.given_up.is_empty() {
        return Ok(());
    }
    let count = counted(erased.given_up.len() as u64, "revision");
    output::line(format_args!("{count} given up: if an export has them, import it"))
}

fn print_erasure(rev: Revision, erased: &EraseReport) -> Result<(), CommandError> {
    let again = if erased.again { ", which had been erased before" } else { "" };
    output::line(format_args!(
        "erased revision {rev}{again}: {} and {}, {} rewritten",
        counted(erased.renders, "render"),
        output::bodies(erased.bodies),
        counted(erased.blocks, "block"),
    ))?;
    for SameBytes { property, revisions, count } in &erased.same {
        let some: Vec<_> = revisions.iter().map(ToString::to_string).collect();
        let more = count - revisions.len() as u64;
        let more = if more > 0 { format!(" and {}", counted(more, "other")) } else { String::new() };
        output::line(format_args!(
            "the same bytes stay in {property} of revision {}{more}: to remove the content completely, \
             erase these revisions too",
            some.join(", ")
        ))?;
    }
    if erased.left > 0 {
        output::line(format_args!(
            "NOT DONE: another process may be writing {} with the content: run the command again in three \
             hours",
            counted(erased.left, "block")
        ))?;
        if let Some(time) = erased.kept_for {
            output::line(format_args!(
                "if the command prints this again, a failed write may still make pages reference the blocks: then \
                 run the command after {} s",
                time.as_secs()
            ))?;
        }
    }
    match erased.kept_for {
        Some(time) => output::line(format_args!(
            "the nodes' files hold the content until a compaction removes it: a full compaction after {} s does, \
             and an earlier one may (see --status). Without incremental repair, `nodetool flush` and `nodetool \
             compact` on each node remove it at once. docs/erasing.md names other places that may have it",
            time.as_secs()
        )),
        None => Ok(()),
    }
}

/// Reports that a repeated erasure keeps the author and the reason of the first erasure.
fn print_first_erasure(arguments: &EraseArguments, erased: &EraseReport) -> Result<(), CommandError> {
    let Erasure { at, by, reason } = &erased.erasure;
    let has_flags = arguments.by.is_some() || arguments.reason.is_some();
    if !has_flags || (by, reason) == (&arguments.by, &arguments.reason) {
        return Ok(());
    }
    let what = format!("{}{}", time(*at), by_whom_and_why(&erased.erasure));
    output::line(format_args!("--by and --reason were not changed: the revision was first erased {what}"))
}

fn by_whom_and_why(Erasure { by, reason, .. }: &Erasure) -> String {
    let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    let why = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{by}{why}")
}

/// Prints the erasures and their states.
pub(super) async fn status(arguments: &EraseArguments, store: &Store) -> Result<Exit, CommandError> {
    let mut exit = Exit::Done;
    for (domain, bucket) in page_buckets(store, arguments.domain.as_ref()).await? {
        if arguments.bucket.as_ref().is_some_and(|only| *only != bucket.without_id()) {
            continue;
        }
        let name = bucket_label(&domain, &bucket);
        for state in rashomon_pages::operations::erasures(store.buckets(), &domain, &bucket).await? {
            let ErasureState { page, rev, erasure, finished_at, kept_until } = &state;
            let by_whom = by_whom_and_why(erasure);
            let what = match (finished_at, kept_until) {
                (None, _) => {
                    exit = Exit::Failed;
                    "NOT DONE: run the command again".to_owned()
                }
                (Some(_), None) => "erased from all files".to_owned(),
                (Some(_), Some(until)) => {
                    format!(
                        "deleted; the nodes' files hold the content until a compaction removes it: a full \
                         compaction after {} does, and an earlier one may",
                        time(*until)
                    )
                }
            };
            let (title, at) = (&page.title, time(erasure.at));
            output::line(format_args!("{name}: revision {rev} of {title}, {at}{by_whom}: {what}"))?;
        }
    }
    Ok(exit)
}

fn time(time: Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_micros().div_euclid(1_000_000))
        .map_or_else(|_| format!("{} µs", time.as_micros()), |time| time.to_string())
}
