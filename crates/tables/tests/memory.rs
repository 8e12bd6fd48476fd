//! The store in memory keeps the contract.

use std::sync::Arc;

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{Memory, TableStore, contract::Factory};

struct InMemory;

#[async_trait]
impl Factory for InMemory {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(Memory::new(clock))
    }

    async fn reopen(&self, _: Arc<dyn TableStore>, _: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        None
    }
}

rashomon_tables::contract_tests!(InMemory);
