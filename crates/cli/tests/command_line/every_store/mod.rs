//! Tests for every store, with one definition: `command_line` runs them on SQLite, `cassandra` on a real
//! cluster.

mod archiving;
mod checking;
mod exporting;
mod importing;
mod serving;
