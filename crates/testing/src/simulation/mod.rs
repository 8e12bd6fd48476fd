//! A simulation of retention from a seed. It compares the stored data with a model that keeps everything.
//!
//! A seed determines a history: the properties of a world (a policy, some processes, clocks that differ), and the steps
//! that happen in the world. The steps run on the real buckets over a real store, with faults in between. After a step
//! that may change data, and at the end, the content of the tables is compared with the model. The model computes from
//! the times of all writes which values must be stored, and which must be gone. The same seed gives the same history.
//! In memory, the run of the history is also the same, to the byte.
//!
//! # Invariants
//!
//! - The same seed gives the same history, and in memory the same results of all steps.
//! - The model does not depend on a store, nor on the way in which values are culled.

pub mod collecting;
mod history;
mod many;
mod model;
mod name;
mod run;
mod setup;
mod shrink;
mod step;
mod store_clock;
mod store_pool;
mod violation;
mod world;

use std::sync::Arc;

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::Timeline;
use rashomon_tables::TableStore;

pub use self::{
    history::History,
    many::{Finding, Plan, many},
    name::{Name, Names},
    run::{Outcome, run},
    setup::Setup,
    shrink::shrink,
    step::{Action, Disturbance, Failure, Step},
    store_pool::{Store, StorePool},
    violation::{Promise, Violation},
};

/// A change to the world, such as one that breaks a promise on purpose. Tests use variants to check that the simulation
/// notices broken promises.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Fixes some properties of the world.
    pub narrow: fn(&mut Setup),
    /// Wraps the store that the processes use.
    pub store: fn(Arc<dyn TableStore>) -> Arc<dyn TableStore>,
    /// Wraps a timeline that is kept beside the store.
    pub timeline: fn(Arc<dyn Timeline>) -> Arc<dyn Timeline>,
    /// Wraps the clock that a process uses.
    pub clock: fn(Arc<ManualClock>) -> Arc<dyn Clock>,
}

impl Variant {
    /// The variant that changes nothing.
    pub const SOUND: Self =
        Self { narrow: |_| {}, store: |store| store, timeline: |timeline| timeline, clock: |clock| clock };
}
