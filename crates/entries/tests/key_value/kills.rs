//! Two processes write to one bucket of a node. They are killed with SIGKILL again and again, in the middle of splits
//! of its index.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_entries::{Bucket, KeyRange, KeyValueStore, Order};
use rashomon_records::schemas;
use rashomon_tables::TableStore;
use rashomon_testing::stores::{namespace, node, open_namespace, open_namespace_of_process};

use crate::{
    splits::map_rows,
    support::{domain, key, list, name, ordered, process, put},
};

/// The variable of a process that writes: the process of the test, the namespace of its store, and a seed.
const WRITER: &str = "RASHOMON_TEST_WRITER";

/// The number of processes that are killed.
const KILLS: u64 = 24;

/// The number of writes that a process finishes while the other one is killed.
const WRITES_BESIDE_A_KILL: usize = 12;

/// The largest number of writes that a process finishes after these writes, before it is killed.
const MAX_WRITES: usize = 24;

/// The keys that the processes have written.
#[derive(Debug, Default)]
struct Keys {
    /// The keys of entries that exist.
    stored: BTreeSet<String>,
    /// The keys whose PUT or DELETE was never answered.
    unknown: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State(Mutex<Keys>);

impl State {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a line of a process: `put KEY`, `delete KEY`, or `done`, which is the answer to the line before.
    /// Returns `false` for another line, such as that of a panic.
    fn apply_line(&self, line: &str, request: &mut Option<(bool, String)>) -> bool {
        let mut keys = self.keys();
        if line == "done" {
            let (is_put, key) = request.take().expect("an answer to a request");
            keys.unknown.remove(&key);
            if is_put {
                keys.stored.insert(key);
            }
        } else if let Some((verb, key)) = line.split_once(' ')
            && matches!(verb, "put" | "delete")
        {
            keys.stored.remove(key);
            keys.unknown.insert(key.to_owned());
            *request = Some((verb == "put", key.to_owned()));
        } else {
            return false;
        }
        true
    }
}

/// A process that makes as many writes as it is allowed to, until it is killed. Without the limit it would write faster
/// than the test lists the bucket, so that each listing would take longer than the one before.
struct Writer {
    child: Child,
    reader: JoinHandle<()>,
    /// Receives a message for each answer.
    answers: mpsc::Receiver<()>,
}

impl Writer {
    fn start(namespace: u64, seed: u64, state: &Arc<State>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "kills::process_that_writes_until_it_is_killed", "--nocapture"]);
        command.env(WRITER, format!("{} {namespace} {seed}", std::process::id()));
        // Standard output has the lines of the test program.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (sender, answers) = mpsc::channel();
        let state = Arc::clone(state);
        let reader = thread::spawn(move || {
            let (mut request, mut lines) = (None, lines.map_while(Result::ok));
            while let Some(line) = lines.next() {
                let is_known = state.apply_line(&line, &mut request);
                assert!(
                    is_known,
                    "a process that writes has failed: {}",
                    lines.collect::<Vec<_>>().join("\n")
                );
                if line == "done" {
                    // After the kill, there is no receiver.
                    let _ = sender.send(());
                }
            }
        });
        let mut writer = Self { child, reader, answers };
        writer.allow(WRITES_BESIDE_A_KILL);
        writer
    }

    /// Allows this number of further writes.
    fn allow(&mut self, writes: usize) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        // If the process has failed, the reader of its output says why.
        let _ = input.write_all("\n".repeat(writes).as_bytes());
    }

    /// Waits for further answers, kills the process during the write after them, and reads its last lines.
    fn kill_after(mut self, answers: usize) {
        self.allow(answers + 1);
        for _ in 0..WRITES_BESIDE_A_KILL + answers {
            self.answers.recv_timeout(Duration::from_secs(120)).expect("the process writes");
        }
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.reader.join().expect("all lines are known");
    }
}

