//! Sends dumps to a server that has the store open, and prints its answers.

use std::{path::Path, sync::Arc};

use http::{Method, StatusCode};
use rashomon_clock::Clock;
use rashomon_entries::{BucketType, Definition};
use rashomon_pages::{BucketName, excerpt, shorten};
use rashomon_upstream::ServerUrl;
use serde::Deserialize;

use super::{
    connection::{Answer, Upload, send},
    display_name, entries,
    inputs::Inputs,
    list_unread_files, progress_label,
    report::Outcome,
    server_target::ServerTarget,
};
use crate::{
    arguments::{BucketPath, ImportArguments},
    commands::bucket::remote::RemoteBuckets,
    errors::CommandError,
    exit::Exit,
    output,
    progress::{Progress, ProgressCounts},
    remote::{MAX_ERROR_BYTES, Remote},
    signals::Signals,
};

/// A line of the answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Line {
    /// The progress.
    Progress { revisions: u64, text_bytes: u64, read_bytes: u64 },
    /// The last line: everything was read.
    Done(Outcome),
    /// The last line: an error ended the import.
    Failed {
        #[serde(flatten)]
        outcome: Outcome,
        error: String,
    },
}

pub(super) async fn run(
    server: &ServerUrl,
    arguments: &ImportArguments,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<Exit, CommandError> {
    let remote = Arc::new(Remote::for_imports(server)?);
    if let Some((mut target, before)) = key_value_bucket(&remote, arguments).await? {
        let mut inputs = Inputs::default();
        return Box::pin(entries::run(arguments, before, &mut target, &mut inputs, &clock, &mut signals))
            .await;
    }
    let started = clock.monotonic();
    let mut total = Outcome::default();
    for file in &arguments.files {
        let mut progress = Progress::new(Arc::clone(&clock), progress_label(file), "revision", size(file));
        let sent = tokio::select! {
            sent = Box::pin(send_file(&remote, arguments, file, &mut progress)) => Ok(sent),
            exit = signals.first() => Err(exit),
        };
        progress.finish();
        let (outcome, error) = match sent {
            Ok(sent) => sent?,
            Err(exit) => {
                output::to_stderr("stopped: stored revisions stay; to continue, import the files again");
                return Ok(exit);
            }
        };
        outcome.print_exceptions(&display_name(file));
        total.add(&outcome, &display_name(file));
        if let Some(error) = error {
            let message = format!("{}: {}", display_name(file), shorten(error, MAX_ERROR_BYTES));
            total.print_total(arguments.json, clock.monotonic().saturating_sub(started), Some(&message))?;
            return Err(CommandError::Import(message + &list_unread_files(&arguments.files, file)));
        }
    }
    total.print_total(arguments.json, clock.monotonic().saturating_sub(started), None)?;
    Ok(if total.is_clean() { Exit::Done } else { Exit::Partly })
}

/// Returns the target of the import, if the bucket is a key-value bucket or does not exist. `None` if the bucket has
/// pages, or if the server refuses to show its definition. In these cases, the server decides whether to accept the
/// import.
async fn key_value_bucket(
    remote: &Arc<Remote>,
    arguments: &ImportArguments,
) -> Result<Option<(ServerTarget, Option<BucketType>)>, CommandError> {
    if arguments.bucket == BucketName::page() {
        return Ok(None);
    }
    let path = BucketPath { domain: arguments.domain.clone(), bucket: arguments.bucket.clone() };
    let answer = remote.ask(Method::GET, &format!("/v1/{path}")).await?;
    let before = match answer.status {
        StatusCode::NOT_FOUND => None,
        StatusCode::OK => Some(remote.parse::<Definition>(answer)?.bucket_type),
        _ => return Ok(None),
    };
    let has_pages = before == Some(BucketType::Revisioned);
    Ok((!has_pages).then(|| (ServerTarget::new(path, RemoteBuckets::new(Arc::clone(remote))), before)))
}

/// Sends a file. Returns the outcome, and the error that ended the import early, if any.
async fn send_file(
    remote: &Remote,
    arguments: &ImportArguments,
    file: &Path,
    progress: &mut Progress,
) -> Result<(Outcome, Option<String>), CommandError> {
    let upload = Upload::open(file).await?;
    let mut answer = send(remote, arguments, upload).await?;
    loop {
        match next_line(&mut answer, remote.server()).await? {
            Line::Progress { revisions, text_bytes, read_bytes } => {
                progress.show(ProgressCounts { items: revisions, bytes: text_bytes, position: read_bytes });
            }
            Line::Done(outcome) => return Ok((outcome, None)),
            Line::Failed { outcome, error } => return Ok((outcome, Some(error))),
        }
    }
}

async fn next_line(answer: &mut Answer, server: &ServerUrl) -> Result<Line, CommandError> {
    let wrong = |what: String| {
        CommandError::Import(format!("{server} did not answer like a rashomon server: {what}"))
    };
    let line = answer.line().await?.ok_or_else(|| wrong("the answer has no last line".to_owned()))?;
    serde_json::from_slice(&line).map_err(|error| wrong(excerpt(error)))
}

/// The size of a regular file in bytes.
fn size(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}
