//! Tests that always run in memory: three replicas, of which a batch may reach only some, and clocks that are
//! set by hand.

mod clocks;
mod replicas;
