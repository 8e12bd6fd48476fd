//! The audit log of Rashomon: who changed what, as JSON lines.
//!
//! An [`AuditLog`] takes an [`Entry`] for each request that is to be logged. A thread writes the entries as lines to a
//! [`Target`], so that no request waits for the disk. Lines that cannot be written are lost, and counted.
//!
//! [`LineQueue`] is the queue between the log and its thread. The log of the server uses such a queue, too.
//!
//! # Invariants
//!
//! - No caller waits until a line is written. A line that cannot be written is counted.
//! - No input of a client can end a line and begin another one.

mod entry;
mod pace;
mod queue;
mod target;
mod writer;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rashomon_clock::Clock;
use tracing_appender::non_blocking::WorkerGuard;

pub use self::{
    entry::{Entry, WriteState},
    queue::LineQueue,
    target::{OpenError, Target},
};
use self::{pace::Pace, writer::LineWriter};

/// How long [`AuditLog::close`] waits until the last lines are written.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// An audit log. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<AuditLogInner>);

#[derive(Debug)]
struct AuditLogInner {
    lines: LineQueue,
    state: Arc<LogState>,
    /// Ends the thread when it is dropped; `None` when the log is closed.
    thread: Mutex<Option<WorkerGuard>>,
}

/// The state that the log and its thread share.
#[derive(Debug)]
struct LogState {
    target: Target,
    clock: Arc<dyn Clock>,
    written: AtomicU64,
    lost_to_failures: AtomicU64,
    lost_to_full_queue: AtomicU64,
    /// Whether the target has to be opened again.
    reopen: AtomicBool,
    failure_pace: Pace,
    full_queue_pace: Pace,
}

impl LogState {
    fn new(target: Target, clock: Arc<dyn Clock>) -> Self {
        Self {
            target,
            clock,
            written: AtomicU64::new(0),
            lost_to_failures: AtomicU64::new(0),
            lost_to_full_queue: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
            failure_pace: Pace::default(),
            full_queue_pace: Pace::default(),
        }
    }
}

/// How many lines were written and lost since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Lines that were written.
    pub written: u64,
    /// Lines that were lost because the target could not be written.
    pub lost_to_failures: u64,
    /// Lines that were lost because too many others waited for a slow or blocked target.
    pub lost_to_full_queue: u64,
}

impl AuditLog {
    /// Opens a target, and starts the thread that writes to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can be neither opened nor created.
    pub fn open(target: Target, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let state = Arc::new(LogState::new(target.clone(), clock));
        let writer = match target {
            Target::StandardError => LineWriter::to_standard_error(Arc::clone(&state)),
            Target::File(path) => LineWriter::to_file(&path, Arc::clone(&state))
                .map_err(|source| OpenError::new(&path, source))?,
        };
        let (lines, thread) = LineQueue::start("audit-log", writer);
        Ok(Self(Arc::new(AuditLogInner { lines, state, thread: Mutex::new(Some(thread)) })))
    }

    /// Adds an entry. Never waits: if too many lines wait already, the entry is lost, and counted.
    pub fn write(&self, entry: &Entry<'_>) {
        let AuditLogInner { lines, state, .. } = &*self.0;
        if lines.push(&entry.to_line()) {
            return;
        }
        state.lost_to_full_queue.fetch_add(1, Ordering::Relaxed);
        if state.full_queue_pace.is_due(&*state.clock) {
            tracing::warn!(
                audit_log = %state.target,
                "the audit log is written too slowly, and lines are lost: check that its reader keeps up, or use a \
                 faster disk; requests are answered as usual"
            );
        }
    }

    /// Opens the file again, for instance after it was renamed. Lines that were added before may go to either file.
    /// If the file cannot be opened, each further line causes another attempt. Until an attempt succeeds, lines go to
    /// the old file, or are lost if the old file was deleted.
    pub fn reopen(&self) {
        if !self.0.state.reopen.swap(true, Ordering::Relaxed) {
            self.0.lines.wake();
        }
    }

    /// How many lines were written and lost.
    #[must_use]
    pub fn counts(&self) -> LineCounts {
        let state = &self.0.state;
        LineCounts {
            written: state.written.load(Ordering::Relaxed),
            lost_to_failures: state.lost_to_failures.load(Ordering::Relaxed),
            lost_to_full_queue: state.lost_to_full_queue.load(Ordering::Relaxed),
        }
    }

    /// Writes the last lines and ends the thread. Waits for a slow or blocked target for a few seconds at most.
    /// Must be called after the last entry.
    pub fn close(&self) {
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some() && !self.0.lines.wait_until_empty(CLOSE_LIMIT) {
            tracing::warn!(
                audit_log = %self.0.state.target,
                "the last lines of the audit log are lost, since the target did not take them in time: check that its \
                 reader keeps up, or use a faster disk"
            );
        }
    }
}

#[cfg(test)]
mod tests;
