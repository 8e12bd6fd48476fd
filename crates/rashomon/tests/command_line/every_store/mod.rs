//! Tests for every store, which are defined once: `command_line` runs them on SQLite, and `cassandra` on a
//! real cluster.

mod archiving;
mod buckets;
mod checking;
mod exporting;
mod importing;
pub(crate) mod rewriting;
mod serving;
mod tokens;
