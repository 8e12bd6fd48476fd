//! Reads pages ahead.

use std::num::NonZeroUsize;

use rashomon_records::{
    rows::partition_of,
    schemas::{self, ARCHIVE_INDEX},
};
use rashomon_tables::{Error as StoreError, Partition, Scan, first_keys};

use super::RevisionStore;
use crate::{Page, Result};

/// The approximate number of bytes of rows that are read ahead.
const MAX_BYTES: usize = 16 << 20;

impl RevisionStore {
    /// Reads the rows of the first of these pages ahead. The pages are in the order of their titles, and in one bucket.
    /// Returns the order in which to read these pages: those of a block one after the other. Forgets the pages that were
    /// read ahead before.
    ///
    /// In a store that other processes write to, nothing is read ahead, and the order has one page. If damage prevents
    /// the read, nothing is read ahead either: the reads of single pages report the damage.
    pub async fn read_ahead(&self, pages: &[Page]) -> Result<Vec<usize>> {
        let tables: Vec<_> = schemas::of_pages().collect();
        let partitions: Vec<Partition> = pages.iter().map(partition_of).collect();
        let count = match self.0.ahead.read_ahead(&tables, &partitions, MAX_BYTES).await {
            Err(StoreError::Corrupt(_)) => return Ok((0..pages.len()).collect()),
            count => count?,
        };
        let mut order = Vec::with_capacity(count);
        for (index, partition) in partitions.into_iter().enumerate().take(count) {
            let scan = Scan::new(partition, NonZeroUsize::MIN);
            let newest_part = match first_keys(&*self.0.ahead, &ARCHIVE_INDEX, scan).await {
                Err(StoreError::Corrupt(_)) => Vec::new(),
                keys => keys?,
            };
            order.push((
                newest_part.into_iter().next().and_then(|key| key.clustering.into_iter().nth(1)),
                index,
            ));
        }
        order.sort();
        if order.is_empty() && !pages.is_empty() {
            return Ok(vec![0]);
        }
        Ok(order.into_iter().map(|(_, index)| index).collect())
    }
}
