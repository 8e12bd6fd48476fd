//! Asks a store questions as its users do (requests, exports and statistics), and records the answers.

use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{Router, body::Body};
use http::{Request, header};
use http_body_util::BodyExt;
use rashomon_clock::{Clock as _, ManualClock, SystemClock, Timestamp};
use rashomon_dumps::{ExportOptions, Format, export};
use rashomon_entries::KeyValueStore;
use rashomon_pages::{BucketName, DomainName, Page, Revision, RevisionStore, Settings, Tid};
use rashomon_server::access::{Access, TokenStore};
use rashomon_server::{Api, Components, Registry};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tower::ServiceExt;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A GET of a path, optionally with `Accept-Datetime`.
    Get(String, Option<String>),
    /// An export of a domain: with all revisions or only the latest of each page, in a format.
    Export(DomainName, bool, Format),
    /// The statistics of a domain.
    Stats(DomainName),
    /// The numbers of rows and bytes of each table of the file.
    Tables,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An error that a damaged store may cause: a status from 500 on with any problem except an internal error, a
    /// failed export or statistic, or a truncated response.
    Error(String),
    /// An answer that is always wrong: an internal error of the server, or a status from 500 on without a problem
    /// document.
    Mistake(String),
    /// Any other answer.
    Given {
        /// The text. The text of a response includes the status and the [compared headers](HEADERS).
        text: Vec<u8>,
        /// Whether the damage is named outside of the text: commands report the data that they left out, and fail.
        names_damage: bool,
    },
}

/// The response headers that are compared.
const HEADERS: [header::HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::ETAG,
    header::LOCATION,
    header::LINK,
    header::LAST_MODIFIED,
    header::CACHE_CONTROL,
    header::CONTENT_LOCATION,
];

/// All answers of a store.
#[derive(Debug, Clone)]
pub struct Answers {
    /// Whether the store was opened; otherwise the error.
    pub opened: std::result::Result<(), String>,
    /// The answers, in the order of the questions. Empty if the store was not opened.
    pub by_question: Vec<Answer>,
    /// The problems that `verify` names, or its error. No problems if the store was not opened.
    pub verified: std::result::Result<Vec<String>, String>,
    /// The number of panics in this process while the store was asked. The process may ask other stores at the same
    /// time.
    pub panics: u64,
    /// The time that opening, all questions and `verify` took.
    pub took: Duration,
}

impl Answers {
    /// Whether opening the store or `verify` names damage.
    #[must_use]
    pub fn names_damage(&self) -> bool {
        self.opened.is_err() || !matches!(&self.verified, Ok(problems) if problems.is_empty())
    }
}

/// The number of panics in this process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts the panics of all threads from now on.
pub fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
}

/// Creates a runtime with a single thread.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build().context("cannot create a runtime")
}

/// Whether a store is opened although its log is missing.
#[derive(Debug, Clone, Copy)]
pub struct AcceptLostLog(pub bool);

/// How a store is opened and served while it is asked.
#[derive(Debug, Clone)]
pub struct AskOptions {
    /// The settings of the buckets.
    pub settings: Settings,
    /// The time by the clock.
    pub now: Timestamp,
    /// Whether the store is opened although its log is missing.
    pub accept_lost_log: AcceptLostLog,
}

/// Opens the store in a directory, asks all questions, and verifies the store.
pub fn ask(directory: &Path, questions: &[Question], options: &AskOptions) -> Result<Answers> {
    let (clock, panics) = (SystemClock::new(), PANICS.load(Ordering::SeqCst));
    let runtime = runtime()?;
    let mut answers = runtime.block_on(ask_all(directory, questions, options));
    drop(runtime);
    answers.panics = PANICS.load(Ordering::SeqCst) - panics;
    answers.took = clock.monotonic();
    Ok(answers)
}

async fn ask_all(directory: &Path, questions: &[Question], options: &AskOptions) -> Answers {
    let refused = |why: String| Answers {
        opened: Err(why),
        by_question: Vec::new(),
        verified: Ok(Vec::new()),
        panics: 0,
        took: Duration::ZERO,
    };
    let clock = Arc::new(ManualClock::new(options.now));
    // Automatic upkeep is off, because its effect would depend on the load of the machine.
    let store_options = Options {
        readers: NonZeroUsize::MIN,
        upkeep_interval: Duration::from_secs(3600),
        accept_lost_log: options.accept_lost_log.0,
        ..Options::default()
    };
    let store = match SqliteStore::open(directory, clock.clone(), store_options) {
        Ok(store) => Arc::new(store),
        Err(error) => return refused(error.to_string()),
    };
    let answers = match open_buckets(&store, &clock, &options.settings, 7).await {
        Ok(served) => ask_open(&store, served, &clock, questions, &options.settings).await,
        Err(error) => refused(error.to_string()),
    };
    store.shutdown().await;
    answers
}

