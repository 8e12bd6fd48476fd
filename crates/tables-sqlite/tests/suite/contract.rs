//! The store in SQLite keeps the contract.

use std::sync::Arc;

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{TableStore, contract::Factory};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

struct InSqlite(TempDir);

impl InSqlite {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }
}

#[async_trait]
impl Factory for InSqlite {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(SqliteStore::open(self.0.path(), clock, Options::default()).expect("the store opens"))
    }

    async fn reopen(&self, store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle of the store is in use");
        drop(store);
        Some(self.open(clock).await)
    }
}

rashomon_tables::contract_tests!(InSqlite::new());

#[test]
fn random_operations() {
    rashomon_tables::contract::random::assert_matches_memory(32, InSqlite::new);
}
