//! Reads that many ask for at once, made once.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Result;

/// Lets those who ask for the same thing at the same time share one read of it.
///
/// A read is shared only by callers that arrived before it began. A read that was already running when a caller arrived
/// may have missed a write that was acknowledged in between. So that caller waits for the running read, and shares the
/// next one with all others that wait. No caller waits for more than two reads.
///
/// If the reading caller goes away, the next one takes its turn. An entry exists only while a caller waits for it.
#[derive(Debug)]
pub(super) struct JointReads<K: Eq + Hash + Clone, T> {
    lines: Mutex<HashMap<K, Line<T>>>,
}

/// Those who ask for one thing.
#[derive(Debug)]
struct Line<T> {
    /// How many they are.
    length: usize,
    /// How many reads have begun for them.
    begun: u64,
    turn: Arc<Turn<T>>,
}

/// Who holds it reads. In it is what the last read gave.
type Turn<T> = tokio::sync::Mutex<Option<Finished<T>>>;

#[derive(Debug)]
struct Finished<T> {
    /// Which read it was; the first is number 1.
    number: u64,
    result: Result<T>,
}

impl<K: Eq + Hash + Clone, T: Clone> JointReads<K, T> {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default() }
    }

    /// What a read gives that begins after this call: `read`, or that of somebody else who asks for the same.
    pub(super) async fn read(&self, what: K, read: impl Future<Output = Result<T>>) -> Result<T> {
        let place = self.join(what);
        let mut last = place.turn.lock().await;
        if let Some(finished) = last.as_ref().filter(|finished| finished.number > place.begun_before) {
            return finished.result.clone();
        }
        let number = place.begin();
        let result = read.await;
        *last = Some(Finished { number, result: result.clone() });
        result
    }

    fn join(&self, what: K) -> Place<'_, K, T> {
        let mut lines = self.lines();
        let line = lines.entry(what.clone()).or_insert_with(|| Line {
            length: 0,
            begun: 0,
            turn: Arc::new(Turn::new(None)),
        });
        line.length += 1;
        Place { reads: self, what, begun_before: line.begun, turn: Arc::clone(&line.turn) }
    }
}

impl<K: Eq + Hash + Clone, T> JointReads<K, T> {
    fn lines(&self) -> MutexGuard<'_, HashMap<K, Line<T>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a line. The line goes with its last place.
struct Place<'a, K: Eq + Hash + Clone, T> {
    reads: &'a JointReads<K, T>,
    what: K,
    /// How many reads had begun when it was taken.
    begun_before: u64,
    turn: Arc<Turn<T>>,
}

impl<K: Eq + Hash + Clone, T> Place<'_, K, T> {
    /// Counts a read that begins now, under the same lock as those who come: each came before it or after it.
    fn begin(&self) -> u64 {
        let mut lines = self.reads.lines();
        let line = lines.get_mut(&self.what).expect("a line stays while a place in it is taken");
        line.begun += 1;
        line.begun
    }
}

impl<K: Eq + Hash + Clone, T> Drop for Place<'_, K, T> {
    fn drop(&mut self) {
        let mut lines = self.reads.lines();
        if let Some(line) = lines.get_mut(&self.what) {
            line.length -= 1;
            if line.length == 0 {
                lines.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests;
