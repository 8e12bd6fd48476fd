//! A write that is so slow that its lease expires, and another process takes the write back.

use std::time::Duration;

use rashomon_buckets::{Error, Expect};

use super::{LEASE, Run};
use crate::{
    name::Name,
    step::Disturbance,
    violation::{Result, Violation},
};

impl Run {
    /// Carries out a write of a page. A write that is to lose its lease waits until it has: nothing else that a write has to
    /// wait for lets the others act.
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

    /// Another process takes back what it finds half done on a page. It asks for the lease to replace a property on a
    /// condition that never holds, so it writes nothing itself.
    async fn take_back(&mut self, process: usize, page: usize) {
        let Some((rev, tid)) = self.pages[page].tids().last() else { return };
        let Ok(html) = self.property(process, page, rev.get(), (Name::Html, 0)).await else { return };
        let (buckets, name) = (&self.world.processes[process].buckets, &self.world.pages[page]);
        // An error tells that the condition does not hold, or that the property is not stored.
        let _ = buckets.rewrite(name, tid, html, Expect::OneOf(Vec::new())).await;
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn panicked(error: tokio::task::JoinError) -> Violation {
    super::broken(error)
}
