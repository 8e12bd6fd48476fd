//! Retention: deletes superseded bodies after clients have had enough time to finish reading them.
//!
//! The decision about what may be deleted ([`decide`]) does no I/O. The cull ([`cull`]) carries it out, one
//! page at a time, and is idempotent. Some writes cull their page. The sweep ([`sweep`]) culls the pages that
//! the queue ([`due`]) names. A read of a superseded value keeps the value for longer ([`historical`]).
//! Values that are no longer stored may be generated again ([`generator`]).
//!
//! A cull deletes bodies alone: the record of a revision and the index rows of its renders stay.

mod cull;
mod decide;
mod drift;
mod due;
mod generator;
mod historical;
mod marks;
mod on_write;
mod policy;
mod rows;
mod stats;
mod strategies;
mod sweep;
mod timeline;
mod walk;

pub(crate) use self::{
    drift::Drift,
    generator::Generations,
    historical::Copies,
    marks::Culls,
    on_write::CULLS,
    stats::Counters,
    strategies::{After, is_of, whose},
};
pub use self::{
    generator::{Generated, Generator},
    policy::{Cull, Policy, Retention},
    stats::RetentionStats,
    strategies::{Current, Fill, Strategy},
    sweep::Sweep,
    timeline::{MemoryTimeline, Sampling, Superseded, Timeline},
    walk::{DryRun, Walk},
};
