//! A client of one process, which compares the results of its requests with the expectations.

use rashomon_clock::Timestamp;
use rashomon_pages::{Error, Page, RevisionStore};

use super::{Run, broken, is_unavailable};
use crate::simulation::{
    model::TimeRange,
    step::Disturbance,
    violation::{Promise, Result, Violation},
};

/// A client of a process. A disturbance may happen during the client's requests.
pub(super) struct Client<'a> {
    pub(super) run: &'a mut Run,
    pub(super) process: usize,
    pub(super) disturbed: Option<Disturbance>,
}

impl Client<'_> {
    pub(super) fn buckets(&self) -> &RevisionStore {
        &self.run.world.processes[self.process].buckets
    }

    pub(super) fn page(&self, page: usize) -> &Page {
        &self.run.world.pages[page]
    }

    pub(super) fn now(&self) -> Timestamp {
        self.run.world.now
    }

    /// Adds values to the model that a request may have stored just now.
    pub(super) async fn learn(&mut self, page: usize) -> Result<()> {
        self.run.learn(page, TimeRange::at(self.now())).await
    }

    /// Returns a line for the log if a request may fail with this error, otherwise the violation. The service
    /// may refuse a request, and may fail while the process is disturbed.
    pub(super) fn refused(&self, error: Error) -> Result<String> {
        let only_culls_fail = matches!(self.disturbed, None | Some(Disturbance::CullsFail));
        match error {
            // If a process died before the clocks were set back, the other processes must wait before they regard it as
            // dead.
            error if is_unavailable(&error) && self.run.was_set_back => Ok(format!("failed: {error}")),
            error if is_unavailable(&error) && only_culls_fail && self.run.culls_failed => {
                Err(Violation::new(Promise::R5, format!("a failed cull made another call fail: {error}")))
            }
            error if is_unavailable(&error) && self.disturbed.is_some() => Ok(format!("failed: {error}")),
            Error::Conflict(why) => Ok(format!("conflict: {why}")),
            Error::Generate(why) => Ok(format!("not generated: {why}")),
            // A generated render that is read may have expired.
            Error::NotFound(missing) => Ok(format!("missing: {missing}")),
            error => Err(broken(error)),
        }
    }
}
