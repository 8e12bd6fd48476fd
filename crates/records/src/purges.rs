//! The purge queue: the changes whose answers HTTP caches have to delete.
//!
//! An entry is stored before its change, in the same call of the store. So no crash can lose the purge of a committed
//! change. If the change is not stored, the purge is unnecessary, but harmless. This module writes and reads entries.
//! It does not contact caches.

use std::{collections::BTreeSet, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Key, Mutation, Row, Value};
use serde::{Deserialize, Serialize};

use crate::{
    BucketName, DomainName, EntryKey, Page, PropertyName, Records, Result, Revision, Title, hour_of, row_key,
    rows::{Json, RowKey, TypedRow},
    schemas::PURGES,
    typed_row,
};

/// The number of partitions over which the entries of an hour are distributed. The number is a part of the format of
/// every store, and cannot be changed.
pub const PURGE_SHARDS: u64 = 16;

/// The longest time for which a cache keeps an answer that normal writes change: the `s-maxage` of these answers.
pub const MUTABLE_LIFE: Duration = Duration::from_secs(86_400);

/// The longest time for which a cache keeps any answer: the `s-maxage` of the property of one render.
pub const TID_LIFE: Duration = Duration::from_secs(31_536_000);

/// How much longer an entry is kept than caches keep the answers that it concerns. The margin is necessary because
/// clocks differ, and because the change is stored after its entry.
const LIFE_MARGIN: Duration = Duration::from_secs(3600);

/// A change that makes cached answers wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PurgedChange {
    /// Revisions of a page were written, replaced, culled or erased.
    Page(PageChange),
    /// An entry of a key-value bucket was written or deleted.
    Entry {
        /// The key.
        key: EntryKey,
        /// Whether the replaced entry had a stored `Cache-Control`, so that caches may keep it for long.
        own_life: bool,
        /// Whether the bucket is not public, so that only rights on this bucket allow anybody to read the entry.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// A whole bucket was deleted, or its definition was changed. The new definition may change which clients may read
    /// the entries, and how long caches may keep them.
    Bucket,
    /// The same as [`Self::Bucket`], for a bucket that was not public before, and is not public now.
    PrivateBucket,
}

/// A change of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageChange {
    /// The page.
    pub title: Title,
    /// The lowest and the highest revision of the change. The latest revision and the lists of the page may have
    /// changed.
    pub revisions: (Revision, Revision),
    /// The lowest and the highest of these revisions that were stored before. Their documents and redirects have
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<(Revision, Revision)>,
    /// Whether bodies of the stored revisions were replaced or deleted, so that answers with single renders have
    /// changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bodies: bool,
    /// The names of properties that the rows of the page may no longer have after the change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<PropertyName>,
}

impl PageChange {
    /// Creates the change of the bodies of stored revisions.
    #[must_use]
    pub fn of_bodies(page: &Page, lowest: Revision, highest: Revision) -> Self {
        Self {
            title: page.title.clone(),
            revisions: (lowest, highest),
            stored: Some((lowest, highest)),
            bodies: true,
            names: BTreeSet::new(),
        }
    }
}

/// An entry of the purge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeEntry {
    /// The time and the random number that identify the entry.
    pub id: PurgeId,
    /// The domain.
    pub domain: DomainName,
    /// The bucket. A further bucket of pages has its id.
    pub bucket: BucketName,
    /// The change in the bucket.
    pub change: PurgedChange,
}

/// The identifier of an entry of the purge queue. Identifiers are ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PurgeId {
    /// The time at which the entry was created, directly before its change.
    pub queued_at: Timestamp,
    /// A random number.
    pub random: i64,
}

impl PurgeId {
    /// The shard of the entry.
    #[must_use]
    pub const fn shard(self) -> i64 {
        self.random.rem_euclid(PURGE_SHARDS as i64)
    }
}

row_key! {
    /// The key of an entry of the purge queue.
    struct PurgeKey of PURGES { queued_at: Timestamp, id: i64 }
}

typed_row! {
    /// An entry of the purge queue.
    struct PurgeRow in PURGES {
        key { queued_at: Timestamp, id: i64 }
        values { domain: DomainName, bucket: BucketName, change: Json<PurgedChange> }
    }
}

impl PurgeEntry {
    /// Reads a row of the queue.
    pub fn from_row(row: &Row) -> Result<Self> {
        let PurgeRow { queued_at, id, domain, bucket, change: Json(change) } = TypedRow::from_row(row)?;
        Ok(Self { id: PurgeId { queued_at, random: id }, domain, bucket, change })
    }

