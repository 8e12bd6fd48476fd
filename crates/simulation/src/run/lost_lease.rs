//! Slow writes: the lease of the page expires, and another process takes the write back.

use std::time::Duration;

use rashomon_buckets::{Error, Expect};

use super::{LEASE, Run};
use crate::{
    name::Name,
    step::Disturbance,
    violation::{Result, Violation},
};

impl Run {
    /// Carries out a write of a page. A write that is to lose its lease is held back until the lease is lost.
    /// Nothing else that a write waits for would let the other processes act.
    pub(super) async fn carry_out<T: Send + 'static>(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        page: usize,
        write: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Result<T, Error>> {
        if disturbed != Some(Disturbance::LosesLease) {
            return Ok(write.await);
        }
        let waiting = self.world.processes[process].stop_write_under_lease();
        let mut write = tokio::spawn(write);
        tokio::select! {
            result = &mut write => return result.map_err(panicked),
            begun = waiting.begun => {
                if begun.is_ok() {
                    self.pass(LEASE + 2 * self.world.setup.skew + SECOND).await?;
                    self.take_back((process + 1) % self.world.processes.len(), page).await;
                }
            }
        }
        let _ = waiting.go_on.send(());
        write.await.map_err(panicked)
    }

    /// Has another process take back the incomplete write of a page. To get the lease, the process asks to
    /// replace a property under a condition that never holds, so it writes nothing itself.
    async fn take_back(&mut self, process: usize, page: usize) {
        let Some((rev, tid)) = self.pages[page].tids().last() else { return };
        let Ok(html) = self.property(process, page, rev.get(), (Name::Html, 0)).await else { return };
        let (buckets, name) = (&self.world.processes[process].buckets, &self.world.pages[page]);
        // An error is expected: the condition does not hold, or the property is not stored.
        let _ = buckets.rewrite(name, tid, html, Expect::OneOf(Vec::new())).await;
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn panicked(error: tokio::task::JoinError) -> Violation {
    super::broken(error)
}
