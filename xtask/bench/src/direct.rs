//! Sends the writes of the benchmark `write` directly to the table layer, without HTTP and buckets.
//!
//! The batches that the buckets make of the writes are recorded once, over a store in memory. As many tasks as the
//! benchmark over HTTP has connections then write the batches to a store on disk, in two ways. The first way writes the
//! recorded batches, and shows the maximum rate of the store. The second way first hashes and compresses plain bodies,
//! as the service does, and shows the maximum rate of the table layer for a caller with plain bodies.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{
    BucketName, DomainName, NewProperty, NewRevision, Page, PropertyName, Revision, RevisionStore, Settings,
    Title, schemas,
};
use rashomon_tables::{Batch, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};

use super::{
    content::Contents,
    recorder::{RecordedCall, Recorder},
    service::DOMAIN,
};

/// The number of writes that are recorded, and written in each run. The number is fixed, and not the time, because all
/// batches are made beforehand. A run takes about four seconds.
pub(crate) const WRITES: usize = 12_000;

/// The recorded table calls of the writes, and the bodies of the writes.
pub(crate) struct RecordedWrites {
    calls: Vec<Call>,
    contents: Arc<Contents>,
    pages: Vec<Page>,
    /// The buckets that receive bodies, as in the service.
    buckets: RevisionStore,
}

struct Call {
    first: Vec<Batch>,
    then: Batch,
    number: u64,
}

/// Records the table calls of the writes of revisions 1 to [`WRITES`], to these pages in turn.
pub(crate) async fn record(contents: Arc<Contents>, titles: &[String]) -> Result<RecordedWrites> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let recorder = Arc::new(Recorder::new(Arc::clone(&clock)));
    let buckets = RevisionStore::open(Arc::clone(&recorder) as _, clock, Settings::default(), 1).await?;
    let pages = titles.iter().map(|title| page(title)).collect::<Result<Vec<_>>>()?;
    let mut calls = Vec::with_capacity(WRITES);
    for number in 1..=WRITES as u64 {
        let page = &pages[number as usize % pages.len()];
        put_revision(&buckets, page, &contents, number).await?;
        calls.extend(recorder.take().into_iter().filter_map(|recorded| match recorded {
            RecordedCall::Write(first, then) => Some(Call { first, then, number }),
            RecordedCall::Get(..) | RecordedCall::Scan(..) => None,
        }));
    }
    Ok(RecordedWrites { calls, contents, pages, buckets })
}

/// Writes everything to a new store, and returns the writes per second. With `receive_bodies`, each body is
/// first received as in the service.
pub(crate) async fn write(
    recorded: &Arc<RecordedWrites>,
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

/// The page of a title.
pub(crate) fn page(title: &str) -> Result<Page> {
    Ok(Page { domain: DomainName::new(DOMAIN)?, bucket: BucketName::page(), title: Title::new(title)? })
}

/// Makes the write with this number, as the service does on request.
pub(crate) async fn put_revision(
    buckets: &RevisionStore,
    page: &Page,
    contents: &Contents,
    number: u64,
) -> Result<()> {
    let properties = receive(buckets, page, contents, number).await?;
    let rev = Revision::new(i64::try_from(number)?).context("the number of the revision is not positive")?;
    let new = NewRevision::new(rev, properties);
    buckets.put_revision(page, new).await?;
    Ok(())
}

async fn receive(
    buckets: &RevisionStore,
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
