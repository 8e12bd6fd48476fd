//! Slow writes: the lease of the page expires, and another process rolls the write back.

use std::time::Duration;

use rashomon_pages::{Error, Expect};

use super::{LEASE, client::Client};
use crate::simulation::{
    name::Name,
    step::Disturbance,
    violation::{Result, Violation},
};

impl Client<'_> {
    /// Carries out a write of a page. A write that is to lose its lease is held back until the lease is lost. A write
    /// that takes no lease is not held back, and completes at once. During all writes that are not held back, no other
    /// process acts.
    pub(super) async fn carry_out<T: Send + 'static>(
        &mut self,
        page: usize,
        write: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Result<T, Error>> {
        if self.disturbed != Some(Disturbance::LosesLease) {
            return Ok(write.await);
        }
        let held_write = self.run.world.processes[self.process].hold_write_under_lease();
        let mut write = tokio::spawn(write);
        tokio::select! {
            result = &mut write => return result.map_err(panicked),
            is_held = held_write.is_held => {
                // An error means that no write was held back.
                if is_held.is_ok() {
                    self.run.pass(LEASE + 2 * self.run.world.setup.skew + SECOND).await?;
                    let other = (self.process + 1) % self.run.world.processes.len();
                    self.run.client(other, None).roll_back_write(page).await;
                }
            }
        }
        let _ = held_write.resume.send(());
        write.await.map_err(panicked)
    }

    /// Makes the process of this client roll back the incomplete write that another process began on a page. To get the
    /// lease, the process requests to replace a property under a condition that never holds, so it writes nothing
    /// itself.
    async fn roll_back_write(&mut self, page: usize) {
        let Some((rev, tid)) = self.run.expected.pages[page].tids().last() else { return };
        let Ok(html) = self.property(page, rev.get(), (Name::Html, 0)).await else { return };
        // An error is expected: the condition does not hold, or the property is not stored.
        let _ = self.buckets().rewrite(self.page(page), tid, html, Expect::OneOf(Vec::new())).await;
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn panicked(error: tokio::task::JoinError) -> Violation {
    super::broken(error)
}
