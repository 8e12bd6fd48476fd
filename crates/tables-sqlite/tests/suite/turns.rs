//! The threads that read let other threads of the same core run.
#![cfg(target_os = "linux")]

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures::future::join_all;
use rashomon_tables::TableStore as _;
use rashomon_tables_sqlite::Options;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use super::fixtures::{BODIES, key, open, revision, system_clock, write};

/// The number of reads.
const READS: i64 = 2_000;

/// Without turns, the thread works until the timer interrupts of the kernel, every few milliseconds.
const MAX_TURN: Duration = Duration::from_millis(1);

/// Restricts this thread, and the threads that it starts, to one core.
fn pin() {
    let allowed = sched_getaffinity(None).expect("the cores of this thread");
    let mut core = CpuSet::new();
    core.set((0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).expect("a core"));
    sched_setaffinity(None, &core).expect("pinned");
}

/// The thread with this name that is restricted to one core. Other tests have threads with this name, too, but on all
/// cores.
fn pinned_thread(name: &str) -> PathBuf {
    let threads = fs::read_dir("/proc/self/task").expect("the threads of this process");
    let is_pinned = |thread: &PathBuf| {
        let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
        field(&status, "Name:") == Some(name)
            && field(&status, "Cpus_allowed_list:").is_some_and(|cores| cores.parse::<usize>().is_ok())
    };
    threads.map(|thread| thread.expect("listed").path()).find(is_pinned).expect("a thread of the store")
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The work of a thread so far.
struct Work {
    /// Its processor time.
    time: Duration,
    /// How often another thread got the core although this thread did not wait for anything.
    switches: u32,
}

impl Work {
    fn of(thread: &Path) -> Self {
        let read = |file: &str| fs::read_to_string(thread.join(file)).expect("the kernel counts its work");
        let (status, times) = (read("status"), read("schedstat"));
        let nanos = times.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number");
        let switches = field(&status, "nonvoluntary_ctxt_switches:").expect("counted");
        Self { time: Duration::from_nanos(nanos), switches: switches.parse().expect("a number") }
    }

    /// The mean time for which the thread has worked since then before another thread got the core.
    fn turn_since(&self, before: &Self) -> Duration {
        (self.time - before.time) / (self.switches - before.switches).max(1)
    }
}

/// A thread that never waits. It ends when this value is dropped.
struct BusyThread(Arc<AtomicBool>);

impl BusyThread {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ends);
        thread::spawn(move || while !flag.load(Ordering::Relaxed) {});
        Self(ends)
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn other_threads_of_the_core_run_between_reads() {
    pin();
    let directory = TempDir::new().expect("a directory");
    let options = Options { readers: NonZeroUsize::MIN, ..Options::default() };
    let store = open(directory.path(), system_clock(), options).await;
    join_all((0..READS).map(|rev| write(&store, revision("Title", rev, 100)))).await;

    let _busy = BusyThread::start();
    // Some kernels continue the same thread after most calls of `sched_yield`, or do not count processor time.
    let this_thread = Path::new("/proc/thread-self");
    if !this_thread.join("schedstat").exists() {
        return;
    }
    let before = Work::of(this_thread);
    while Work::of(this_thread).time < before.time + Duration::from_millis(20) {
        thread::yield_now();
    }
    if Work::of(this_thread).turn_since(&before) >= MAX_TURN {
        return;
    }

    let reader = pinned_thread("tables-read");
    let before = Work::of(&reader);
    let keys: Vec<_> = (0..READS).map(|rev| key("Title", rev)).collect();
    for read in join_all(keys.iter().map(|key| store.get(&BODIES, key))).await {
        read.expect("read").expect("there");
    }
    let turn = Work::of(&reader).turn_since(&before);
    assert!(turn < MAX_TURN, "the reader worked for {turn:?}");
}
