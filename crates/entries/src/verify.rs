//! Verification: checks that every entry belongs to a bucket, is in the index of the bucket, and has its body. Also
//! checks the map of each index.

use std::collections::HashMap;

use async_recursion::async_recursion as boxed;
use rashomon_records::{
    Body, BucketName, DomainName, EntryKey, Sha1, VerifyReport,
    rows::{ColumnValue as _, key_in_words},
    schemas::{BUCKET_ENTRIES, COUNTERS, ENTRY_PARTS},
};
use rashomon_tables::{Error as StoreError, Key, Schema, Value};
use sha1::Digest as _;

use crate::{
    Entry, Error, KeyValueStore, Result,
    collect::deleted_buckets,
    counter::StoredState,
    index,
    rows::{BucketId, entry_key},
    split,
    store::PAGE_ROWS,
};

/// The names of the buckets, by their ids.
type Names = HashMap<BucketId, (DomainName, BucketName)>;

impl KeyValueStore {
    /// Reads all entries and counters, compares each body with its SHA-1, and checks that the index has the key of each
    /// entry. Also checks the maps of the indexes. No process may write meanwhile. Calls `progress` regularly with the
    /// number of entries read.
    #[boxed(?Send)]
    pub async fn verify(
        &self,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let records = &self.0.records;
        let names = self.bucket_names(report).await?;
        for table in [&*BUCKET_ENTRIES, &*COUNTERS] {
            let mut entries = records.partitions(table, PAGE_ROWS);
            while let Some(partition) = entries.next().await? {
                let Some((id, key)) = id_and_key(&partition) else {
                    let row = key_in_words(table.name(), &Key::new(partition, Vec::new()));
                    report.problem_of(table.name(), format_args!("{row} is not the key of an entry"));
                    continue;
                };
                let Some((domain, bucket)) = names.get(&id) else {
                    let place = format!("an entry under the key {key}");
                    report.problem_of(place, "its bucket neither exists nor is being deleted");
                    continue;
                };
                let place = format!("domain {domain}, bucket {bucket}, key {key}");
                let entry = verify_entry(self, table, id, &key).await;
                if let Some(Some(size)) = record_corruption(report, &place, entry)? {
                    report.entries += 1;
                    report.bytes += size;
                    let added_at = index::added_at(records, id, &key).await;
                    if record_corruption(report, &place, added_at)? == Some(None) {
                        report.problem_of(&place, "the entry is missing from the index of its bucket");
                    }
                }
                progress(report.entries);
            }
        }
        let mut maps = records.partitions(&ENTRY_PARTS, PAGE_ROWS);
        while let Some(partition) = maps.next().await? {
            if let Some(id) = partition.first().and_then(BucketId::from_value)
                && let Some((domain, bucket)) = names.get(&id)
            {
                let place = format!("domain {domain}, bucket {bucket}, map of the index");
                record_corruption(report, &place, split::check_map(records, id).await)?;
            }
        }
        Ok(())
    }

    /// Returns the names of the buckets that exist, and of the buckets that are being deleted.
    pub(crate) async fn bucket_names(&self, report: &mut VerifyReport) -> Result<Names> {
        let mut names = Names::new();
        for domain in self.0.records.catalog.domains().await? {
            let mut after = None;
            loop {
                let page = self.buckets(&domain, after.as_ref(), PAGE_ROWS.get()).await;
                let place = format!("domain {domain}, buckets");
                let Some(page) = record_corruption(report, &place, page)? else { break };
                names.extend(page.items.into_iter().map(|bucket| (bucket.id, (bucket.domain, bucket.name))));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        names.extend(
            deleted_buckets(self).await?.into_iter().map(|(row, _)| (row.id, (row.domain, row.bucket))),
        );
        Ok(names)
    }
}

/// Returns the bucket and the key of an entry, from the partition of the entry. Returns `None` if the partition is not
/// the partition of an entry.
pub(crate) fn id_and_key(partition: &[Value]) -> Option<(BucketId, EntryKey)> {
    let [id, key] = partition else { return None };
    Some((BucketId::from_value(id)?, EntryKey::from_value(key)?))
}

/// Reads an entry or a counter. Returns the size of its body (0 for a counter), or `None` if it was deleted. Fails with
/// `Corrupt` if the body differs from its size or its SHA-1.
async fn verify_entry(
    store: &KeyValueStore,
    table: &'static Schema,
    bucket: BucketId,
    key: &EntryKey,
) -> Result<Option<u64>> {
    let inner = &store.0;
    let row = inner.records.store.get(table, &entry_key(bucket, key)).await?;
    let Some(row) = row else { return Ok(None) };
    if table.name() == COUNTERS.name() {
        return Ok(StoredState::of(&row, inner.now_of_keys())?.exists.then_some(0));
    }
    let Some(entry) = Entry::from_row(inner, &row)? else { return Ok(None) };
    let (mut digest, mut size) = (sha1::Sha1::new(), 0);
    match &entry.body {
        Body::Inline(body) => {
            digest.update(&body.plain);
            size += body.plain.len() as u64;
        }
        Body::Chunked(body) => {
            for number in 0..body.chunks() {
                let chunk = body.chunk(number).await?;
                digest.update(&chunk.plain);
                size += chunk.plain.len() as u64;
            }
        }
    }
    if size != entry.size || Sha1(digest.finalize().into()) != entry.sha1 {
        let differs = "the body differs from its size or its SHA-1".to_owned();
        return Err(StoreError::Corrupt(differs).into());
    }
    Ok(Some(size))
}

/// Adds a `Corrupt` error as a problem, so that the verification continues. Returns any other error.
fn record_corruption<T>(report: &mut VerifyReport, place: &str, result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(Error::Records(error)) => {
            Ok(report.record_corruption(place, Err::<T, rashomon_records::Error>(error))?)
        }
        result => result.map(Some),
    }
}
