//! Garbage collection deletes nothing that an acknowledged revision needs: not while a batch has reached some replicas of
//! a cluster only, and not when a clock jumps.
#![allow(clippy::unwrap_used)] // In what tests call, too.

mod in_memory;
mod ring;
