//! Writers and readers during a fault, at a fixed rate that does not depend on the answers.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use fastrand::Rng;

use super::{
    client::Client,
    content::Write,
    journal::{Attempt, Journal, Outcome, Read, Span},
};
use crate::process::Stopwatch;

/// The number of connections that write in turn. At the default rate, the rate falls only if answers take
/// more than four seconds.
const WRITERS: usize = 40;
/// The number of connections that read in turn.
const READERS: usize = 100;
/// The interval between two checks of a waiting thread whether the traffic is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a write with an unknown outcome is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of retries of a write.
const MAX_RETRIES: u32 = 30;

/// The address of the service, and the rates of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) service: SocketAddr,
    pub(super) writes_per_second: f64,
    pub(super) reads_per_second: f64,
    pub(super) seed: u64,
}

/// All writes so far, by all traffic of a run.
#[derive(Debug)]
pub(super) struct History {
    next: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
}

#[derive(Debug, Default)]
struct Acknowledged {
    /// The writes, with their tids.
    writes: Vec<(Write, String)>,
    /// The newest write of each page.
    newest: BTreeMap<usize, Write>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { next: AtomicU64::new(1), acknowledged: Mutex::default() }
    }

    /// Returns a write that was never made before.
    pub(super) fn next(&self) -> Write {
        Write(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn add(&self, write: Write, tid: &str) {
        let mut acknowledged = lock(&self.acknowledged);
        acknowledged.writes.push((write, tid.to_owned()));
        let newest = acknowledged.newest.entry(write.page()).or_insert(write);
        *newest = write.max(*newest);
    }
}

/// A handle to running traffic, for recording events and remarks.
#[derive(Debug)]
pub(super) struct Traffic<'a> {
    load: Load,
    history: &'a History,
    clock: Stopwatch,
    is_over: AtomicBool,
    journal: Mutex<Journal>,
}

