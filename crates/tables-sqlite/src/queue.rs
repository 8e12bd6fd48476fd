//! Queues from tasks to threads: bounded, and with nobody held up who is let in.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use rashomon_tables::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The tasks' end of a queue that holds jobs of a bounded total weight.
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
    /// `None` where the queue's owner put it there itself.
    _room: Option<OwnedSemaphorePermit>,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: u32) -> (Self, Receiver<Queued<T>>) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        (Self { sender, room: Arc::new(Semaphore::new(capacity as usize)), capacity }, receiver)
    }

    /// Waits for room, then queues the job. What is heavier than the whole queue waits until that is empty.
    pub(crate) async fn push(&self, job: T, weight: u32) -> Result<()> {
        let weight = weight.clamp(1, self.capacity);
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await.map_err(|_| closed())?;
        self.sender.send(Queued { job, _room: Some(room) }).map_err(|_| closed())
    }

    /// Whether nobody is let in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.room.is_closed()
    }

    /// From now on nobody is let in.
    pub(crate) fn close(&self) {
        self.room.close();
    }

    /// Queues a job of the queue's owner, also when it is closed.
    pub(crate) fn push_last(&self, job: T) {
        // Where nobody takes jobs any more, there is nothing left to be told.
        let _ = self.sender.send(Queued { job, _room: None });
    }
}

/// What a call gets that came too late.
pub(crate) fn closed() -> Error {
    Error::unavailable("the store is shut down")
}
