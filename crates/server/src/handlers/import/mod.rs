//! Imports of whole histories: the body is an export, and the answer reports the progress.
//!
//! The answer begins when the first part of the body is stored, such as the metadata of the wiki or a group
//! of revisions. An import that fails before that is answered with a problem, as other requests are. A later
//! failure is reported in the last line.
//!
//! A proxy such as nginx stops sending the body once the answer has begun. So an import that came through a proxy is
//! answered when its body has ended.

mod report;

use std::{
    future, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use crate::access::{BucketKind, Caller, Right};
use crate::forms::{BodyError, BodyLimits, RequestBody};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Method};
use rashomon_dumps::{
    DecompressionLimits, ImportError, ImportFailure, ImportOptions, ImportProgress, ImportReport,
    Problem::{Disk, DiskFull, NoRoom, TooLarge},
    ReadError, Source, import,
};
use rashomon_pages::{BucketName, DomainName, Page, shorten};
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use self::report::{ProgressJson, ReportJson, to_line};
use crate::{
    Api,
    answer::{of_type, options},
    audit::Audit,
    authorize::caller_of,
    caching::Caching,
    client_address::came_through_a_proxy,
    extract::{BucketTarget, parse_bucket},
    problem::{Kind, MAX_DETAIL_BYTES, Problem, Result},
    staging::{ImportRoom, MAX_IMPORT_BUFFERED_BYTES},
};

/// The minimum interval between two lines about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of lines that wait for the client. If so many lines wait, further progress lines are dropped.
const MAX_WAITING_LINES: usize = 4;

/// The time limit of an import: none in practice, as long as the import makes progress.
const IMPORT_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The memory limit of decompression in bytes, lower than that of `rashomon import`, since the sender of the
/// body may not be the operator. `zstd` itself accepts windows of 128 MiB by default, and `xz -9` needs 65
/// MiB.
const DECOMPRESSION_MEMORY: u64 = 256 << 20;

const METHODS: &str = "POST, OPTIONS";

/// `/v1/{domain}/import`
pub(crate) async fn v1(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let domain = (head.uri.path().strip_prefix("/v1/")).and_then(|rest| rest.strip_suffix("/import"));
    let domain = DomainName::new(domain.unwrap_or_default())?;
    let Query { bucket: name, skip_broken } = Query::parse(head.uri.query(), &api.page_bucket)?;
    match head.method {
        Method::OPTIONS => Ok(options(METHODS)),
        Method::POST if api.settings.read_only => Err(Problem::read_only()),
        Method::POST => {
            let caller = caller_of(&head.extensions);
            let target = BucketTarget { domain, bucket: name };
            let bucket = page_bucket(&api, caller, &target).await?;
            let BucketTarget { domain, bucket: name } = target;
            let may_read = api.access.may(caller, Right::Read, &domain, &name, BucketKind::Revisioned);
            let client =
                Client { may_read, is_behind_a_proxy: came_through_a_proxy(&head.headers), skip_broken };
            run(&api, (domain, bucket), Audit::of(&head.extensions), body, client).await
        }
        // The request is for a bucket with the name `import`, which no bucket can have.
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE => Err(Problem::malformed(
            "'import' is reserved and cannot be a bucket: choose another name, or POST an export to this URL to import it",
        )),
        _ => Err(Problem::method_not_allowed(METHODS)),
    }
}

/// The query of an import.
struct Query {
    bucket: BucketName,
    /// Whether broken pages are skipped.
    skip_broken: bool,
}

impl Query {
    /// Parses a query such as `?bucket=docs&skip_broken=true`. The bucket is `page` without one.
    fn parse(query: Option<&str>, page: &BucketName) -> Result<Self> {
        let query = query.unwrap_or_default();
        let (mut bucket, mut skip_broken) = (None, None);
        for parameter in query.split('&').filter(|_| !query.is_empty()) {
            match parameter.split_once('=') {
                Some(("bucket", name)) if bucket.is_none() => bucket = Some(parse_bucket(name)?),
                Some(("skip_broken", "true")) if skip_broken.is_none() => skip_broken = Some(true),
                Some(("skip_broken", "false")) if skip_broken.is_none() => skip_broken = Some(false),
                _ => {
                    return Err(Problem::malformed(format!(
                        "an import takes no query except bucket= and skip_broken=true, each once, but this URL has \
                         another query, of {} bytes: leave it out",
                        query.len()
                    )));
                }
            }
        }
        Ok(Self {
            bucket: bucket.unwrap_or_else(|| page.clone()),
            skip_broken: skip_broken.unwrap_or_default(),
        })
    }
}

