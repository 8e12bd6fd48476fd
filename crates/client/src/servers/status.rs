//! The state of each server, and counts of the results of the attempts at it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::TransportError;

/// The state of a server, with counts of the results of attempts. A request that is repeated has several attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The address of the server.
    pub server: String,
    /// Whether the server is left out because it has failed, and has not answered since.
    pub is_left_out: bool,
    /// The number of attempts with an answer of any status.
    pub answered: u64,
    /// The number of attempts that sent nothing, because there was no connection.
    pub unreachable: u64,
    /// The number of attempts whose connection broke, before the answer or in the middle of it.
    pub broken: u64,
    /// The number of attempts that timed out because nothing was read or sent, before the answer or in the middle of
    /// it.
    pub timed_out: u64,
}

/// Counts the results of the attempts at one server.
#[derive(Debug, Default)]
pub(super) struct Counts {
    answered: AtomicU64,
    unreachable: AtomicU64,
    broken: AtomicU64,
    timed_out: AtomicU64,
}

impl Counts {
    pub(super) fn count_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an error of the server. Errors of the caller are not counted.
    pub(super) fn count_failure(&self, error: &TransportError) {
        let count = match error {
            TransportError::Connect { .. } => &self.unreachable,
            TransportError::Broken { .. } => &self.broken,
            TransportError::TimedOut { .. } => &self.timed_out,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn status(&self, server: String, is_left_out: bool) -> ServerStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ServerStatus {
            server,
            is_left_out,
            answered: read(&self.answered),
            unreachable: read(&self.unreachable),
            broken: read(&self.broken),
            timed_out: read(&self.timed_out),
        }
    }
}
