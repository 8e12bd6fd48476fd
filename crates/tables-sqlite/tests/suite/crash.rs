//! Tests that acknowledged writes are stored after a process was killed while it wrote.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, LazyLock},
};

use rashomon_tables::{Batch, ColumnType, Key, Row, Schema, Swap, TableStore, Value};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{BODIES, NOTES, body, key, open, revision, rows, system_clock};

/// The environment variable that is set in the process that will be killed.
const KILLED_PROCESS: &str = "RASHOMON_TEST_KILL";

const ROUNDS: u64 = 8;
const WRITERS: usize = 8;
const LOG_BYTES: u64 = 1 << 20;

/// A table that has, for each writer, the number of its last call that was a swap.
static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("heads")
        .partition("title", ColumnType::Text)
        .value("rev", ColumnType::Int)
        .swap_only()
        .build()
});

/// Every other call of a writer is a swap.
const fn is_swap(rev: i64) -> bool {
    rev % 2 == 0
}

/// The row that the call `rev`, or the last swap before it, has set.
fn head(writer: usize, rev: i64) -> Option<Row> {
    let last = if is_swap(rev) { rev } else { rev - 1 };
    let key = Key::new(vec![format!("Head {writer}").into()], Vec::new());
    let row =
        Row { key, values: vec![Some(Value::Int(last))], written_at: super::fixtures::NOW, expires_at: None };
    (last > 0).then_some(row)
}

/// The batches of a call: a body and a note in `then`, and a note in another partition in `first`. A swap has
/// them all in `first`.
fn call(writer: usize, rev: i64) -> (Vec<Batch>, Batch) {
    let length = [50, 5_000, 40_000][rev as usize % 3];
    let mut elsewhere = Batch::new(vec![format!("Index {writer}").into()]);
    elsewhere.put(&NOTES, vec![rev.into()], vec![None, None], super::fixtures::NOW);
    (vec![elsewhere], revision(&format!("Title {writer}"), rev, length))
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let directory = TempDir::new().expect("a directory");
    let mut acknowledged = BTreeMap::new();
    for round in 0..ROUNDS {
        let before = acknowledged.values().sum::<i64>();
        write_until_killed(directory.path(), 40 + round * 35, &mut acknowledged);
        assert!(acknowledged.values().sum::<i64>() > before, "nothing was acknowledged in round {round}");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(check_store(directory.path(), &acknowledged));
    }
}

/// Starts a process that writes, and kills the process when it has acknowledged this many calls. Records the
/// last acknowledged call of each writer.
fn write_until_killed(directory: &Path, calls: u64, acknowledged: &mut BTreeMap<usize, i64>) {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "crash::child_process_that_writes", "--nocapture"])
        .env(KILLED_PROCESS, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let mut count = 0;
    while output.read_line(&mut line).expect("a line") > 0 {
        // A truncated line acknowledges nothing.
        let call = line.strip_suffix('\n').and_then(|line| line.strip_prefix("ack ")?.split_once(' '));
        if let Some((writer, rev)) = call {
            acknowledged.insert(writer.parse().expect("a number"), rev.parse().expect("a number"));
            count += 1;
            if count == calls {
                child.kill().expect("killed");
            }
        }
        line.clear();
    }
    assert!(count >= calls, "the process ended after {count} calls");
    child.wait().expect("it ends");
}

/// The process that the test above starts and kills. Without the environment variable, this test does
/// nothing.
#[test]
fn child_process_that_writes() {
    let Some(directory) = std::env::var_os(KILLED_PROCESS) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        // With a short log, checkpoints are frequent, and most of them run beside the commits.
        let options = Options { log_bytes: LOG_BYTES, ..Options::default() };
        let store = Arc::new(open(Path::new(&directory), system_clock(), options).await);
        store.create(&HEADS).await.expect("the table is made");
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write_without_end(Arc::clone(&store), writer));
        }
        writers.join_all().await;
    });
}

async fn write_without_end(store: Arc<SqliteStore>, writer: usize) {
    let there = rows(&store, &NOTES, &format!("Title {writer}")).await.expect("read").len() as i64;
    for rev in there + 1.. {
        let (mut first, then) = call(writer, rev);
        if is_swap(rev) {
            first.push(then);
            let (before, new) = (head(writer, rev - 1), head(writer, rev));
            let key = new.as_ref().expect("a swap sets it").key.clone();
            let swap = store.swap(first, &HEADS, &key, before.as_ref(), new).await.expect("answered");
            assert_eq!(swap, Swap::Applied);
        } else {
            store.write(first, then).await.expect("written");
        }
        let acknowledgement = format!("ack {writer} {rev}\n");
        std::io::stdout().lock().write_all(acknowledgement.as_bytes()).expect("printed");
    }
}

/// Checks that all acknowledged calls are stored, and that all stored calls are complete. The last call of a
/// writer may be stored without an acknowledgement.
async fn check_store(directory: &Path, acknowledged: &BTreeMap<usize, i64>) {
    let store = open(directory, system_clock(), Options::default()).await;
    store.create(&HEADS).await.expect("the table is made");
    for writer in 0..WRITERS {
        let title = format!("Title {writer}");
        let notes = rows(&store, &NOTES, &title).await.expect("read");
        let elsewhere = rows(&store, &NOTES, &format!("Index {writer}")).await.expect("read");
        let bodies = rows(&store, &BODIES, &title).await.expect("read");
        let last = acknowledged.get(&writer).copied().unwrap_or(0);
        let there = notes.len() as i64;
        assert!(there >= last, "writer {writer}: {there} of {last} acknowledged");
        assert_eq!([elsewhere.len(), bodies.len()], [notes.len(); 2], "writer {writer}: half a call");
        let heads = rows(&store, &HEADS, &format!("Head {writer}")).await.expect("read");
        let heads: Vec<_> = heads.into_iter().map(|row| row.values).collect();
        let expected: Vec<_> = head(writer, there).into_iter().map(|row| row.values).collect();
        assert_eq!(heads, expected, "writer {writer}: a swap without its batches, or the batches without it");
        for (rev, row) in (1..=there).rev().zip(bodies) {
            let length = [50, 5_000, 40_000][rev as usize % 3];
            assert_eq!((row.key, row.values), (key(&title, rev), vec![Some(body(&title, rev, length))]));
        }
    }
    let report = store.check(|_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}
