//! Request coalescing: one read of the store answers several concurrent requests for the same body.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Result;

/// Lets concurrent callers share one read per key.
///
/// A read is shared only by callers that arrived before the read began. A read that was already running when
/// a caller arrived may have missed a write that was acknowledged in between. So that caller waits for the
/// running read, and shares the next read with all other waiting callers. No caller waits for more than two
/// reads.
///
/// If the reading caller is cancelled, the next caller reads. The map has an entry for a key only while a
/// caller waits for the key.
#[derive(Debug)]
pub(super) struct CoalescedReads<K: Eq + Hash + Clone, T> {
    lines: Mutex<HashMap<K, Line<T>>>,
}

/// The callers that wait for one key.
#[derive(Debug)]
struct Line<T> {
    /// The number of waiting callers.
    length: usize,
    /// The number of reads that have begun for these callers.
    begun: u64,
    turn: Arc<Turn<T>>,
}

/// The lock under which a caller reads. It protects the result of the last read.
type Turn<T> = tokio::sync::Mutex<Option<Finished<T>>>;

#[derive(Debug)]
struct Finished<T> {
    /// The number of the read. The first read has number 1.
    number: u64,
    result: Result<T>,
}

impl<K: Eq + Hash + Clone, T: Clone> CoalescedReads<K, T> {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default() }
    }

    /// Returns the result of a read that begins after this call: of `read`, or of another caller's read of
    /// the same key.
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

impl<K: Eq + Hash + Clone, T> CoalescedReads<K, T> {
    fn lines(&self) -> MutexGuard<'_, HashMap<K, Line<T>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiting caller. Dropping the last [`Place`] of a [`Line`] removes the [`Line`].
struct Place<'a, K: Eq + Hash + Clone, T> {
    reads: &'a CoalescedReads<K, T>,
    what: K,
    /// The number of reads that had begun when the caller arrived.
    begun_before: u64,
    turn: Arc<Turn<T>>,
}

impl<K: Eq + Hash + Clone, T> Place<'_, K, T> {
    /// Counts a read that begins now. Takes the lock that arriving callers take, so that each caller arrives
    /// either before the read begins or after.
    fn begin(&self) -> u64 {
        let mut lines = self.reads.lines();
        let line = lines.get_mut(&self.what).expect("the entry exists while a caller waits");
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
