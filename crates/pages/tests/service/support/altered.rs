//! Stores that differ from a usual store in one respect.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use rashomon_tables::{
    Batch, DamagedRow, Decorator, Error, Key, Mutation, OnDamage, Page, PartitionVersions, Result, Row, Scan,
    Schema, Swap, TableStore, Walk, WalkPage,
};

/// A store that passes every call on. It can alter scans, and can hide the partition versions.
#[derive(Debug)]
pub(crate) struct AlteredStore<S> {
    store: S,
    scan: fn(Scan) -> Scan,
    has_partition_versions: bool,
}

impl<S: TableStore> AlteredStore<S> {
    /// A store to which other processes may write: it has no partition versions.
    pub(crate) fn shared(store: S) -> Self {
        Self { store, scan: |scan| scan, has_partition_versions: false }
    }

    /// A store whose result pages have one row each, as if every row exceeded the byte limit of a scan.
    pub(crate) fn with_short_pages(store: S) -> Self {
        Self { store, scan: |scan| Scan { max_bytes: 1, ..scan }, has_partition_versions: true }
    }
}

#[async_trait]
impl<S: TableStore> Decorator for AlteredStore<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.store.scan(table, (self.scan)(scan)).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        self.store.partition_versions().filter(|_| self.has_partition_versions)
    }
}

/// A store in which one table refuses swaps while a test says so, as if other processes kept changing its rows.
#[derive(Debug)]
pub(crate) struct ContendedStore<S> {
    store: S,
    table: &'static Schema,
    is_contended: AtomicBool,
}

impl<S: TableStore> ContendedStore<S> {
    pub(crate) fn new(store: S, table: &'static Schema) -> Self {
        Self { store, table, is_contended: AtomicBool::new(false) }
    }

    pub(crate) fn set_contended(&self, is_contended: bool) {
        self.is_contended.store(is_contended, Ordering::SeqCst);
    }
}

#[async_trait]
impl<S: TableStore> Decorator for ContendedStore<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        if self.is_contended.load(Ordering::SeqCst) && table.name() == self.table.name() {
            return Ok(Swap::Refused { current: self.store.get(table, key).await? });
        }
        self.store.swap(first, table, key, expected, new).await
    }
}

/// A store in which some rows are damaged. A `get` of such a row fails with `Corrupt`, and so does a scan,
/// unless the scan asks for a report. A put or a delete of a single row in a batch removes its damage. A range
/// delete or a swap of the row does not.
#[derive(Debug)]
pub(crate) struct DamagedStore<S> {
    store: S,
    rows: Mutex<BTreeSet<(&'static str, Key)>>,
}

impl<S: TableStore> DamagedStore<S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store, rows: Mutex::default() }
    }

    pub(crate) fn damage(&self, table: &'static Schema, key: Key) {
        self.rows.lock().unwrap().insert((table.name(), key));
    }

    pub(crate) fn damaged_row_count(&self) -> usize {
        self.rows.lock().unwrap().len()
    }

    /// Removes the damage of the rows that these batches put or delete.
    fn remove_damage_of(&self, batches: Vec<Batch>) {
        let mut rows = self.rows.lock().unwrap();
        for Batch { partition, mutations } in batches {
            for mutation in mutations {
                if let Mutation::Put { table, clustering, .. } | Mutation::Delete { table, clustering, .. } =
                    mutation
                {
                    rows.remove(&(table.name(), Key::new(partition.clone(), clustering)));
                }
            }
        }
    }

    fn damage_of(&self, table: &'static Schema, key: &Key) -> Option<DamagedRow> {
        let is_damaged = self.rows.lock().unwrap().contains(&(table.name(), key.clone()));
        is_damaged.then(|| DamagedRow {
            key: key.clone(),
            reason: format!("{} is damaged on purpose", table.name()),
        })
    }
}

#[async_trait]
impl<S: TableStore> Decorator for DamagedStore<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        match self.damage_of(table, key) {
            Some(damaged) => Err(Error::Corrupt(damaged.reason)),
            None => self.store.get(table, key).await,
        }
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        let on_damage = scan.on_damage;
        let mut page = self.store.scan(table, scan).await?;
        page.damaged = page.items.iter().filter_map(|row| self.damage_of(table, &row.key)).collect();
        page.items.retain(|row| page.damaged.iter().all(|damaged| damaged.key != row.key));
        match page.damaged.first() {
            Some(damaged) if on_damage == OnDamage::Fail => Err(Error::Corrupt(damaged.reason.clone())),
            _ => Ok(page),
        }
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        let on_damage = walk.on_damage;
        let mut page = self.store.walk(walk).await?;
        let is_damaged =
            |(table, row): &(&'static Schema, Row)| Some((*table, self.damage_of(table, &row.key)?));
        page.damaged = page.rows.iter().filter_map(is_damaged).collect();
        page.rows.retain(|(table, row)| self.damage_of(table, &row.key).is_none());
        match page.damaged.first() {
            Some((_, damaged)) if on_damage == OnDamage::Fail => Err(Error::Corrupt(damaged.reason.clone())),
            _ => Ok(page),
        }
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let batches: Vec<_> = first.iter().chain([&then]).cloned().collect();
        self.store.write(first, then).await?;
        self.remove_damage_of(batches);
        Ok(())
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let batches = first.clone();
        let swap = self.store.swap(first, table, key, expected, new).await?;
        self.remove_damage_of(batches);
        Ok(swap)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        self.store.partition_versions()
    }
}
