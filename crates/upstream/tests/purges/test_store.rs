//! A store in memory with faults in its reads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    DamagedRow, Decorator, Error, Key, Memory, Page, PartitionVersions, Result, Row, Scan, Schema, TableStore,
};

/// A store in memory. Scans fail or report damage as the test has set.
#[derive(Debug)]
pub(crate) struct TestStore {
    memory: Memory,
    is_shared: bool,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    /// The errors of scans, by table.
    scans: BTreeMap<&'static str, Error>,
    /// The keys of damaged rows.
    damaged: Vec<Key>,
}

impl TestStore {
    /// A store without faults. Several processes write to a shared store.
    pub(crate) fn new(clock: Arc<dyn Clock>, is_shared: bool) -> Self {
        Self { memory: Memory::new(clock), is_shared, faults: Mutex::default() }
    }

    /// Sets or removes the error of scans of a table.
    pub(crate) fn fail_scans(&self, table: &'static Schema, error: Option<Error>) {
        let scans = &mut self.faults.lock().unwrap().scans;
        match error {
            Some(error) => scans.insert(table.name(), error),
            None => scans.remove(table.name()),
        };
    }

    /// Damages the row under a key.
    pub(crate) fn damage(&self, key: Key) {
        self.faults.lock().unwrap().damaged.push(key);
    }
}

#[async_trait]
impl Decorator for TestStore {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.memory
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        if let Some(error) = self.faults.lock().unwrap().scans.get(table.name()) {
            return Err(error.clone());
        }
        let mut page = TableStore::scan(&self.memory, table, scan).await?;
        let damaged = self.faults.lock().unwrap().damaged.clone();
        for row in page.items.extract_if(.., |row| damaged.contains(&row.key)) {
            page.damaged.push(DamagedRow { key: row.key, reason: "a test has damaged it".to_owned() });
        }
        Ok(page)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        match self.is_shared {
            true => None,
            false => self.memory.partition_versions(),
        }
    }
}
