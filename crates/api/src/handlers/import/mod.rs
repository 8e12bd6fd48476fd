//! Whole histories: a body that is an export, and an answer that says how far it is.
//!
//! The answer begins when something has become of the first revisions. An import that fails before that is
//! answered as any other bad request; one that fails later says so in its last line.

mod report;

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Method, header};
use rashomon_buckets::{BucketName, DomainName, Page, shorten};
use rashomon_dumps::{
    DecompressionLimits, ImportError, ImportFailure, ImportOptions, ImportProgress,
    Problem::{Disk, DiskFull, NoRoom, TooLarge},
    ReadError, Source, SpoolSpace, import,
};
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use self::report::{ProgressJson, ReportJson, to_line};
use super::page::options;
use crate::{
    Api,
    caching::Caching,
    encoding::{BodyError, BodyLimits, RequestBody},
    problem::{Kind, MAX_DETAIL_BYTES, Problem, Result},
    staging::IMPORT_BYTES_UNDER_WAY,
};

/// How often a line says how far it is, at most.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Lines that wait for the client to read them. Of those that find no room, progress is left out.
const WAITING_LINES: usize = 4;

/// How long an import may take: as good as for ever, as long as it goes on.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The memory that decompressing a body may take, in bytes: less than the command grants, since it is not the
/// server's owner who sends it. `zstd` itself takes windows of 128 MiB without being told, `xz -9` needs 65 MiB.
const DECOMPRESSION_MEMORY: u64 = 256 << 20;

/// The most bytes of a 7z archive, which waits on the disk until its end has come.
const MAX_ARCHIVE_BYTES: u64 = 8 << 30;

/// The space for 7z archives of all imports, of which there may be so many bytes.
pub(crate) fn spool_space(bytes: u64) -> Arc<SpoolSpace> {
    Arc::new(SpoolSpace::new(MAX_ARCHIVE_BYTES, bytes))
}

const METHODS: &str = "POST, OPTIONS";

/// `/v1/{domain}/import`
pub(crate) async fn v1(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let domain = (head.uri.path().strip_prefix("/v1/")).and_then(|rest| rest.strip_suffix("/import"));
    let domain = DomainName::new(domain.unwrap_or_default())?;
    if let Some(query) = head.uri.query().filter(|query| !query.is_empty()) {
        return Err(Problem::malformed(format!(
            "an import takes nothing in its query, and this has {} bytes there",
            query.len()
        )));
    }
    match head.method {
        Method::OPTIONS => Ok(options(METHODS)),
        Method::POST if api.settings.read_only => Err(Problem::read_only()),
        Method::POST => run(&api, domain, body).await,
        _ => Err(Problem::method_not_allowed(METHODS)),
    }
}

/// What an import says of itself.
enum Line {
    /// How far it is.
    Progress(Bytes),
    /// It is done.
    Done(Bytes),
    /// It has failed; as a problem, for when nothing has been said yet.
    Failed(Bytes, Problem),
}

impl Line {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Progress(bytes) | Self::Done(bytes) | Self::Failed(bytes, _) => bytes,
        }
    }
}

async fn run(api: &Api, domain: DomainName, body: Body) -> Result<Response> {
    let limits = BodyLimits { bytes: u64::MAX, total: LONGEST, ..api.body_limits() };
    let body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let (sender, mut lines) = mpsc::channel(WAITING_LINES);
    api.spawn_import(import_into(api.clone(), domain, body, sender)).await?;
    let first = match lines.recv().await {
        Some(Line::Failed(_, problem)) => return Err(problem),
        Some(line) => line.into_bytes(),
        None => return Err(Problem::new(Kind::Internal, "the import ended without a word; see the log")),
    };
    let rest = stream::poll_fn(move |context| lines.poll_recv(context)).map(Line::into_bytes);
    let all = stream::once(async { first }).chain(rest).map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(all));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    Ok(response)
}

/// Imports a body, and says how far it is and what became of it.
async fn import_into(api: Api, domain: DomainName, body: RequestBody, lines: mpsc::Sender<Line>) {
    let pieces = stream::try_unfold(body, async |mut body| Ok(body.next().await?.map(|piece| (piece, body))));
    // What reads the import says of an error that it cannot read on, but not why the bytes did not come.
    let broken_off = Arc::new(OnceLock::new());
    let seen = Arc::clone(&broken_off);
    let pieces = pieces.map_err(move |error: BodyError| {
        let error = seen.get_or_init(|| error).clone();
        io::Error::other(error)
    });
    let reader = StreamReader::new(Box::pin(pieces));
    let mut told: Option<Duration> = None;
    let progress = |progress: &ImportProgress| {
        let now = api.clock.monotonic();
        if told.is_none_or(|told| now.saturating_sub(told) >= PROGRESS_INTERVAL) {
            told = Some(now);
            // A client that does not read will see the next one.
            let _ = lines.try_send(Line::Progress(to_line(&ProgressJson::of(progress))));
        }
    };
    let catalog = api.buckets.catalog();
    // A line is in memory as a whole.
    let max_line = usize::try_from(api.settings.max_body_bytes).unwrap_or(usize::MAX);
    let decompression =
        DecompressionLimits { memory: DECOMPRESSION_MEMORY, spool: Arc::clone(&api.import_spool) };
    let options = ImportOptions {
        decompression,
        max_line,
        bytes_under_way: IMPORT_BYTES_UNDER_WAY,
        ..ImportOptions::default()
    };
    let done = import(&api.buckets, catalog, &domain, Source::asynchronous(reader), &options, progress).await;
    let line = match &done {
        Ok(report) => {
            tracing::info!(%domain, revisions = report.revisions(), "import finished");
            Line::Done(to_line(&ReportJson::of(report, None)))
        }
        Err(error) => {
            let shown = shorten(error, MAX_DETAIL_BYTES);
            tracing::warn!(%domain, revisions = error.report.revisions(), error = %shown, "import failed");
            let late = broken_off.get().filter(|error| error.is_late());
            let problem = match (&error.failure, late) {
                (ImportFailure::Read(_), Some(late)) => late.clone().into(),
                _ => problem_of(error, &domain),
            };
            Line::Failed(to_line(&ReportJson::of(&error.report, Some(error))), problem)
        }
    };
    // The client may be gone; what was stored stays.
    let _ = lines.send(line).await;
}

/// An import that failed before anything became of it.
fn problem_of(error: &ImportError, domain: &DomainName) -> Problem {
    match &error.failure {
        ImportFailure::Read(ReadError { problem: TooLarge(_), .. }) => Problem::new(
            Kind::TooLarge,
            format!(
                "the import cannot be read: {error}; the command import takes more, on the server's machine"
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
            let page = Page { domain: domain.clone(), bucket: BucketName::page(), title: title.clone() };
            Problem::of_page(error.clone(), &page)
        }
        ImportFailure::Catalog(error) => Problem::of_bucket(error.clone()),
        other => Problem::new(Kind::Internal, other.to_string()),
    }
}
