//! A process: buckets with their access to the store.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_entries::KeyValueStore;
use rashomon_pages::{RevisionStore, Settings};
use rashomon_tables::{Fault, Faulty, Plan, TableStore};

use super::{StoreHandle, handle::HeldWriteControl};
use crate::simulation::{
    step::{Disturbance, Failure},
    store_pool::AnyStore,
};

/// Buckets with their access to a store.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: Arc<ManualClock>,
    /// The time by which the clock of the process is ahead of the slowest possible clock.
    pub(crate) offset: Duration,
    /// The clock that the buckets use.
    shown: Arc<dyn Clock>,
    handle: Arc<StoreHandle>,
    faulty: Arc<Faulty<AnyStore>>,
    pub(crate) buckets: RevisionStore,
}

impl Process {
    /// Starts a process. `handle` is its access to the store. `store` is `handle`, perhaps in a faulty wrapper
    /// ([`Variant::store`](crate::simulation::Variant)).
    pub(crate) async fn begin(
        handle: Arc<StoreHandle>,
        store: AnyStore,
        clock: Arc<ManualClock>,
        shown: Arc<dyn Clock>,
        offset: Duration,
        settings: Settings,
        seed: u64,
    ) -> Result<Self> {
        let faulty = Arc::new(Faulty::new(store, Plan::empty()));
        let store = Arc::clone(&faulty) as Arc<dyn TableStore>;
        let buckets = RevisionStore::open(store, Arc::clone(&shown), settings, seed).await?;
        Ok(Self { clock, offset, shown, handle, faulty, buckets })
    }

    /// Restarts the process, with nothing in memory.
    pub(crate) async fn restart(&mut self, settings: Settings, seed: u64) -> Result<()> {
        self.clear_disturbances();
        let store = Arc::clone(&self.faulty) as Arc<dyn TableStore>;
        self.buckets = RevisionStore::open(store, Arc::clone(&self.shown), settings, seed).await?;
        Ok(())
    }

    /// Removes all planned disturbances.
    pub(crate) fn clear_disturbances(&self) {
        self.faulty.set_plan(Plan::empty());
        self.handle.clear_disturbances();
    }

    /// The buckets that have definitions, with nothing in memory.
    pub(crate) fn key_value(&self) -> KeyValueStore {
        KeyValueStore::new(Arc::clone(self.buckets.parts().records), rashomon_entries::Settings::default())
    }

    /// Plans a disturbance.
    pub(crate) fn disturb(&self, disturbance: Disturbance, now: Timestamp) {
        let handle = &self.handle;
        match disturbance {
            Disturbance::Fails { call, number, how } => {
                self.faulty.set_plan(Plan::empty().on(call, number, how.into()));
            }
            Disturbance::Dies { after } => handle.die_after(after),
            Disturbance::CullsFail => handle.fail_culls(),
            Disturbance::Late(by) => handle.delay(now, now.saturating_add(by)),
            // `Client::carry_out` plans this disturbance when it writes, because it lets another process act while the
            // write waits.
            Disturbance::LosesLease => {}
        }
    }

    /// Holds back the next write of a page under a lease.
    pub(crate) fn hold_write_under_lease(&self) -> HeldWriteControl {
        self.handle.hold_write_under_lease()
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Before => Self::Before,
            Failure::After => Self::After,
            Failure::Midway { batches } => Self::Midway { batches },
        }
    }
}
