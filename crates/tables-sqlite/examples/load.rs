//! Measures durable writes and reads, with sixteen tasks and with one task, for `SECONDS` each.
//!
//! `cargo run --release -p rashomon-tables-sqlite --example load -- DIRECTORY [SECONDS]`

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Direction, Key, Schema, SchemaBuilder, TableStore, Value};
use rashomon_tables_sqlite::{Options, SqliteStore};

const TASKS: u64 = 16;
const TITLES: u64 = 20_000;

fn of_a_page(name: &'static str) -> SchemaBuilder {
    Schema::builder(name)
        .partition("domain", ColumnType::Text)
        .partition("bucket", ColumnType::Text)
        .partition("title", ColumnType::Text)
}

static CONTENT: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("content")
        .clustering("property", ColumnType::Text, Direction::Ascending)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("value", ColumnType::Blob)
        .build()
});

static SMALL_TABLES: LazyLock<[Schema; 4]> = LazyLock::new(|| {
    ["one", "two", "three", "four"].map(|name| {
        of_a_page(name)
            .clustering("rev", ColumnType::Int, Direction::Descending)
            .value("stored_at", ColumnType::Timestamp)
            .value("note", ColumnType::Text)
            .build()
    })
});

/// Returns a number that looks random, but is the same in each run.
fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn random_bytes(seed: u64, length: u64) -> Value {
    let bytes: Vec<u8> =
        (0..length / 8).flat_map(|word| scramble(seed ^ (word << 40)).to_le_bytes()).collect();
    Value::Blob(bytes.into())
}

fn partition(number: u64) -> Vec<Value> {
    vec!["enwiki".into(), "page".into(), format!("Some title {}", scramble(number) % TITLES).into()]
}

/// A write of a revision: two bodies, and a row in each of the small tables.
fn revision(number: u64, now: Timestamp) -> Batch {
    let mut batch = Batch::new(partition(number));
    let rev = || Value::Int(number as i64);
    batch.put(&CONTENT, vec!["html".into(), rev()], vec![Some(random_bytes(number, 5_000))], now);
    batch.put(&CONTENT, vec!["data-parsoid".into(), rev()], vec![Some(random_bytes(number, 1_200))], now);
    for table in &*SMALL_TABLES {
        batch.put(
            table,
            vec![rev()],
            vec![Some(now.into()), Some("a short note of forty bytes, about so".into())],
            now,
        );
    }
    batch
}

/// Runs `work` in `tasks` tasks until the time is over. Prints how often `work` ran per second, and how long it
/// took.
async fn measure<F: Future<Output = ()> + Send>(
    name: &str,
    clock: Arc<dyn Clock>,
    tasks: u64,
    time: Duration,
    work: impl Fn(u64) -> F + Clone + Send + 'static,
) {
    let count = Arc::new(AtomicU64::new(0));
    let begin = clock.monotonic();
    let cpu = cpu_seconds();
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let (work, count, clock) = (work.clone(), count.clone(), clock.clone());
        set.spawn(async move {
            let mut took = Vec::new();
            loop {
                let before = clock.monotonic();
                if before - begin > time {
                    return took;
                }
                work(count.fetch_add(1, Ordering::Relaxed)).await;
                took.push(clock.monotonic() - before);
            }
        });
    }
    let mut took: Vec<Duration> = set.join_all().await.into_iter().flatten().collect();
    let seconds = (clock.monotonic() - begin).as_secs_f64();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{name:24} {:8.0}/s  p50 {:?}  p99 {:?}  max {:?}  cpu {:.0} us each",
        took.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        at(1.0),
        (cpu_seconds() - cpu) * 1e6 / took.len() as f64
    );
}

/// The CPU time of this process so far, in user and system mode; zero if the system does not report it.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().into_iter().flat_map(str::split_whitespace).skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap();
    let seconds = arguments.next().map_or(5, |seconds| seconds.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store =
        Arc::new(SqliteStore::open(Path::new(&directory), clock.clone(), Options::default()).unwrap());
    store.create(&CONTENT).await.unwrap();
    for table in &*SMALL_TABLES {
        store.create(table).await.unwrap();
    }

    let base = clock.now().as_micros() as u64;
    let (writer, time_of) = (store.clone(), clock.clone());
    let written = Arc::new(AtomicU64::new(0));
    let next = written.clone();
    let write = move |_: u64| {
        let (store, clock, number) = (writer.clone(), time_of.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move {
            let batch = revision(base + number, clock.now());
            store.write(Vec::new(), batch).await.unwrap();
        }
    };
    for _ in 0..3 {
        let before = store.calls_and_commits();
        measure("durable writes, 16 tasks", clock.clone(), TASKS, time, write.clone()).await;
        let after = store.calls_and_commits();
        println!("   {:.1} calls a commit", (after.0 - before.0) as f64 / (after.1 - before.1) as f64);
    }
    measure("durable writes, 1 task", clock.clone(), 1, time, write.clone()).await;

    let written = written.load(Ordering::Relaxed);
    let reader = store.clone();
    let get = move |number: u64| {
        let store = reader.clone();
        async move {
            let number = base + scramble(number) % written;
            let key = Key::new(partition(number), vec!["html".into(), Value::Int(number as i64)]);
            store.get(&CONTENT, &key).await.unwrap();
        }
    };
    for _ in 0..2 {
        measure("get 5 KB, 1 task", clock.clone(), 1, time, get.clone()).await;
        measure("get 5 KB, 16 tasks", clock.clone(), TASKS, time, get.clone()).await;
    }
    store.shutdown().await;
}
