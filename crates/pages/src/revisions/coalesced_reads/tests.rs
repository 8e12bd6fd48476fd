use std::sync::atomic::{AtomicU64, Ordering};

use tokio::{sync::Semaphore, task::JoinHandle};

use super::*;
use crate::{Error, Missing};

/// Slow reads. Each read waits for the gate, and then returns its number. The second read fails.
#[derive(Clone)]
struct SlowReads {
    reads: Arc<CoalescedReads<&'static str, u64>>,
    begun: Arc<AtomicU64>,
    gate: Arc<Semaphore>,
}

impl SlowReads {
    fn new() -> Self {
        Self {
            reads: Arc::new(CoalescedReads::new()),
            begun: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    /// Starts a reader, and returns when the reader waits. The tests run on one thread.
    async fn spawn_reader(&self, what: &'static str) -> JoinHandle<Result<u64>> {
        let this = self.clone();
        let reader = tokio::spawn(async move {
            let read = async {
                let number = this.begun.fetch_add(1, Ordering::SeqCst) + 1;
                this.gate.acquire().await.unwrap().forget();
                if number == 2 { Err(Error::NotFound(Missing::Page)) } else { Ok(number) }
            };
            this.reads.read(what, read).await
        });
        tokio::task::yield_now().await;
        reader
    }

    fn let_through(&self, reads: usize) {
        self.gate.add_permits(reads);
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    fn waiting_keys(&self) -> usize {
        self.reads.waiting().len()
    }
}

#[tokio::test]
async fn read_is_shared_by_callers_that_arrived_before_it_began() {
    let slow = SlowReads::new();
    let first = slow.spawn_reader("a").await;
    let mut others = Vec::new();
    for _ in 0..100 {
        others.push(slow.spawn_reader("a").await);
    }
    assert_eq!((slow.begun(), slow.waiting_keys()), (1, 1));
    slow.let_through(200);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    for other in others {
        other.await.unwrap().unwrap_err();
    }
    assert_eq!((slow.begun(), slow.waiting_keys()), (2, 0));
}

#[tokio::test]
async fn caller_that_arrives_during_a_read_gets_a_later_read() {
    let slow = SlowReads::new();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(slow.spawn_reader("a").await);
    }
    slow.let_through(1);
    assert_eq!(readers.remove(0).await.unwrap().unwrap(), 1);
    assert_eq!(slow.begun(), 2);
    // The second read is running, for the second and the third reader. The late reader cannot share this
    // read.
    let late = slow.spawn_reader("a").await;
    slow.let_through(1);
    for reader in readers {
        reader.await.unwrap().unwrap_err();
    }
    slow.let_through(1);
    assert_eq!(late.await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn reads_of_different_keys_run_side_by_side() {
    let slow = SlowReads::new();
    let one = slow.spawn_reader("a").await;
    let other = slow.spawn_reader("b").await;
    assert_eq!((slow.begun(), slow.waiting_keys()), (2, 2));
    slow.let_through(2);
    assert_eq!(one.await.unwrap().unwrap(), 1);
    other.await.unwrap().unwrap_err();
    assert_eq!(slow.waiting_keys(), 0);
}

#[tokio::test]
async fn cancelled_caller_does_not_block_the_others() {
    let slow = SlowReads::new();
    let reading = slow.spawn_reader("a").await;
    let next = slow.spawn_reader("a").await;
    let last = slow.spawn_reader("a").await;
    for gone in [next, reading] {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    slow.let_through(1);
    last.await.unwrap().unwrap_err();
    assert_eq!((slow.begun(), slow.waiting_keys()), (2, 0));
}