/// Lists the bucket. Panics if a key is listed twice, or if an acknowledged key is missing.
async fn check(store: &KeyValueStore, bucket: &Bucket, state: &State, order: Order) -> Vec<String> {
    let before = state.keys().stored.clone();
    let mut listed: Vec<String> = list(store, bucket, &KeyRange::all(), order, 7)
        .await
        .into_iter()
        .map(|entry| entry.key.into())
        .collect();
    if order == Order::Descending {
        listed.reverse();
    }
    assert!(listed.is_sorted_by(|one, next| one < next), "{listed:?}");
    // A key that a process has deleted meanwhile may be missing.
    let after = &state.keys().stored;
    let missed: Vec<_> =
        before.iter().filter(|key| after.contains(*key) && listed.binary_search(key).is_err()).collect();
    assert!(missed.is_empty(), "a listing has missed {missed:?}");
    listed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_lost_or_listed_twice_after_processes_were_killed_in_splits() {
    let Some(node) = node() else { return };
    let namespace = namespace();
    let clock = Arc::new(SystemClock::new()) as Arc<dyn Clock>;
    let tables = open_namespace(&node, namespace, Arc::clone(&clock)).await;
    let tables = Arc::new(tables) as Arc<dyn TableStore>;
    for schema in schemas::all() {
        tables.create(schema).await.expect("a table");
    }
    let store = process(&tables, clock, 1);
    let bucket = store.create_bucket(&domain(), &name("b"), ordered()).await.expect("a bucket").bucket;
    let state = Arc::new(State::default());
    let mut random = fastrand::Rng::with_seed(1);
    let mut writers: Vec<_> = (0..2).map(|seed| Writer::start(namespace, seed, &state)).collect();
    let mut interrupted = 0;
    for seed in 2..KILLS {
        let writer = writers.remove(0);
        let answers = random.usize(1..=MAX_WRITES);
        let killed = tokio::task::spawn_blocking(move || writer.kill_after(answers));
        while !killed.is_finished() {
            check(&store, &bucket, &state, Order::Ascending).await;
        }
        killed.await.expect("no panic");
        writers.push(Writer::start(namespace, seed, &state));
        interrupted += map_rows(&*tables).await.iter().filter(|row| row.values[1].is_some()).count();
        check(&store, &bucket, &state, Order::Descending).await;
    }
    for writer in writers {
        let killed = tokio::task::spawn_blocking(move || writer.kill_after(1));
        killed.await.expect("no panic");
    }
    let listed = check(&store, &bucket, &state, Order::Ascending).await;
    {
        let keys = state.keys();
        let unexpected: Vec<_> =
            listed.iter().filter(|key| !keys.stored.contains(*key) && !keys.unknown.contains(*key)).collect();
        assert!(unexpected.is_empty(), "{unexpected:?} were deleted, or never stored");
    }
    // The collector ends the splits that were interrupted.
    store.collect(Duration::from_secs(3600)).await.expect("collected");
    let map = map_rows(&*tables).await;
    assert!(map.iter().all(|row| row.values[1].is_none()), "{map:?}");
    let collected: BTreeSet<_> = check(&store, &bucket, &state, Order::Ascending).await.into_iter().collect();
    {
        // A node may carry out the last request of a killed process after the first of the two listings.
        let (listed, keys) = (listed.iter().cloned().collect(), state.keys());
        let changed: Vec<_> =
            collected.symmetric_difference(&listed).filter(|key| !keys.unknown.contains(*key)).collect();
        assert!(changed.is_empty(), "the collector has changed the listing by {changed:?}");
    }
    assert!(map.len() > KILLS as usize, "{} keys have only {} parts", listed.len(), map.len());
    assert!(interrupted > 0, "no split was under way after a kill");
    println!(
        "{} keys, {} parts, {interrupted} splits under way after {KILLS} kills",
        listed.len(),
        map.len()
    );
}

/// The process that a [`Writer`] starts. Does nothing unless the test above has started this process.
#[tokio::test]
async fn process_that_writes_until_it_is_killed() {
    let (Some(node), Ok(arguments)) = (node(), std::env::var(WRITER)) else { return };
    let numbers: Vec<u64> = arguments.split(' ').map(|number| number.parse().expect("a number")).collect();
    let &[parent, namespace, seed] = &numbers[..] else { panic!("{arguments}") };
    let clock = Arc::new(SystemClock::new()) as Arc<dyn Clock>;
    let tables = open_namespace_of_process(&node, parent, namespace, Arc::clone(&clock)).await;
    for schema in schemas::all() {
        tables.create(schema).await.expect("a table");
    }
    let store = process(&(Arc::new(tables) as Arc<dyn TableStore>), clock, seed + 100);
    let bucket = store.bucket(&domain(), &name("b")).await.expect("read").expect("a bucket");
    let (mut random, mut stored) = (fastrand::Rng::with_seed(seed), Vec::new());
    let say = |line: &str| {
        // A kill does not cut a line that is written as a whole.
        std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("the test reads");
    };
    let (sender, mut allowed) = tokio::sync::mpsc::unbounded_channel();
    // The connections to the node need this thread, so another one waits for permission.
    thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    for number in 0_u64.. {
        // The input ends only if the test has failed.
        let Some(_) = allowed.recv().await else { return };
        if random.u8(..5) == 0 && !stored.is_empty() {
            let text: String = stored.swap_remove(random.usize(..stored.len()));
            say(&format!("delete {text}"));
            store.delete(&bucket, &key(&text), &|_| true).await.expect("deleted");
        } else {
            let text = format!("{:02}/{seed}/{number}", random.u8(..40));
            say(&format!("put {text}"));
            put(&store, &bucket, &key(&text), b"x").await.expect("stored");
            stored.push(text);
        }
        say("done");
    }
}
