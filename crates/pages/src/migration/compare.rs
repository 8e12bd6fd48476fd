//! Compares the data of two stores, table by table.
//!
//! Each store lists partitions in its own order, so the digests of whole tables are compared first. Only if
//! these differ, or the source has damaged rows, each partition is read from both stores, to name the first
//! partition that differs.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use rashomon_clock::{PassedTime, Timestamp};
use rashomon_tables::{Key, Partition, Schema};

use crate::migration::{
    Counts, Digest, MAX_CONCURRENT_PARTITIONS, MAX_LISTED_PARTITIONS, Migration, Result, copy::scan_of,
    endpoint::Endpoint, shown::ProgressReporter,
};
use rashomon_records::rows::key_in_words;

/// The comparison of a single partition ignores rows that expire within this time. Such rows may expire between the
/// two reads, and this is not a difference.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10 * 60);

/// The comparison of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The name of the table.
    pub table: &'static str,
    /// The digest of the table in the source.
    pub source: Digest,
    /// The digest of the table in the target.
    pub target: Digest,
    /// The first partition that differs, or that has a damaged row in the source. `None` if there is none. The digests
    /// may differ nevertheless, since rows may have expired between the reads of the two stores.
    pub difference: Option<Difference>,
}

/// A partition that differs, or that has a damaged row in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A description of the partition.
    pub partition: String,
    /// The digest of the partition in the source.
    pub source: Digest,
    /// The digest of the partition in the target.
    pub target: Digest,
}

impl Migration {
    /// Compares all tables. Calls `show` from time to time with the counts of both stores together.
    #[boxed]
    pub async fn compare(&self, show: &mut (dyn FnMut(Counts) + Send)) -> Result<Vec<Comparison>> {
        let shown = ProgressReporter::new(show);
        let mut compared = Vec::with_capacity(self.tables.len());
        for &table in &self.tables {
            let (source, target) = future::try_join(
                digest_table(&self.source, table, &shown),
                digest_table(&self.target, table, &shown),
            )
            .await?;
            let same = source == target && source.damaged == 0;
            let difference = if same { None } else { self.first_difference(table).await? };
            compared.push(Comparison { table: table.name(), source, target, difference });
        }
        Ok(compared)
    }

    /// Returns the first partition that differs: in the order of the source, and then in the order of the
    /// target, which may have further partitions.
    async fn first_difference(&self, table: &'static Schema) -> Result<Option<Difference>> {
        for endpoint in [&self.source, &self.target] {
            let mut after = None;
            loop {
                let page = endpoint.partitions(table, after, MAX_LISTED_PARTITIONS).await?;
                let mut pending = Vec::with_capacity(page.items.len());
                for partition in page.items {
                    pending.push(self.compare_partition(table, partition));
                }
                let mut compared = stream::iter(pending).buffered(MAX_CONCURRENT_PARTITIONS);
                while let Some(difference) = compared.try_next().await? {
                    if difference.is_some() {
                        return Ok(difference);
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(None)
    }

    pub(crate) async fn compare_partition(
        &self,
        table: &'static Schema,
        partition: Partition,
    ) -> Result<Option<Difference>> {
        let visible_at = self.clock.now().saturating_add(EXPIRY_MARGIN);
        let (source, target) = future::try_join(
            digest_partition(&self.source, table, partition.clone(), visible_at, None),
            digest_partition(&self.target, table, partition.clone(), visible_at, None),
        )
        .await?;
        Ok((source != target || source.damaged > 0).then(|| Difference {
            partition: key_in_words(table.name(), &Key::new(partition, Vec::new())),
            source,
            target,
        }))
    }
}

async fn digest_table(
    endpoint: &Endpoint,
    table: &'static Schema,
    shown: &ProgressReporter<'_>,
) -> Result<Digest> {
    let mut digest = Digest::default();
    let mut after = None;
    loop {
        let page = endpoint.partitions(table, after, MAX_LISTED_PARTITIONS).await?;
        let mut pending = Vec::with_capacity(page.items.len());
        for partition in page.items {
            pending.push(digest_partition(endpoint, table, partition, Timestamp::MIN, Some(shown)));
        }
        let mut digests = stream::iter(pending).buffer_unordered(MAX_CONCURRENT_PARTITIONS);
        while let Some(of_partition) = digests.try_next().await? {
            digest.add(of_partition);
        }
        after = page.next;
        if after.is_none() {
            return Ok(digest);
        }
    }
}

/// Returns the digest of the rows of a partition that are visible now, and still at `visible_at`.
async fn digest_partition(
    endpoint: &Endpoint,
    table: &'static Schema,
    partition: Partition,
    visible_at: Timestamp,
    shown: Option<&ProgressReporter<'_>>,
) -> Result<Digest> {
    let mut digest = Digest::default();
    let mut scan = scan_of(partition);
    loop {
        let page = endpoint.scan(table, &scan).await?;
        digest.damaged += page.damaged.len() as u64;
        for row in page.items.iter().filter(|row| row.is_visible(PassedTime::of_steady(visible_at))) {
            digest.add(Digest::of(table, row));
        }
        if let Some(shown) = shown {
            shown.add(Counts::of(&page.items));
        }
        scan.after = page.next;
        if scan.after.is_none() {
            return Ok(digest);
        }
    }
}
