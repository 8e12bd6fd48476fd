//! A store that is as others are but in one thing.

use async_trait::async_trait;
use rashomon_tables::{Decorator, Generations, Page, Result, Row, Scan, Schema, TableStore};

/// Passes every call on, but for what it was told to do otherwise.
#[derive(Debug)]
pub(crate) struct Altered<S> {
    store: S,
    scan: fn(Scan) -> Scan,
    is_alone: bool,
}

impl<S: TableStore> Altered<S> {
    /// A store that others may write to as well: it has no generations.
    pub(crate) fn shared(store: S) -> Self {
        Self { store, scan: |scan| scan, is_alone: false }
    }

    /// A store whose pages are short, as those of a scan that is bounded in bytes may be.
    pub(crate) fn terse(store: S) -> Self {
        Self { store, scan: |scan| Scan { max_bytes: 1, ..scan }, is_alone: true }
    }
}

#[async_trait]
impl<S: TableStore> Decorator for Altered<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.store.scan(table, (self.scan)(scan)).await
    }

    fn generations(&self) -> Option<&Generations> {
        self.store.generations().filter(|_| self.is_alone)
    }
}