async fn open_buckets(
    store: &Arc<SqliteStore>,
    clock: &Arc<ManualClock>,
    settings: &Settings,
    seed: u64,
) -> rashomon_pages::Result<RevisionStore> {
    RevisionStore::open(store.clone(), clock.clone(), settings.clone(), seed).await
}

/// Asks all questions in their order, then verifies the store. A GET goes to the server. Any other question is asked as
/// by a command, which skips and reports damaged data.
async fn ask_open(
    store: &Arc<SqliteStore>,
    served: RevisionStore,
    clock: &Arc<ManualClock>,
    questions: &[Question],
    settings: &Settings,
) -> Answers {
    let access = Arc::new(Access::open(TokenStore::new(store.clone(), clock.clone()), clock.clone()));
    let records = Arc::clone(served.parts().records);
    let components = Components {
        key_value: KeyValueStore::new(records, rashomon_entries::Settings::default()),
        buckets: served,
        access,
        clock: clock.clone(),
        seed: 7,
        registry: Registry::default(),
        audit_log: None,
    };
    let api = Api::new(rashomon_server::Settings::default(), components);
    let router = rashomon_server::router(api.clone());
    let mut command_store = None;
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        if let Question::Get(path, datetime) = question {
            answers.push(get(&router, path, datetime.as_deref()).await);
            continue;
        }
        let buckets = match command_store.take() {
            Some(buckets) => Ok(buckets),
            None => open_buckets(store, clock, settings, 8).await,
        };
        let buckets = match buckets {
            Ok(buckets) => buckets,
            Err(error) => {
                answers.push(Answer::Error(error.to_string()));
                continue;
            }
        };
        buckets.maintenance().skip_damage();
        let answer = match question {
            Question::Get(..) => continue,
            Question::Export(domain, history, format) => {
                export_domain(&buckets, domain, *history, *format).await
            }
            Question::Stats(domain) => domain_stats(&buckets, domain).await,
            Question::Tables => tables(store),
        };
        // A process reports each damaged row only once. Each command is a separate process, so the store is used again
        // for the next question only if no damage was reported.
        if matches!(answer, Answer::Given { names_damage: false, .. }) {
            command_store = Some(buckets);
        }
        answers.push(answer);
    }
    api.finish().await;
    let verified = match open_buckets(store, clock, settings, 9).await {
        Ok(buckets) => verify(store, &buckets).await,
        Err(error) => Err(error.to_string()),
    };
    Answers { opened: Ok(()), by_question: answers, verified, panics: 0, took: Duration::ZERO }
}

/// Removes the states from the `Link` header of a timegate. The header lacks the states around the selected one if they
/// cannot be read.
fn without_states(link: &str) -> String {
    let links = link.split(", <").filter(|link| !link.contains("memento\""));
    links.map(|link| link.split("; from=").next().unwrap_or_default()).collect::<Vec<_>>().join(", <")
}

async fn get(router: &Router, path: &str, datetime: Option<&str>) -> Answer {
    let mut request = Request::get(path).header(header::HOST, "localhost");
    if let Some(datetime) = datetime {
        request = request.header("accept-datetime", datetime);
    }
    let Ok(request) = request.body(Body::empty()) else {
        return Answer::Mistake(format!("{path} is no path"));
    };
    let response = match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    let mut text = format!("{}\n", head.status.as_u16()).into_bytes();
    for name in HEADERS {
        for value in head.headers.get_all(&name) {
            let mut value = String::from_utf8_lossy(value.as_bytes());
            if name == header::LINK && path.contains("?timegate/") {
                value = without_states(&value).into();
            }
            text.extend_from_slice(format!("{name}: {value}\n").as_bytes());
        }
    }
    text.push(b'\n');
    match body.collect().await {
        Ok(body) => text.extend_from_slice(&body.to_bytes()),
        // The connection breaks, so no client mistakes the truncated answer for a complete one.
        Err(error) => return Answer::Error(format!("cut off: {error}")),
    }
    if !head.status.is_server_error() {
        return Answer::Given { text, names_damage: false };
    }
    let shown = String::from_utf8_lossy(&text).into_owned();
    if shown.contains("urn:rashomon:problem:internal") || !shown.contains("application/problem+json") {
        Answer::Mistake(shown)
    } else {
        Answer::Error(shown)
    }
}

/// The text in place of the error that a domain does not exist.
pub(crate) const NO_DOMAIN: &[u8] = b"no such domain";

