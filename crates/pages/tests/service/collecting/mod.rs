//! Garbage collection deletes nothing that an acknowledged revision needs, even if a batch has reached only
//! some replicas of a cluster, or if a clock jumps.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod in_memory;
mod ring;
