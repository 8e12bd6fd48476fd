//! The queues of the operations on counters, in this process.
//!
//! Each queue has a task that carries out the operations of the queue ([`crate::counter`]). The task takes
//! waiting increments in groups of limited size.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rashomon_records::EntryKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{IdempotencyKey, Result, rows::BucketId};

/// The maximum number of increments that one change of the row carries out.
const MAX_GROUP_INCREMENTS: usize = 64;

/// The maximum number of operations that are queued or being carried out, on all counters together. Further callers
/// wait outside of the queues.
const MAX_QUEUED_OPERATIONS: usize = 4096;

/// The identity of a counter: the bucket and the key.
pub(crate) type CounterId = (BucketId, EntryKey);

/// An increment that a client has requested.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) by: i64,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
}

/// An operation on a counter, with the channel for its answer.
pub(crate) enum Operation {
    /// An increment.
    Increment { request: Request, reply: oneshot::Sender<Result<i64>> },
    /// The deletion of the counter.
    Delete { reply: oneshot::Sender<Result<bool>> },
}

/// An operation in a queue. The permit bounds the number of operations.
struct QueuedOperation {
    operation: Operation,
    permit: OwnedSemaphorePermit,
}

/// The caller of an increment. The caller waits for the answer.
pub(crate) struct Caller {
    pub(crate) reply: oneshot::Sender<Result<i64>>,
    _permit: OwnedSemaphorePermit,
}

/// The operations that are carried out together.
pub(crate) enum Group {
    Increments { requests: Vec<Request>, callers: Vec<Caller> },
    Delete { reply: oneshot::Sender<Result<bool>>, _permit: OwnedSemaphorePermit },
}

/// The queues of those counters on which operations are being carried out. Each queue has a task.
pub(crate) struct Queues {
    queues: Mutex<HashMap<CounterId, VecDeque<QueuedOperation>>>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.permits.available_permits();
        f.debug_struct("Queues").field("counters", &self.queues().len()).field("free", &free).finish()
    }
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self { queues: Mutex::default(), permits: Arc::new(Semaphore::new(MAX_QUEUED_OPERATIONS)) }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<CounterId, VecDeque<QueuedOperation>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an operation to the queue of a counter. First waits until there are fewer than
    /// [`MAX_QUEUED_OPERATIONS`]. Returns whether the queue is new and needs a task.
    pub(crate) async fn push(&self, id: &CounterId, operation: Operation) -> bool {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let queued = QueuedOperation { operation, permit };
        match self.queues().entry(id.clone()) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(queued);
                false
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([queued]));
                true
            }
        }
    }

    /// Takes the next operations of a counter. If the queue is empty, removes the queue and returns `None`.
    pub(crate) fn next_group(&self, id: &CounterId) -> Option<Group> {
        let mut queues = self.queues();
        let queue = queues.get_mut(id)?;
        let (mut requests, mut callers) = (Vec::new(), Vec::new());
        while let Some(QueuedOperation { operation, permit }) = queue.pop_front() {
            match operation {
                Operation::Increment { request, reply } => {
                    requests.push(request);
                    callers.push(Caller { reply, _permit: permit });
                }
                Operation::Delete { reply } if requests.is_empty() => {
                    return Some(Group::Delete { reply, _permit: permit });
                }
                operation @ Operation::Delete { .. } => {
                    queue.push_front(QueuedOperation { operation, permit });
                    break;
                }
            }
            if requests.len() == MAX_GROUP_INCREMENTS {
                break;
            }
        }
        if requests.is_empty() {
            queues.remove(id);
            return None;
        }
        Some(Group::Increments { requests, callers })
    }
}

/// Removes the queue of a task that does not reach its end, because of a panic or a shutdown. Without the removal, the
/// callers in the queue would wait forever.
pub(crate) struct RemoveOnAbort<'a> {
    pub(crate) queues: &'a Queues,
    pub(crate) id: &'a CounterId,
    pub(crate) is_finished: bool,
}

impl Drop for RemoveOnAbort<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.queues.queues().remove(self.id);
        }
    }
}
