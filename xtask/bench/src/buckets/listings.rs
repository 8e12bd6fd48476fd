//! Measures listings of a large bucket: result pages at its start, in its middle and at its end.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_clock::{Clock, SystemClock};
use rashomon_entries::{EntryKey, KeyValueStore};
use rashomon_pages::{BucketName, DomainName, Headers, RevisionStore};
use rashomon_tables::TableStore;
use rashomon_tables_sqlite::{Options as SqliteOptions, SqliteStore};
use xtask::http;

use super::{Bench, Options, entry_path};
use crate::{
    content::Contents,
    load::{self, Measurement, Traffic},
    report::Report,
    service::{self, DOMAIN},
};

const BUCKET: &str = "listed";
/// The size of the body of each entry, in bytes.
pub(super) const BODY_SIZE: usize = 100;
/// The number of entries of a result page.
pub(super) const LIMIT: u32 = 500;
/// The number of entries that are stored at the same time.
const CONCURRENT_PUTS: usize = 256;
/// The names and the positions of the result pages: each begins in the tenth of the keys after this percentage.
const PLACES: [(&str, u32); 3] = [("start", 0), ("middle", 45), ("end", 90)];

/// Makes a store with the bucket. The server creates the store and the bucket. The library stores the entries, because
/// that is faster.
pub(super) fn fill(options: &Options, binary: &Path, store: &Path, clock: &dyn Clock) -> Result<()> {
    let service = service::serve(binary, store)?;
    let contents = Contents::new(1);
    let bench = Bench { options, contents: &contents, address: service.address(), clock };
    bench.must_create(BUCKET, r#"{"type": "ordered-blob"}"#)?;
    let status = service.stop()?;
    ensure!(status.success(), "the server ended with {status}");
    eprintln!("storing {} entries", options.keys());
    let started = clock.monotonic();
    tokio::runtime::Runtime::new()?.block_on(put_all(options.keys(), store))?;
    eprintln!("stored in {:.0?}", clock.monotonic() - started);
    let log = store.with_extension("log");
    fs::rename(&log, store.with_extension("first.log"))?;
    Ok(())
}

async fn put_all(keys: u32, folder: &Path) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(SqliteStore::open(folder, Arc::clone(&clock), SqliteOptions::default())?);
    let tables: Arc<dyn TableStore> = Arc::clone(&store) as _;
    let buckets = RevisionStore::open(tables, clock, Default::default(), 1).await?;
    let entries = KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default());
    let bucket = entries.bucket(&DomainName::new(DOMAIN)?, &BucketName::new(BUCKET)?).await?;
    let bucket = bucket.context("the bucket is not there")?;
    let headers = Headers { content_type: "text/plain".to_owned(), other: Default::default() };
    stream::iter(0..keys)
        .map(|number| {
            let (entries, bucket, headers) = (&entries, &bucket, headers.clone());
            async move {
                let key = EntryKey::new(&key(number))?;
                let mut sink = entries.stage(bucket, &key);
                sink.write(&[b'x'; BODY_SIZE]).await?;
                entries.put(bucket, &key, headers, sink.finish().await?, &|_| true).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CONCURRENT_PUTS)
        .try_collect::<Vec<()>>()
        .await?;
    store.shutdown().await;
    Ok(())
}

fn key(number: u32) -> String {
    format!("dir{}/file{number:09}.txt", number / 1_000 % 10)
}

pub(super) fn measure(bench: &Bench<'_>, turn: usize, report: &mut Report) -> Result<()> {
    let mut medians = [0.0; PLACES.len()];
    for step in 0..PLACES.len() {
        let place = (turn + step) % PLACES.len();
        let (name, first) = PLACES[place];
        let measured = pages(bench, first, turn as u64)?;
        medians[place] = measured.latency_ms(0.5);
        report.add(&format!("page at the {name}, p50"), "ms", medians[place]);
        report.add(&format!("page at the {name}, p99"), "ms", measured.latency_ms(0.99));
    }
    for (place, (name, _)) in PLACES.iter().enumerate().skip(1) {
        report.add(&format!("page at the {name} / at the start, p50"), "", medians[place] / medians[0]);
    }
    Ok(())
}

/// Reads result pages that begin at random keys, in the tenth of the bucket that begins at this percentage.
fn pages(bench: &Bench<'_>, hundredths: u32, seed: u64) -> Result<Measurement> {
    let keys = bench.options.keys();
    let first = keys / 100 * hundredths;
    let last = (first + keys / 10).min(keys - LIMIT - 1);
    let mut pages = Pages { rng: Rng::with_seed(seed), keys: first..last, size: None };
    load::run(&bench.options.plan(bench.address, 1), bench.clock, &mut pages)
}

/// Traffic that reads result pages of the listing.
struct Pages {
    rng: Rng,
    keys: std::ops::Range<u32>,
    /// The size of the first answer. All answers have about as many bytes.
    size: Option<usize>,
}

impl Traffic for Pages {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        let after = key(self.rng.u32(self.keys.clone()));
        *out = http::get(&format!("{}?limit={LIMIT}&gt={after}", entry_path(BUCKET, "")));
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(status == 200, "a listing was answered with {status}: {}", String::from_utf8_lossy(body));
        if self.size.is_none() {
            let answer: serde_json::Value = serde_json::from_slice(body)?;
            let entries = answer["entries"].as_array().context("an answer has no entries")?;
            ensure!(entries.len() == LIMIT as usize, "a page has {} entries", entries.len());
        }
        let size = *self.size.get_or_insert(body.len());
        ensure!(body.len() * 10 > size * 9, "a page has {} bytes, and the first had {size}", body.len());
        Ok(())
    }
}
