//! Runs the contract tests of table stores on the SQLite store.

use std::sync::{Arc, atomic::AtomicBool};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{Schema, TableStore, contract::Factory};
use rashomon_tables_sqlite::{Options, SqliteStore, UpgradeOptions, UpgradeOutcome, upgrade};
use tempfile::TempDir;

struct SqliteFactory(TempDir);

impl SqliteFactory {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }
}

#[async_trait]
impl Factory for SqliteFactory {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(SqliteStore::open(self.0.path(), clock, Options::default()).expect("the store opens"))
    }

    async fn reopen(&self, store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle of the store is in use");
        drop(store);
        Some(self.open(clock).await)
    }

    async fn upgrade(
        &self,
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        schema: &'static Schema,
    ) -> Option<Arc<dyn TableStore>> {
        drop(store);
        let options = UpgradeOptions {
            directory: self.0.path().to_owned(),
            schemas: vec![schema],
            accept_lost_log: false,
            keeps_old_file: false,
        };
        let outcome = upgrade(&options, &Arc::new(AtomicBool::new(false)), &mut |_| {});
        let Ok(UpgradeOutcome::Upgraded(report)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(report.grown_tables, [schema.name()]);
        Some(self.open(clock).await)
    }
}

rashomon_tables::contract_tests!(SqliteFactory::new());

#[test]
fn random_operations() {
    rashomon_tables::contract::random::assert_matches_memory(32, SqliteFactory::new);
}