    /// Returns the entries in the batches of a call of the store. Omits entries that cannot be read.
    #[must_use]
    pub fn of_batches(batches: &[Batch]) -> Vec<Self> {
        let of_queue = |batch: &&Batch| {
            batch.mutations.first().is_some_and(|first| first.table().name() == PURGES.name())
        };
        let mutations = batches.iter().filter(of_queue).flat_map(|batch| {
            batch.mutations.iter().filter_map(|mutation| match mutation {
                Mutation::Put { clustering, values, written_at, expires_at, .. } => Some(Row {
                    key: Key::new(batch.partition.clone(), clustering.clone()),
                    values: values.clone(),
                    written_at: *written_at,
                    expires_at: *expires_at,
                }),
                Mutation::Delete { .. } | Mutation::DeleteRange { .. } => None,
            })
        });
        mutations.filter_map(|row| Self::from_row(&row).ok()).collect()
    }

    /// How long a cache may keep the answers that the change has made wrong.
    #[must_use]
    pub fn life(&self) -> Duration {
        match &self.change {
            PurgedChange::Page(PageChange { bodies: false, .. })
            | PurgedChange::Entry { own_life: false, .. } => MUTABLE_LIFE,
            PurgedChange::Page(_)
            | PurgedChange::Entry { .. }
            | PurgedChange::Bucket
            | PurgedChange::PrivateBucket => TID_LIFE,
        }
    }

    /// The page of the change.
    #[must_use]
    pub fn page_of(&self, change: &PageChange) -> Page {
        Page { domain: self.domain.clone(), bucket: self.bucket.clone(), title: change.title.clone() }
    }

    fn batch(&self) -> Batch {
        let PurgeId { queued_at, random } = self.id;
        let mut batch = Batch::new(vec![Value::Int(hour_of(queued_at)), Value::Int(self.id.shard())]);
        let row = PurgeRow {
            queued_at,
            id: random,
            domain: self.domain.clone(),
            bucket: self.bucket.clone(),
            change: Json(self.change.clone()),
        };
        row.put_until(&mut batch, queued_at, queued_at.saturating_add(self.life() + LIFE_MARGIN));
        batch
    }
}

/// Reads the key of a row of the queue. The values of the row may be damaged. `None` if a column of the key is missing
/// or has another type.
#[must_use]
pub fn purge_id(key: &Key) -> Option<PurgeId> {
    let PurgeKey { queued_at, id } = PurgeKey::read(key)?;
    Some(PurgeId { queued_at, random: id })
}

impl Records {
    /// Returns the batch that queues the purge of a change. The caller has to call this function directly before the
    /// write of the change, and to store the batch before or with the change. A reader of the queue assumes that the
    /// changes of old entries are committed. `None` if no caches are configured.
    #[must_use]
    pub fn purge(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        change: impl FnOnce() -> PurgedChange,
    ) -> Option<Batch> {
        if !self.queues_purges {
            return None;
        }
        let id = PurgeId { queued_at: self.clock.now(), random: self.distinction() as i64 };
        let entry = PurgeEntry { id, domain: domain.clone(), bucket: bucket.clone(), change: change() };
        Some(entry.batch())
    }

    /// Returns the batch that queues the purge of a change of a page, see [`Self::purge`].
    #[must_use]
    pub fn purge_page(&self, page: &Page, change: impl FnOnce() -> PageChange) -> Option<Batch> {
        self.purge(&page.domain, &page.bucket, || PurgedChange::Page(change()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        crate::rows::check_columns::<PurgeRow>();
    }

    #[test]
    fn entry_is_read_as_it_was_queued() {
        let page = Page::parse("enwiki", "page", "A&B").unwrap();
        let rev = Revision::new(7).unwrap();
        let id = PurgeId { queued_at: Timestamp::from_micros(3_600_000_001), random: -5 };
        for change in [
            PurgedChange::Bucket,
            PurgedChange::PrivateBucket,
            PurgedChange::Entry { key: EntryKey::new("a b").unwrap(), own_life: true, private: false },
            PurgedChange::Entry { key: EntryKey::new("a b").unwrap(), own_life: false, private: true },
            PurgedChange::Page(PageChange::of_bodies(&page, rev, rev)),
            PurgedChange::Page(PageChange {
                title: page.title.clone(),
                revisions: (rev, rev),
                stored: None,
                bodies: false,
                names: [PropertyName::new("html").unwrap()].into(),
            }),
        ] {
            let (domain, bucket) = (page.domain.clone(), page.bucket.clone());
            let entry = PurgeEntry { id, domain, bucket, change };
            let batch = entry.batch();
            assert_eq!(batch.partition, [Value::Int(1), Value::Int(11)]);
            assert_eq!(PurgeEntry::of_batches(&[batch]), [entry]);
        }
    }
}