/// Finds the bucket of an import, with its id. Checks that the caller may import into the bucket.
async fn page_bucket(api: &Api, caller: &Caller, target: &BucketTarget) -> Result<BucketName> {
    let BucketTarget { domain, bucket: name } = target;
    if *name == api.page_bucket {
        api.check_right(caller, Right::Import, domain, name, BucketKind::Revisioned)?;
        return Ok(name.clone());
    }
    let bucket = api.bucket_for(caller, Right::Import, target).await?;
    bucket.pages().ok_or_else(|| {
        Problem::invalid(format!(
            "the bucket '{name}' has the type {}, and no pages: import into a bucket of type revisioned",
            bucket.bucket_type()
        ))
    })
}

/// The properties of the client on which the answer depends.
#[derive(Clone, Copy)]
struct Client {
    may_read: bool,
    is_behind_a_proxy: bool,
    /// Whether the client wants broken pages to be skipped.
    skip_broken: bool,
}

/// A line of the answer.
enum Line {
    /// A progress report.
    Progress(Bytes),
    /// The last line of a successful import.
    Done(Bytes),
    /// The last line of a failed import, and the problem for the case that no line has been sent yet.
    Failed(Bytes, Problem),
}

impl Line {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Progress(bytes) | Self::Done(bytes) | Self::Failed(bytes, _) => bytes,
        }
    }
}

async fn run(
    api: &Api,
    into: (DomainName, BucketName),
    audit: Audit,
    body: Body,
    client: Client,
) -> Result<Response> {
    let limits = BodyLimits { bytes: u64::MAX, total: IMPORT_TIME_LIMIT, ..api.body_limits() };
    let body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let (sender, mut lines) = mpsc::channel(MAX_WAITING_LINES);
    api.spawn_import(audit, |room| import_into(api.clone(), into, (body, room), client, sender)).await?;
    let first = match lines.recv().await {
        Some(Line::Failed(_, problem)) => return Err(problem),
        Some(line) => line.into_bytes(),
        None if api.is_aborting() => future::pending().await,
        None => return Err(Problem::new(Kind::Internal, "the import ended without a report; see the log")),
    };
    let api = api.clone();
    let rest = stream::poll_fn(move |context| match lines.poll_recv(context) {
        // The answer of an aborted import stays open until its connection is closed.
        Poll::Ready(None) if api.is_aborting() => Poll::Pending,
        line => line,
    });
    let rest = rest.map(Line::into_bytes);
    let all = stream::once(async { first }).chain(rest).map(Ok::<_, std::convert::Infallible>);
    let content_type = HeaderValue::from_static("application/jsonl");
    Ok(of_type(content_type, Caching::NoStore, Body::from_stream(all)))
}

