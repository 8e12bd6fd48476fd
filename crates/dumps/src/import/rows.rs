//! Revisions that an import has stored as rows, and seals soon afterwards.
//!
//! The seal may run beside readers and writers, so a server can seal what it imports. The rows that wait are bounded, and
//! so is the room that they take in the store.

use std::collections::HashMap;

use rashomon_pages::{BucketName, DomainName, ImportedRow, ImportedRows, Result, RevisionStore, SealReport};
use tokio::sync::Mutex;

/// The number of bytes of bodies in rows after which they are sealed.
const MAX_BYTES: u64 = 128 << 20;

/// The number of revisions in rows after which they are sealed.
const MAX_REVISIONS: usize = 1 << 14;

/// The revisions of an import that are in rows.
#[derive(Default)]
pub(super) struct UnsealedRows {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: ImportedRows,
    revisions: usize,
    bytes: u64,
    sealed: SealReport,
    /// The number of revisions that this import has stored as rows, and the number of those that were sealed.
    stored: u64,
    sealed_new: u64,
}

impl UnsealedRows {
    /// Adds revisions, whose bodies have at most `bytes`. If many revisions wait, seals them.
    pub(super) async fn add(
        &self,
        (buckets, domain, bucket): (&RevisionStore, &DomainName, &BucketName),
        stored: ImportedRows,
        bytes: u64,
    ) -> Result<()> {
        let revisions = stored.values().map(HashMap::len).sum::<usize>();
        if revisions == 0 {
            return Ok(());
        }
        let mut state = self.state.lock().await;
        state.revisions += revisions;
        let new = stored.values().flat_map(HashMap::values).filter(|row| **row == ImportedRow::New);
        state.stored += new.count() as u64;
        state.bytes += bytes;
        for (title, revisions) in stored {
            let waiting = state.waiting.entry(title).or_default();
            for (rev, row) in revisions {
                let known = waiting.entry(rev).or_insert(row);
                // A new revision may occur again.
                if row == ImportedRow::New {
                    *known = row;
                }
            }
        }
        if state.revisions < MAX_REVISIONS && state.bytes < MAX_BYTES {
            return Ok(());
        }
        state.seal(buckets, domain, bucket).await
    }

    /// Seals the revisions that wait. Returns what was sealed, how many of the sealed revisions this import has stored,
    /// and how many that it has stored stay in rows.
    pub(super) async fn finish(
        &self,
        (buckets, domain, bucket): (&RevisionStore, &DomainName, &BucketName),
    ) -> Result<(SealReport, u64, u64)> {
        let mut state = self.state.lock().await;
        state.seal(buckets, domain, bucket).await?;
        Ok((state.sealed, state.sealed_new, state.stored.saturating_sub(state.sealed_new)))
    }
}

impl State {
    /// Seals the revisions that wait. Meanwhile the import stores no further revision, so that the rows stay few.
    async fn seal(
        &mut self,
        buckets: &RevisionStore,
        domain: &DomainName,
        bucket: &BucketName,
    ) -> Result<()> {
        (self.revisions, self.bytes) = (0, 0);
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            let (sealed, new) = buckets.maintenance().seal_imported(domain, bucket, waiting).await?;
            self.sealed = self.sealed + sealed;
            self.sealed_new += new;
        }
        Ok(())
    }
}
