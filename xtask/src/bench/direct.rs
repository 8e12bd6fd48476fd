//! The same writes straight through the table layer: no HTTP, no buckets.
//!
//! The very batches that the bucket layer makes of the writes are recorded once, over a store in memory. They
//! are then handed to the store on disk from as many tasks as there were connections, in two ways: ready made,
//! which is all that the store can do; and with each body received as the service does it first (SHA-1 and
//! compression), which is what the table layer can do for somebody who has the bodies plain.

use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use rashomon_buckets::{
    BucketName, DomainName, NewProperty, NewRevision, Page, PropertyName, Revision, Revisioned, Settings,
    Title, schemas,
};
use rashomon_clock::{Clock, SystemClock};
use rashomon_tables::{
    Batch, Cursor, Key, Memory, Page as Rows, Partition, Result as StoreResult, Row, Scan, Schema, Swap,
    TableStore,
};
use rashomon_tables_sqlite::{Options, SqliteStore};

use super::{content::Contents, service::DOMAIN};

/// How many writes are recorded, and written in each run. A count and not a time, since all of them are made
/// beforehand: about four seconds.
pub(crate) const WRITES: usize = 12_000;

/// Writes, ready to be made.
pub(crate) struct Recorded {
    calls: Vec<Call>,
    contents: Arc<Contents>,
    pages: Vec<Page>,
    /// To receive bodies with, as the service does.
    buckets: Revisioned,
}

struct Call {
    first: Vec<Batch>,
    then: Batch,
    number: u64,
}

/// Makes the writes of revisions 1 to [`WRITES`] to these pages in turn, and keeps what they are in tables.
pub(crate) async fn record(contents: Arc<Contents>, titles: &[String]) -> Result<Recorded> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let recorder = Arc::new(Recorder { memory: Memory::new(Arc::clone(&clock)), calls: Mutex::default() });
    let buckets = Revisioned::open(Arc::clone(&recorder) as _, clock, Settings::default(), 1).await?;
    let pages = titles.iter().map(|title| page(title)).collect::<Result<Vec<_>>>()?;
    let mut calls = Vec::with_capacity(WRITES);
    for number in 1..=WRITES as u64 {
        let page = &pages[number as usize % pages.len()];
        let properties = receive(&buckets, page, &contents, number).await?;
        let rev = Revision::new(i64::try_from(number)?).context("a positive number is a revision")?;
        let new = NewRevision {
            rev,
            parent: None,
            timestamp: None,
            user: None,
            comment: None,
            minor: false,
            if_latest: None,
            properties,
        };
        buckets.put_revision(page, new).await?;
        let made = std::mem::take(&mut *recorder.calls());
        calls.extend(made.into_iter().map(|(first, then)| Call { first, then, number }));
    }
    Ok(Recorded { calls, contents, pages, buckets })
}

/// Writes all of it to a new store, and gives the writes a second. `receive_bodies`: each body is received
/// before, as the service does it.
pub(crate) async fn write(
    recorded: &Arc<Recorded>,
    folder: &Path,
    tasks: usize,
    receive_bodies: bool,
    clock: &dyn Clock,
) -> Result<f64> {
    let store = Arc::new(SqliteStore::open(folder, Arc::new(SystemClock::new()), Options::default())?);
    for schema in schemas::all() {
        store.create(schema).await?;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let started = clock.monotonic();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let (recorded, store, next) = (Arc::clone(recorded), Arc::clone(&store), Arc::clone(&next));
        running.spawn(async move {
            while let Some(call) = recorded.calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                if receive_bodies {
                    let page = &recorded.pages[call.number as usize % recorded.pages.len()];
                    receive(&recorded.buckets, page, &recorded.contents, call.number).await?;
                }
                store.write(call.first.clone(), call.then.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let seconds = (clock.monotonic() - started).as_secs_f64();
    store.shutdown().await;
    Ok(WRITES as f64 / seconds)
}

fn page(title: &str) -> Result<Page> {
    Ok(Page { domain: DomainName::new(DOMAIN)?, bucket: BucketName::page(), title: Title::new(title)? })
}

async fn receive(
    buckets: &Revisioned,
    page: &Page,
    contents: &Contents,
    number: u64,
) -> Result<Vec<NewProperty>> {
    let bodies = [
        ("html", "text/html; charset=utf-8", contents.html(number)),
        ("data-parsoid", "application/json", contents.data_parsoid(number)),
    ];
    let mut properties = Vec::with_capacity(bodies.len());
    for (name, content_type, body) in bodies {
        let name = PropertyName::new(name)?;
        let body = buckets.stage_bytes(page, &name, &body).await?;
        let content_type = Some(content_type.to_owned());
        properties.push(NewProperty { name, content_type, other_headers: Default::default(), body });
    }
    Ok(properties)
}

/// A store in memory that keeps every write that it is asked for.
#[derive(Debug)]
struct Recorder {
    memory: Memory,
    calls: Mutex<Vec<(Vec<Batch>, Batch)>>,
}

impl Recorder {
    fn calls(&self) -> std::sync::MutexGuard<'_, Vec<(Vec<Batch>, Batch)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TableStore for Recorder {
    async fn create(&self, schema: &'static Schema) -> StoreResult<()> {
        self.memory.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> StoreResult<Option<Row>> {
        self.memory.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> StoreResult<Rows<Row>> {
        self.memory.scan(table, scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> StoreResult<Rows<Partition>> {
        self.memory.partitions(table, after, limit).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> StoreResult<()> {
        self.calls().push((first.clone(), then.clone()));
        self.memory.write(first, then).await
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> StoreResult<Swap> {
        self.memory.swap(table, key, expected, new).await
    }
}
