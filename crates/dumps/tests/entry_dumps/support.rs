//! A store for one test.

use std::{collections::BTreeMap, io::Cursor, num::NonZeroUsize, sync::Arc};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_dumps::entries::{
    EntryImportError, EntryImportOptions, EntryImportReport, StoreTarget, export_entries, import_entries,
};
use rashomon_dumps::{DecompressionLimits, Source};
use rashomon_entries::{Bucket, BucketType, Definition, EntryKey, KeyValueStore, Settings};
use rashomon_pages::{Headers, RevisionStore, Settings as BucketSettings, schemas::CHUNKS};
use rashomon_tables::{Batch, Memory, Scan, TableStore as _};

const PAGE: NonZeroUsize = NonZeroUsize::new(100).unwrap();

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: KeyValueStore,
    pub(crate) tables: Arc<Memory>,
}

pub(crate) fn key(text: &str) -> EntryKey {
    EntryKey::new(text).unwrap()
}

pub(crate) fn headers(content_type: &str) -> Headers {
    Headers { content_type: content_type.to_owned(), other: BTreeMap::new() }
}

/// A body that does not compress well.
pub(crate) fn large(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let tables = Arc::new(Memory::new(Arc::clone(&clock) as _));
        let buckets = RevisionStore::open(
            Arc::clone(&tables) as _,
            Arc::clone(&clock) as Arc<dyn Clock>,
            BucketSettings::default(),
            7,
        );
        let buckets = buckets.await.unwrap();
        let store = KeyValueStore::new(Arc::clone(buckets.parts().records), Settings::default());
        Self { clock, store, tables }
    }

    pub(crate) async fn bucket(&self, name: &str, definition: Definition) -> Bucket {
        let (domain, name) = ("wiki".parse().unwrap(), name.parse().unwrap());
        let made = self.store.ensure_bucket(&domain, &name, definition);
        made.await.unwrap().bucket
    }

    pub(crate) async fn put(&self, bucket: &Bucket, name: &str, headers: Headers, body: &[u8]) {
        let mut sink = self.store.stage(bucket, &key(name));
        sink.write(body).await.unwrap();
        let body = sink.finish().await.unwrap();
        self.store.put(bucket, &key(name), headers, body, &|_| true).await.unwrap();
    }

    pub(crate) async fn body(&self, bucket: &Bucket, name: &str) -> Option<Vec<u8>> {
        let entry = self.store.entry(bucket, &key(name)).await.unwrap()?;
        Some(entry.body.clone().whole().await.unwrap().to_vec())
    }

    pub(crate) async fn export(&self, bucket: &Bucket) -> Vec<u8> {
        let (_, written) = export_entries(&self.store, bucket, Vec::new(), |_| {}).await.unwrap();
        written
    }

    pub(crate) async fn import(
        &self,
        name: &str,
        file: &[u8],
    ) -> (EntryImportReport, Result<(), EntryImportError>) {
        let options =
            EntryImportOptions { now: self.clock.now(), decompression: DecompressionLimits::default() };
        let mut target = StoreTarget::new(&self.store, "wiki".parse().unwrap(), name.parse().unwrap());
        let source = Source::stream(Cursor::new(file.to_vec()));
        import_entries(&mut target, source, &options, |_| {}).await
    }

    /// Deletes the last chunk of each body that is stored in chunks.
    pub(crate) async fn lose_chunks(&self) {
        let mut page = self.tables.partitions(&CHUNKS, None, PAGE).await.unwrap();
        assert_eq!(page.next, None);
        for partition in page.items.drain(..) {
            let last = self.tables.scan(&CHUNKS, Scan::new(partition.clone(), PAGE).reverse()).await.unwrap();
            let last = last.items.into_iter().next().unwrap();
            let mut lost = Batch::new(partition);
            lost.delete(&CHUNKS, last.key.clustering, last.written_at);
            self.tables.write(Vec::new(), lost).await.unwrap();
        }
    }

    /// Makes a bucket with a small, an empty and a large entry.
    pub(crate) async fn files(&self) -> Bucket {
        let bucket = self.bucket("files", Definition::of(BucketType::OrderedBlob)).await;
        let mut with_others = headers("text/plain; charset=utf-8");
        for (name, value) in [("cache-control", "max-age=60"), ("x-number", "7")] {
            with_others.other.insert(name.to_owned(), value.to_owned());
        }
        self.put(&bucket, "a/small", with_others, b"small body").await;
        self.put(&bucket, "empty", headers("a/b"), b"").await;
        self.put(&bucket, "large", headers("image/png"), &large(3_500_000)).await;
        bucket
    }
}
