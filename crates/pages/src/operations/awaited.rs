//! A placeholder for a store that could not be reached when it was opened. [`AwaitedStore::find`] repeats the
//! attempt to connect until the store answers.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use rashomon_tables::{
    Batch, Cursor, Error, Key, Outage, Page, Partition, PartitionVersions, Read, Result, Row, Scan, Schema,
    Swap, TableStore, Walk, WalkPage,
};
use tokio::sync::Mutex;

/// The pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Connects to a store, or returns the error.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn TableStore>>> + Send + Sync>;

/// A store that returns `Unavailable` for every read and write until the real store answers. `create` succeeds:
/// the table is created when the real store answers.
///
/// This store has no partition versions. So it may replace only a store without partition versions: a store
/// that other processes write to, too, such as a cluster.
pub struct AwaitedStore {
    connect: Connect,
    found: OnceLock<Arc<dyn TableStore>>,
    /// The error of the last attempt.
    last_error: std::sync::Mutex<Outage>,
    /// The tables that were requested before the store answered.
    wanted: Mutex<Vec<&'static Schema>>,
}

impl AwaitedStore {
    /// Creates the placeholder after a first attempt to connect has failed. `first_error` is the error of
    /// this attempt.
    #[must_use]
    pub fn new(connect: Connect, first_error: Outage) -> Self {
        Self { connect, found: OnceLock::new(), last_error: first_error.into(), wanted: Mutex::default() }
    }

    /// Repeats the attempt to connect until the store answers, and logs each new reason of a failure. Returns
    /// an error if the failure is permanent: any error other than `Unavailable`.
    pub async fn find(&self) -> Result<()> {
        let mut logged = None;
        loop {
            tokio::time::sleep(RETRY_PAUSE).await;
            match self.try_to_connect().await {
                Ok(()) => {
                    tracing::info!("the store answers");
                    return Ok(());
                }
                Err(Error::Unavailable(reason)) => {
                    // The same message is not repeated in the log.
                    if logged.as_ref() != Some(&reason) {
                        tracing::warn!(%reason, "the store does not answer; trying again");
                        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = reason.clone();
                        logged = Some(reason);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_to_connect(&self) -> Result<()> {
        let store = (self.connect)().await?;
        // The lock is held until calls go to the store, so that no requested table is missed.
        let wanted = self.wanted.lock().await;
        for schema in &*wanted {
            store.create(schema).await?;
        }
        // Only this function sets `found`, so `set` cannot fail.
        let _ = self.found.set(store);
        Ok(())
    }

    fn store(&self) -> Result<&dyn TableStore> {
        let last_error =
            || Error::Unavailable(self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone());
        self.found.get().map(|store| &**store).ok_or_else(last_error)
    }
}

impl fmt::Debug for AwaitedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitedStore").field("found", &self.found).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableStore for AwaitedStore {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        match self.found.get() {
            Some(store) => store.create(schema).await,
            None => {
                wanted.push(schema);
                Ok(())
            }
        }
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.store()?.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.store()?.scan(table, scan).await
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        self.store()?.read(reads).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.store()?.partitions(table, after, limit).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        self.store()?.walk(walk).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.store()?.write(first, then).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        self.store()?.scrub().await
    }

    async fn late_write_window(&self) -> Result<Duration> {
        self.store()?.late_write_window().await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }

    fn outage(&self) -> Option<Outage> {
        self.found.get()?.outage()
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.store()?.swap(first, table, key, expected, new).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::{RevisionStore, Settings};
    use rashomon_clock::{Clock, SystemClock};
    use rashomon_tables::{Memory, ReplicaStore};

    use super::*;

    /// A store to which the first `times` attempts to connect fail with this error. The next attempt succeeds.
    fn failing(times: usize, error: Error, clock: Arc<dyn Clock>) -> Arc<AwaitedStore> {
        let attempts = AtomicUsize::new(0);
        Arc::new(AwaitedStore::new(
            Box::new(move || {
                let failed = attempts.fetch_add(1, Ordering::Relaxed) < times;
                let memory = Arc::new(Memory::new(Arc::clone(&clock))) as Arc<dyn TableStore>;
                let found = if failed { Err(error.clone()) } else { Ok(memory) };
                Box::pin(std::future::ready(found))
            }),
            Outage::Other("no attempt to connect yet".to_owned()),
        ))
    }

    #[tokio::test(start_paused = true)]
    async fn awaited_store_works_once_it_is_found() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let awaited = failing(3, Error::unavailable("no"), Arc::clone(&clock));
        let tables = Arc::clone(&awaited) as Arc<dyn TableStore>;
        let buckets = RevisionStore::open(tables, clock, Settings::default(), 1).await.unwrap();
        let error = buckets.ping().await.unwrap_err();
        assert!(matches!(error, crate::Error::Store(Error::Unavailable(_))), "{error:?}");
        awaited.find().await.unwrap();
        // The tables that were requested before the store answered, and those that are requested now, are created.
        buckets.ping().await.unwrap();
        let other = Box::leak(Box::new(
            Schema::builder("other").partition("key", rashomon_tables::ColumnType::Text).build(),
        ));
        awaited.create(other).await.unwrap();
        assert_eq!(awaited.get(other, &Key::new(vec!["x".into()], Vec::new())).await.unwrap(), None);
    }

    /// The garbage collector waits for the late write window of the store (decision 0017).
    #[tokio::test(start_paused = true)]
    async fn late_write_window_is_that_of_the_found_store() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let window = Duration::from_secs(7);
        let awaited = AwaitedStore::new(
            Box::new(move || {
                let store = ReplicaStore::new(&clock, window);
                Box::pin(std::future::ready(Ok(Arc::new(store) as Arc<dyn TableStore>)))
            }),
            Outage::Other("no attempt to connect yet".to_owned()),
        );
        awaited.late_write_window().await.unwrap_err();
        awaited.find().await.unwrap();
        assert_eq!(awaited.late_write_window().await.unwrap(), window);
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_error_is_returned() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let awaited = failing(1, Error::Unsupported("other columns".to_owned()), clock);
        let error = awaited.find().await.unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    }
}