impl<'a> Traffic<'a> {
    /// Runs the traffic for as long as `during` takes, and then until all retries are done. Returns the journal.
    pub(super) fn run(
        load: Load,
        history: &'a History,
        during: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Journal> {
        let traffic = Self {
            load,
            history,
            clock: Stopwatch::start(),
            is_over: AtomicBool::new(false),
            journal: Mutex::default(),
        };
        let (retries, to_retry) = mpsc::channel();
        let done = thread::scope(|scope| {
            let this = &traffic;
            for lane in 0..WRITERS {
                let retries = retries.clone();
                scope.spawn(move || this.write(lane, &retries));
            }
            for lane in 0..READERS {
                scope.spawn(move || this.read(lane));
            }
            drop(retries);
            scope.spawn(move || this.retry_writes(&to_retry));
            let done = during(this);
            this.is_over.store(true, Ordering::Relaxed);
            done
        });
        done?;
        Ok(traffic.journal.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prints and records an event of the ring, with the current time.
    pub(super) fn event(&self, what: &str) {
        lock(&self.journal).events.push((self.remark(what), what.to_owned()));
    }

    /// Prints a remark with the current time, and returns this time.
    pub(super) fn remark(&self, what: &str) -> Duration {
        let at = self.clock.elapsed();
        println!("    {:>5.1} s  {what}", at.as_secs_f64());
        at
    }

    /// Writes once through another service, and reads once if the write is acknowledged. The journal has both.
    pub(super) fn try_service(&self, service: SocketAddr) {
        let mut client = Client::new(service);
        let write = self.history.next();
        if self.attempt(&mut client, write, false) == End::Acknowledged {
            let sent = self.clock.elapsed();
            let outcome = client.read_newest(write, self.load.seed);
            let span = Span { sent, answered: self.clock.elapsed() };
            lock(&self.journal).reads.push(Read { span, outcome });
        }
    }

    fn write(&self, lane: usize, retries: &Sender<Write>) {
        let mut client = Client::new(self.load.service);
        for number in 0.. {
            if !self.wait(turn(lane, WRITERS, number, self.load.writes_per_second)) {
                return;
            }
            let write = self.history.next();
            let outcome = self.attempt(&mut client, write, false);
            if outcome == End::Unknown && write.names_its_tid() && retries.send(write).is_err() {
                return;
            }
        }
    }

    /// Repeats writes until their outcome is known, at most [`MAX_RETRIES`] times, as a careful client would.
    fn retry_writes(&self, to_retry: &Receiver<Write>) {
        let mut client = Client::new(self.load.service);
        let mut waiting = VecDeque::new();
        loop {
            match to_retry.try_recv() {
                Ok(write) => waiting.push_back((self.clock.elapsed() + RETRY_PAUSE, write, 1)),
                Err(TryRecvError::Disconnected) if waiting.is_empty() => return,
                Err(_) => match waiting.pop_front() {
                    Some(waiting_write @ (retry_at, ..)) if retry_at > self.clock.elapsed() => {
                        waiting.push_front(waiting_write);
                        thread::sleep(LOOK_INTERVAL);
                    }
                    Some((_, write, attempts)) => {
                        let end = self.attempt(&mut client, write, true);
                        if end == End::Unknown && attempts < MAX_RETRIES {
                            waiting.push_back((self.clock.elapsed() + RETRY_PAUSE, write, attempts + 1));
                        }
                    }
                    None => thread::sleep(LOOK_INTERVAL),
                },
            }
        }
    }

    fn attempt(&self, client: &mut Client, write: Write, is_retry: bool) -> End {
        let request = write.request(&write.properties(self.load.seed));
        let sent = self.clock.elapsed();
        let outcome = client.write(&request);
        let span = Span { sent, answered: self.clock.elapsed() };
        let end = match &outcome {
            Outcome::Acknowledged(tid) => {
                self.history.add(write, tid);
                End::Acknowledged
            }
            Outcome::Refused(_) => End::Refused,
            Outcome::Unknown(_) => End::Unknown,
        };
        lock(&self.journal).attempts.push(Attempt { write, is_retry, span, outcome });
        end
    }

    fn read(&self, lane: usize) {
        let mut client = Client::new(self.load.service);
        let mut rng = Rng::with_seed(self.load.seed ^ lane as u64);
        for number in 0.. {
            if !self.wait(turn(lane, READERS, number, self.load.reads_per_second)) {
                return;
            }
            if let Some(read) = self.read_something(&mut client, &mut rng) {
                lock(&self.journal).reads.push(read);
            }
        }
    }

    /// Reads an acknowledged render, or the newest render of a page. Returns `None` as long as no write was
    /// acknowledged.
    fn read_something(&self, client: &mut Client, rng: &mut Rng) -> Option<Read> {
        let (write, tid) = {
            let acknowledged = lock(&self.history.acknowledged);
            let (write, tid) = rng.choice(&acknowledged.writes)?;
            if rng.bool() {
                (*acknowledged.newest.get(&write.page())?, None)
            } else {
                (*write, Some(tid.clone()))
            }
        };
        let sent = self.clock.elapsed();
        let outcome = match tid {
            Some(tid) => client.read(write, &tid, self.load.seed),
            None => client.read_newest(write, self.load.seed),
        };
        Some(Read { span: Span { sent, answered: self.clock.elapsed() }, outcome })
    }

    /// Waits until a time. Returns whether the traffic still goes on.
    fn wait(&self, until: Duration) -> bool {
        while !self.is_over.load(Ordering::Relaxed) {
            let left = until.saturating_sub(self.clock.elapsed());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(LOOK_INTERVAL));
        }
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Acknowledged,
    Refused,
    Unknown,
}

/// The time at which one of `lanes` connections makes its request with this number, if all together keep this rate.
fn turn(lane: usize, lanes: usize, number: u32, per_second: f64) -> Duration {
    Duration::from_secs_f64((lane as f64 + lanes as f64 * f64::from(number)) / per_second)
}

/// Locks a mutex. The data under these locks is consistent after every statement, even if a thread panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_take_turns_at_the_rate_of_all() {
        let mut turns: Vec<_> =
            (0..4).flat_map(|lane| (0..5).map(move |number| turn(lane, 4, number, 10.0))).collect();
        turns.sort();
        let expected: Vec<_> = (0..20).map(|number| Duration::from_millis(100 * number)).collect();
        assert_eq!(turns, expected);
    }
}
