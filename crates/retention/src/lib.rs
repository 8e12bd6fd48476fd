//! Retention: deletes superseded bodies after clients have had enough time to finish reading them.
//!
//! The module [`decide`] decides, without I/O, which bodies may be deleted. A cull ([`cull`]) deletes the bodies
//! of one page, and is idempotent. Some writes cull their page ([`hooks`]). The sweep ([`sweep`]) culls the pages
//! that the queue ([`queue`]) names. A read of a superseded value may extend its life ([`read_copies`]). Under
//! strategies other than `app-ttl`, superseded values also exist as copies that expire, and writes may delete
//! the originals ([`new_render`]).
//!
//! A cull deletes only bodies: the record of a revision and the index rows of its renders stay.
//!
//! # Invariants
//!
//! - The rules for culls (`decide`) do no I/O.
//! - A cull deletes only bodies. Records and the indexes of renders stay.
//! - A cull may be repeated, and may run in several processes at once.
//! - A body that was culled can be distinguished from a lost body, see decision 0007.

mod bodies;
mod body_id;
mod clock_jumps;
mod copy_batches;
mod core;
mod cull;
mod current_table;
mod decide;
mod engine;
mod generator;
mod hooks;
mod new_render;
mod policy;
mod queue;
mod read_copies;
pub mod redis_timeline;
mod rescan;
mod rows;
mod stats;
mod strategy;
mod sweep;
mod timeline;
mod timeline_cull;
mod watermarks;

pub use self::{
    bodies::FoundBody,
    body_id::BodyId,
    engine::RetentionEngine,
    generator::{Generated, Generator},
    policy::{Cull, Policy, Retention},
    rescan::{DryRun, Rescan},
    stats::{Counters, RetentionStats},
    strategy::{Current, Fill, Strategy},
    sweep::Sweep,
    timeline::{MemoryTimeline, Sampling, Timeline},
    watermarks::Culls,
};
