//! A seeded world in which retention is held against a model that keeps everything.
//!
//! A history is drawn from a seed: what a world is like (a policy, some processes, clocks that differ), and what
//! happens in it. It happens to the real buckets over a real store, with faults in between; all the while what
//! stands in the tables is held against the model, which computes from what was written when what must be there
//! and what must be gone. The same seed gives the same history, and in memory the same run of it to the byte.

pub mod collecting;
mod ground;
mod history;
mod many;
mod model;
mod name;
mod run;
mod setup;
mod shrink;
mod step;
mod violation;
mod world;

use std::sync::Arc;

use rashomon_buckets::Timeline;
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::TableStore;

pub use self::{
    ground::{Ground, Store},
    history::History,
    many::{Finding, Plan, many},
    name::{Name, Names},
    run::{Outcome, run},
    setup::Setup,
    shrink::shrink,
    step::{Action, Disturbance, Failure, Step},
    violation::{Promise, Violation},
};

/// A world of which something is otherwise than in all others: to see that it is noticed.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Says what the world is like, in some respect.
    pub narrow: fn(&mut Setup),
    /// What stands between the processes and the store.
    pub store: fn(Arc<dyn TableStore>) -> Arc<dyn TableStore>,
    /// What stands between the processes and a timeline beside the store.
    pub timeline: fn(Arc<dyn Timeline>) -> Arc<dyn Timeline>,
    /// The clock that a process sees.
    pub clock: fn(Arc<ManualClock>) -> Arc<dyn Clock>,
}

impl Variant {
    /// Nothing is otherwise.
    pub const SOUND: Self =
        Self { narrow: |_| {}, store: |store| store, timeline: |timeline| timeline, clock: |clock| clock };
}
