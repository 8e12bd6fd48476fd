//! Retention: what was superseded goes, once everybody has had the time to finish with it.
//!
//! Deciding what may go ([`decide`]) knows no I/O. Culling ([`cull`]) carries it out, a page at a time, and may
//! be done twice. A page is culled by a write, now and then, and by the sweep ([`sweep`]), which
//! processes the queue ([`due`]). Reading a superseded value keeps it for longer
//! ([`historical`]). Values that are no longer stored may be generated again ([`generator`]).
//!
//! The record of a revision, and what the indexes say of its renders, stay when its bodies go.

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
