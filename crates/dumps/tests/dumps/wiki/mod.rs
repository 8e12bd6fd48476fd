//! A wiki in the store that the environment names, with imports and exports.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each test uses a part of it.

use std::{path::PathBuf, sync::Arc};

use rashomon_clock::{ManualClock, Timestamp};
use rashomon_dumps::{
    Event, ExportOptions, ExportReport, Format, HistoryReader, ImportError, ImportOptions, ImportReport,
    ReadError, ReadLimits, Source, export, import,
};
use rashomon_pages::{Catalog, DomainName, RevisionStore, Settings, Title};
use rashomon_tables::{Faulty, Plan, TableStore};

/// A wiki: the parts of its store, and its domain.
pub struct Wiki {
    pub buckets: RevisionStore,
    pub catalog: Catalog,
    pub domain: DomainName,
}

/// 2027-01-15T08:00:00Z, later than the times in fixtures and real exports.
pub const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

impl Wiki {
    pub async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = rashomon_testing::stores::open(clock.clone()).await;
        Self::on(store, clock, settings).await
    }

    /// A wiki whose store has faults.
    pub async fn faulty(plan: Plan) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = Faulty::new(rashomon_testing::stores::open(clock.clone()).await, plan);
        Self::on(Arc::new(store), clock, Settings::default()).await
    }

    pub async fn on(store: Arc<dyn TableStore>, clock: Arc<ManualClock>, settings: Settings) -> Self {
        let buckets = RevisionStore::open(store, clock, settings, 1).await.unwrap();
        let catalog = buckets.catalog().clone();
        Self { buckets, catalog, domain: DomainName::new("wiki").unwrap() }
    }

    pub async fn import(&self, input: impl AsRef<[u8]>) -> Result<ImportReport, ImportError> {
        let input = std::io::Cursor::new(input.as_ref().to_vec());
        self.import_from(Source::stream(input), 2).await
    }

    pub async fn import_from(&self, source: Source, jobs: usize) -> Result<ImportReport, ImportError> {
        let options = ImportOptions { jobs, ..ImportOptions::default() };
        import(&self.buckets, &self.catalog, &self.domain, source, &options, |_| {}).await
    }

    pub async fn export(&self, format: Format) -> (ExportReport, String) {
        self.export_with(ExportOptions {
            bucket: rashomon_pages::BucketName::page(),
            titles: None,
            history: true,
            format,
        })
        .await
    }

    pub async fn export_with(&self, options: ExportOptions) -> (ExportReport, String) {
        let (report, bytes) =
            export(&self.buckets, &self.catalog, &self.domain, &options, Vec::new(), |_| {}).await.unwrap();
        (report, String::from_utf8(bytes).unwrap())
    }

    pub fn page(&self, title: &str) -> rashomon_pages::Page {
        rashomon_pages::Page {
            domain: self.domain.clone(),
            bucket: rashomon_pages::BucketName::page(),
            title: Title::new(title).unwrap(),
        }
    }
}

/// The events of an input, and the result of reading it to the end.
pub fn events(input: impl AsRef<[u8]>) -> (Vec<Event>, Result<(), ReadError>) {
    let mut events = Vec::new();
    let mut reader = match HistoryReader::new(input.as_ref(), ReadLimits::default()) {
        Ok(reader) => reader,
        Err(error) => return (events, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, Ok(())),
            Err(error) => {
                assert!(reader.next().unwrap().is_none(), "something comes after an error");
                return (events, Err(error));
            }
        }
    }
}

/// A file of the folder of fixtures.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path of a file or folder of real data. If it is absent, prints a message and returns `None`. Under CI
/// it must be present.
#[allow(clippy::print_stderr)]
pub fn data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("RASHOMON_TEST_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!ci, "{} is absent: RASHOMON_TEST_DATA names the folder of test data", path.display());
    eprintln!("skipped: {} is absent; RASHOMON_TEST_DATA names another folder of test data", path.display());
    None
}