async fn export_domain(
    buckets: &RevisionStore,
    domain: &DomainName,
    history: bool,
    format: Format,
) -> Answer {
    // The command refuses a domain without any data.
    match buckets.catalog().domains().await {
        Ok(domains) if !domains.contains(domain) => {
            return Answer::Given { text: NO_DOMAIN.to_vec(), names_damage: false };
        }
        Ok(_) => {}
        Err(error) => return Answer::Error(error.to_string()),
    }
    let options = ExportOptions { bucket: BucketName::page(), titles: None, history, format };
    match export(buckets, buckets.catalog(), domain, &options, Vec::new(), |_| {}).await {
        Ok((report, text)) => {
            let names_damage = report.damaged.count > 0 || report.unreadable.count > 0;
            Answer::Given { text, names_damage }
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

async fn domain_stats(buckets: &RevisionStore, domain: &DomainName) -> Answer {
    let stats = rashomon_pages::operations::stats(buckets, domain, &mut |_| {}).await;
    let found = buckets.found_damage();
    match stats {
        Ok(stats) => {
            let blocks = stats.page.archive.as_ref().is_some_and(|archive| archive.damaged_blocks > 0);
            let text = serde_json::to_vec(&stats).unwrap_or_default();
            Answer::Given { text, names_damage: blocks || !found.is_empty() }
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

fn tables(store: &SqliteStore) -> Answer {
    match store.stats() {
        Ok(stats) => {
            let text = format!("{:?}", stats.tables).into_bytes();
            Answer::Given { text, names_damage: !stats.damaged.is_empty() }
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

/// Verifies the store like `rashomon verify`.
async fn verify(store: &SqliteStore, buckets: &RevisionStore) -> std::result::Result<Vec<String>, String> {
    let checked = store.check(|_| {}).map_err(|error| error.to_string())?;
    let mut problems = checked.problems;
    match rashomon_pages::operations::verify(buckets, &mut |_| {}).await {
        Ok(report) => problems.extend(report.problems),
        Err(error) => problems.push(error.to_string()),
    }
    if let Err(error) = buckets.maintenance().count_orphans(Duration::from_secs(24 * 3600)).await {
        problems.push(error.to_string());
    }
    Ok(problems)
}

/// The maximum number of single renders of a page that questions ask for.
const ASKED_RENDERS: usize = 6;

impl Question {
    /// Returns all questions about these pages, and about a page and a revision that do not exist.
    #[must_use]
    pub fn about(pages: &[(Page, Vec<(Revision, Tid)>)]) -> Vec<Self> {
        let mut questions: Vec<_> = ["/", "/readyz"].into_iter().map(Self::get).collect();
        let mut domains: Vec<_> = pages.iter().map(|(page, _)| page.domain.clone()).collect();
        domains.sort_unstable();
        domains.dedup();
        for domain in &domains {
            questions.push(Self::get(&format!("/pages/{domain}/")));
            questions.push(Self::get(&format!("/v1/{domain}/page/No_such_page?rev/")));
        }
        for (page, renders) in pages {
            about_page(page, renders, &mut questions);
        }
        for domain in domains {
            for (history, format) in [(true, Format::JsonLines), (true, Format::Xml), (false, Format::Xml)] {
                questions.push(Self::Export(domain.clone(), history, format));
            }
            questions.push(Self::Stats(domain));
        }
        questions.push(Self::Tables);
        questions
    }

    fn get(path: &str) -> Self {
        Self::Get(path.to_owned(), None)
    }
}

fn about_page(page: &Page, renders: &[(Revision, Tid)], questions: &mut Vec<Question>) {
    let (domain, title) = (&page.domain, encode_title(page.title.as_str()));
    let mut get = |rest: &str, datetime: Option<&str>| {
        questions
            .push(Question::Get(format!("/v1/{domain}/page/{title}{rest}"), datetime.map(str::to_owned)));
    };
    for rest in ["", "?rev/", "?rev/&limit=3", "?rev/latest/", "?rev/latest/wikitext", "?rev/latest/html"] {
        get(rest, None);
    }
    for property in ["wikitext", "html"] {
        get(&format!("?timemap/{property}"), None);
        get(&format!("?timegate/{property}"), None);
    }
    get("?timegate/wikitext", Some("Thu, 01 Jan 2026 02:30:00 GMT"));
    get("?timegate/html", Some("Fri, 02 Jan 2026 00:00:00 GMT"));
    get("?rev/2026-01-01T03:30:00Z/wikitext", None);
    get("?rev/999999/", None);
    let step = renders.len().div_ceil(ASKED_RENDERS).max(1);
    for (number, (rev, tid)) in renders.iter().rev().step_by(step).enumerate() {
        get(&format!("?rev/{rev}/"), None);
        get(&format!("?rev/{tid}/wikitext"), None);
        match number % 3 {
            0 => get(&format!("?rev/{tid}/"), None),
            1 => get(&format!("?rev/{rev}/wikitext"), None),
            _ => get(&format!("?rev/{tid}/html"), None),
        }
    }
    questions.push(Question::get(&format!("/pages/{domain}/{title}")));
}

/// Encodes the title for a path.
fn encode_title(title: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::new();
    for byte in title.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
