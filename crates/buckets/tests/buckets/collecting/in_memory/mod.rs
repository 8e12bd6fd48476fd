//! Tests that are always in memory: three replicas, of which a batch may reach some only, and clocks that are
//! set by hand.

mod clocks;
mod replicas;
