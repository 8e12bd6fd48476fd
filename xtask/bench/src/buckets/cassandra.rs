//! Measures entries and counters on one node of Cassandra, and single statements that the driver alone sends.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    frame::types::Consistency,
    statement::prepared::PreparedStatement,
};
use tokio::{runtime::Runtime, task::JoinSet};
use xtask::cassandra::{Node, start_for_benchmarks};

use super::{
    Bench, Options,
    blobs::{BUCKET, COMPARED, Puts, Size},
    counters, in_turn,
};
use crate::{
    content::{Contents, HTML_SIZE},
    reads::Reads,
    report::Report,
    service,
};

const KEYSPACE: &str = "bench_buckets";
/// Each PUT has a key of its own, as each insert of the driver has.
const NEW_KEYS: Size = Size { keys: usize::MAX, ..COMPARED };
/// The number of turns before the first one that counts. Cassandra compiles hot code at run time.
const TURNS_TO_WARM_UP: usize = 3;

pub(super) fn run(
    options: &Options,
    binary: &Path,
    runs: usize,
    report: &mut Report,
    clock: &dyn Clock,
) -> Result<()> {
    let _node = start_for_benchmarks()?;
    let folder = service::data_folder()?;
    let url = format!("cassandra://{}/{KEYSPACE}?replication=1", Node::address(1));
    let service = service::serve_store(binary, &url, &folder.path().join("log"))?;
    let contents = Contents::new(1);
    let bench = Bench { options, contents: &contents, address: service.address(), clock };
    bench.must_create(BUCKET, r#"{"type": "blob"}"#)?;
    counters::prepare(&bench)?;
    let (paths, bodies) = COMPARED.store(&bench)?;
    let runtime = Runtime::new()?;
    let mut driver = runtime.block_on(Driver::connect())?;
    let mut next = 0;
    for turn in 0..TURNS_TO_WARM_UP + runs {
        let mut warm_up = Report::new("warm-up", "");
        let report = if turn < TURNS_TO_WARM_UP { &mut warm_up } else { &mut *report };
        let put = || {
            let mut puts = Puts::new(&contents, NEW_KEYS, next);
            let rate = bench.run(&mut puts)?.per_second();
            next = puts.next;
            Ok(rate)
        };
        let (put, insert) = in_turn(turn, put, || runtime.block_on(driver.insert(&bench)))?;
        report.add("PUT of 20 KiB", "a second", put);
        report.add("INSERT IF NOT EXISTS of 20 KiB by the driver", "a second", insert);
        report.add("PUT / driver", "", put / insert);
        let get = || {
            let mut reads =
                Reads::new(&paths, Some(HTML_SIZE), Some(bodies.clone()), bench.options.connections);
            Ok(bench.run(&mut reads)?.per_second())
        };
        let (get, select) = in_turn(turn, get, || runtime.block_on(driver.select(&bench)))?;
        report.add("GET of 20 KiB", "a second", get);
        report.add("SELECT of 20 KiB by the driver", "a second", select);
        report.add("GET / driver", "", get / select);
        counters::measure(&bench, report)?;
    }
    Ok(())
}

/// A session of the driver, and its statements.
struct Driver {
    session: Arc<Session>,
    insert: PreparedStatement,
    select: PreparedStatement,
    /// The number of inserted rows.
    rows: u64,
}

impl Driver {
    async fn connect() -> Result<Self> {
        let profile = ExecutionProfile::builder().consistency(Consistency::LocalQuorum).build();
        let session = SessionBuilder::new()
            .known_node_addr(Node::address(1))
            .default_execution_profile_handle(profile.into_handle())
            .use_keyspace(KEYSPACE, false)
            .build()
            .await?;
        let table = "CREATE TABLE IF NOT EXISTS driver_alone (key text PRIMARY KEY, value blob)";
        session.query_unpaged(table, ()).await?;
        let insert =
            session.prepare("INSERT INTO driver_alone (key, value) VALUES (?, ?) IF NOT EXISTS").await?;
        let select = session.prepare("SELECT value FROM driver_alone WHERE key = ?").await?;
        Ok(Self { session: Arc::new(session), insert, select, rows: 0 })
    }

    /// The inserts per second.
    async fn insert(&mut self, bench: &Bench<'_>) -> Result<f64> {
        let first = self.rows;
        let bodies: Arc<Vec<Vec<u8>>> = Arc::new((0..64).map(|number| bench.contents.html(number)).collect());
        let (rate, sent) = self
            .repeat(bench, &self.insert, move |number| {
                let number = first + number;
                (format!("{number:012}"), Some(bodies[number as usize % bodies.len()].clone()))
            })
            .await?;
        self.rows += sent;
        Ok(rate)
    }

    /// The reads per second.
    async fn select(&self, bench: &Bench<'_>) -> Result<f64> {
        let rows = self.rows.clamp(1, 20);
        Ok(self.repeat(bench, &self.select, move |number| (format!("{:012}", number % rows), None)).await?.0)
    }

    /// Sends a statement from as many tasks as the service has connections. Returns the number of answers per second,
    /// and the number of statements that were sent.
    async fn repeat(
        &self,
        bench: &Bench<'_>,
        statement: &PreparedStatement,
        values: impl Fn(u64) -> (String, Option<Vec<u8>>) + Clone + Send + 'static,
    ) -> Result<(f64, u64)> {
        let (sent, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ends = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..bench.options.connections {
            let (session, statement, values) = (Arc::clone(&self.session), statement.clone(), values.clone());
            let (sent, done, ends) = (Arc::clone(&sent), Arc::clone(&done), Arc::clone(&ends));
            tasks.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let answer = match values(sent.fetch_add(1, Ordering::Relaxed)) {
                        (key, Some(body)) => session.execute_unpaged(&statement, (key, body)).await?,
                        (key, None) => session.execute_unpaged(&statement, (key,)).await?,
                    };
                    ensure!(answer.into_rows_result()?.rows_num() == 1, "a statement did not return one row");
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        tokio::time::sleep(bench.options.warm_up()).await;
        let (before, start) = (done.load(Ordering::Relaxed), bench.clock.monotonic());
        tokio::time::sleep(bench.options.measure()).await;
        let (after, end) = (done.load(Ordering::Relaxed), bench.clock.monotonic());
        ends.store(true, Ordering::Relaxed);
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(((after - before) as f64 / (end - start).as_secs_f64(), sent.load(Ordering::Relaxed)))
    }
}
