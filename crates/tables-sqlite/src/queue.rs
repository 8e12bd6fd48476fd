//! Bounded queues from tasks to threads. A task that sends a job waits while the queue is full.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use rashomon_tables::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The sending end of a queue, for tasks. The total weight of the jobs in the queue is bounded.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    sender: Sender<Queued<T>>,
    room: Arc<Semaphore>,
    capacity: u32,
}

/// A job in the queue, with the room that it takes there.
#[derive(Debug)]
pub(crate) struct Queued<T> {
    pub(crate) job: T,
    /// `None` for a job of [`Queue::push_last`].
    _room: Option<OwnedSemaphorePermit>,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: u32) -> (Self, Receiver<Queued<T>>) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        (Self { sender, room: Arc::new(Semaphore::new(capacity as usize)), capacity }, receiver)
    }

    /// Waits for room, then queues the job. A job that is heavier than the whole queue waits until the queue
    /// is empty.
    pub(crate) async fn push(&self, job: T, weight: u32) -> Result<()> {
        let weight = weight.clamp(1, self.capacity);
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await.map_err(|_| closed_error())?;
        self.sender.send(Queued { job, _room: Some(room) }).map_err(|_| closed_error())
    }

    /// Whether new jobs are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.room.is_closed()
    }

    /// Refuses all later jobs.
    pub(crate) fn close(&self) {
        self.room.close();
    }

    /// Queues a job of the queue's owner, even if the queue is closed.
    pub(crate) fn push_last(&self, job: T) {
        // If no thread takes jobs any more, the job is not needed.
        let _ = self.sender.send(Queued { job, _room: None });
    }
}

/// Returns the error of a call after the store was closed.
pub(crate) fn closed_error() -> Error {
    Error::unavailable("the store is shut down")
}
