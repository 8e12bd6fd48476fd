//! Permits of reads that collect rows, such as lists.
//!
//! Such a read holds the rows, and then the document that is made of them. The permits bound
//! what all of them hold together, from all clients, alone or in batches. A read gives its permit back when its
//! document is complete, so a client that reads slowly keeps no permit: see [`crate::unread`].

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    Settings,
    problem::{Problem, Result},
    settings::STAGING_WAIT,
};

/// The memory of a read that collects rows, in MiB.
pub(crate) const OF_ROWS: u32 = 6;

/// The memory of a list of entries, in MiB. It reads several entries at once, and each may have a MiB.
pub(crate) const OF_ENTRIES: u32 = 18;

/// The memory of all such reads together, in MiB.
const OF_ALL: usize = 96;

/// The permits, one for each MiB.
#[derive(Debug)]
pub(crate) struct CollectingReads {
    permits: Arc<Semaphore>,
    max_wait: Duration,
}

impl CollectingReads {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(OF_ALL)),
            max_wait: Duration::from_secs(settings.staging_wait_seconds),
        }
    }

    /// Takes permits for a read: [`OF_ROWS`] or [`OF_ENTRIES`]. Waits in turn, for at most the time of the setting
    /// `staging_wait`. The caller must not hold a permit.
    pub(crate) async fn take(&self, mebibytes: u32) -> Result<OwnedSemaphorePermit> {
        let acquire = Arc::clone(&self.permits).acquire_many_owned(mebibytes);
        timeout(self.max_wait, acquire).await.ok().and_then(std::result::Result::ok).ok_or_else(|| {
            Problem::busy(format!(
                "too many lists are being read at the same time, and none of them ended in {} s ({STAGING_WAIT}): try \
                 again",
                self.max_wait.as_secs()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_reads_collect_rows_at_once_and_the_others_wait_in_turn() {
        let reads = Arc::new(CollectingReads::new(&Settings::default()));
        let mut held = Vec::new();
        for _ in 0..OF_ALL / OF_ROWS as usize {
            held.push(reads.take(OF_ROWS).await.unwrap());
        }
        let refused = reads.take(1).await.unwrap_err();
        assert!(refused.detail().contains("staging_wait"), "{}", refused.detail());
        let waiting = tokio::spawn({
            let reads = Arc::clone(&reads);
            async move { reads.take(OF_ROWS).await.map(drop) }
        });
        tokio::task::yield_now().await;
        held.pop();
        waiting.await.unwrap().unwrap();
    }
}