/// Imports a body. Sends the lines of the answer, about the progress and the result, to `lines`.
async fn import_into(
    api: Api,
    (domain, bucket): (DomainName, BucketName),
    (body, room): (RequestBody, ImportRoom),
    Client { may_read, is_behind_a_proxy, skip_broken }: Client,
    lines: mpsc::Sender<Line>,
) -> std::result::Result<ImportReport, ImportError> {
    let may_answer = Arc::new(AtomicBool::new(!is_behind_a_proxy));
    let at_end = Arc::clone(&may_answer);
    let pieces = stream::try_unfold((body, room, at_end), async |(mut body, mut room, at_end)| {
        let piece = room.next(&mut body).await?;
        if piece.is_none() {
            at_end.store(true, Ordering::Relaxed);
        }
        Ok(piece.map(|piece| (piece, (body, room, at_end))))
    });
    // The importer reports only that it cannot read on. The reason why the bytes did not arrive is kept here.
    let body_error = Arc::new(OnceLock::new());
    let seen = Arc::clone(&body_error);
    let pieces = pieces.map_err(move |error: BodyError| {
        let error = seen.get_or_init(|| error).clone();
        io::Error::other(error)
    });
    let reader = StreamReader::new(Box::pin(pieces));
    let mut last_progress: Option<Duration> = None;
    let mut withheld = None;
    let progress = |progress: &ImportProgress| {
        let now = api.clock.monotonic();
        if last_progress.is_none_or(|last| now.saturating_sub(last) >= PROGRESS_INTERVAL) {
            last_progress = Some(now);
            let line = Line::Progress(to_line(&ProgressJson::of(progress)));
            withheld = if may_answer.load(Ordering::Relaxed) {
                // A client that does not read misses this line, but gets a later one.
                let _ = lines.try_send(line);
                None
            } else {
                Some(line)
            };
        }
    };
    let catalog = api.buckets.catalog();
    // A line must fit into memory.
    let max_line = usize::try_from(api.settings.max_body_bytes).unwrap_or(usize::MAX);
    let decompression =
        DecompressionLimits { memory: DECOMPRESSION_MEMORY, spool: Arc::clone(&api.import_spool) };
    let options = ImportOptions {
        bucket: bucket.clone(),
        decompression,
        max_line,
        max_buffered_bytes: MAX_IMPORT_BUFFERED_BYTES,
        skip_broken,
        seal_rows: true,
        ..ImportOptions::default()
    };
    let done = import(&api.buckets, catalog, &domain, Source::async_stream(reader), &options, progress).await;
    let line = match &done {
        Ok(report) => {
            tracing::info!(%domain, %bucket, revisions = report.revisions(), "import finished");
            Line::Done(to_line(&ReportJson::of(report, None, may_read)))
        }
        Err(error) => {
            let shown = shorten(error, MAX_DETAIL_BYTES);
            tracing::warn!(%domain, %bucket, revisions = error.report.revisions(), error = %shown, "import failed");
            let late = body_error.get().filter(|error| error.is_late());
            let problem = match (&error.failure, late) {
                (ImportFailure::Read(_), Some(late)) => late.clone().into(),
                _ => problem_of(error, &domain, &bucket),
            };
            let problem = if may_read { problem } else { problem.concealed() };
            Line::Failed(to_line(&ReportJson::of(&error.report, Some(error), may_read)), problem)
        }
    };
    // Sending fails if the client is gone. The revisions that were stored stay stored.
    if let Some(progress) = withheld {
        let _ = lines.send(progress).await;
    }
    let _ = lines.send(line).await;
    done
}

/// The problem for a failed import. It is the answer if no line has been sent yet.
fn problem_of(error: &ImportError, domain: &DomainName, bucket: &BucketName) -> Problem {
    match &error.failure {
        ImportFailure::Read(ReadError { problem: TooLarge(_), .. }) => Problem::new(
            Kind::TooLarge,
            format!(
                "the import cannot be read: {error}; the command `rashomon import`, on the server's machine, \
                 has higher limits"
            ),
        ),
        ImportFailure::Read(ReadError { problem: NoRoom(reason), .. }) => {
            Problem::busy(format!("the import cannot be read now: {reason}"))
        }
        ImportFailure::Read(ReadError { problem: DiskFull(reason), .. }) => {
            Problem::temporary_files(Kind::InsufficientStorage, reason.clone())
        }
        ImportFailure::Read(ReadError { problem: Disk(reason), .. }) => {
            Problem::temporary_files(Kind::StorageFault, reason.clone())
        }
        ImportFailure::Read(_) => Problem::malformed(format!("the import cannot be read: {error}")),
        ImportFailure::Store { title, error, .. } => {
            let page = Page { domain: domain.clone(), bucket: bucket.clone(), title: title.clone() };
            Problem::of_page(error.clone(), &page)
        }
        ImportFailure::Catalog(error) | ImportFailure::Seal(error) => Problem::of_bucket(error.clone()),
        other => Problem::new(Kind::Internal, other.to_string()),
    }
}
