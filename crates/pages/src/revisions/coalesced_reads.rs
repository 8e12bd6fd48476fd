//! Request coalescing: one read of the store answers several concurrent requests for the same body.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Result;

/// Lets concurrent callers share one read per key.
///
/// A caller that arrives during a read does not share this read: the read may have missed a write that was
/// acknowledged before the caller arrived. The caller waits until the read ends, and shares the next read
/// with all other waiting callers. Unless a reading caller is cancelled, no caller waits for more than two
/// reads.
///
/// If the reading caller is cancelled, the next caller begins another read. The map has an entry for a key
/// only while a caller waits for the key.
#[derive(Debug)]
pub(super) struct CoalescedReads<K: Eq + Hash + Clone, T> {
    waiting: Mutex<HashMap<K, WaitingCallers<T>>>,
}

/// The callers that wait for one key.
#[derive(Debug)]
struct WaitingCallers<T> {
    /// The number of waiting callers.
    length: usize,
    /// The number of reads that have begun for these callers.
    begun: u64,
    lock: Arc<ReadLock<T>>,
}

/// The lock under which a caller reads. It protects the result of the last read.
type ReadLock<T> = tokio::sync::Mutex<Option<FinishedRead<T>>>;

#[derive(Debug)]
struct FinishedRead<T> {
    /// The number of the read. The first read has number 1.
    number: u64,
    result: Result<T>,
}

impl<K: Eq + Hash + Clone, T: Clone> CoalescedReads<K, T> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::default() }
    }

    /// Returns the result of a read that begins after this call: either of `read`, or of another caller's read
    /// of the same key.
    pub(super) async fn read(&self, key: K, read: impl Future<Output = Result<T>>) -> Result<T> {
        let caller = self.join(key);
        let mut last = caller.lock.lock().await;
        if let Some(finished) = last.as_ref().filter(|finished| finished.number > caller.begun_before) {
            return finished.result.clone();
        }
        let number = caller.begin();
        let result = read.await;
        *last = Some(FinishedRead { number, result: result.clone() });
        result
    }

    fn join(&self, key: K) -> WaitingCaller<'_, K, T> {
        let mut waiting = self.waiting();
        let callers = waiting.entry(key.clone()).or_insert_with(|| WaitingCallers {
            length: 0,
            begun: 0,
            lock: Arc::new(ReadLock::new(None)),
        });
        callers.length += 1;
        WaitingCaller { reads: self, key, begun_before: callers.begun, lock: Arc::clone(&callers.lock) }
    }
}

impl<K: Eq + Hash + Clone, T> CoalescedReads<K, T> {
    fn waiting(&self) -> MutexGuard<'_, HashMap<K, WaitingCallers<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiting caller. When the last caller of a key is dropped, the map's entry of the key is removed.
struct WaitingCaller<'a, K: Eq + Hash + Clone, T> {
    reads: &'a CoalescedReads<K, T>,
    key: K,
    /// The number of reads that had begun when the caller arrived.
    begun_before: u64,
    lock: Arc<ReadLock<T>>,
}

impl<K: Eq + Hash + Clone, T> WaitingCaller<'_, K, T> {
    /// Counts a read that begins now, and returns the number of the read. Takes the same lock as arriving
    /// callers, so that each caller arrives either before or after the beginning of the read.
    fn begin(&self) -> u64 {
        let mut waiting = self.reads.waiting();
        let callers = waiting.get_mut(&self.key).expect("the entry exists while a caller waits");
        callers.begun += 1;
        callers.begun
    }
}

impl<K: Eq + Hash + Clone, T> Drop for WaitingCaller<'_, K, T> {
    fn drop(&mut self) {
        let mut waiting = self.reads.waiting();
        if let Some(callers) = waiting.get_mut(&self.key) {
            callers.length -= 1;
            if callers.length == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
