//! What holds on every store, from one definition: `command_line` runs these tests on SQLite, `cassandra` on a
//! real cluster.

mod archiving;
mod checking;
mod exporting;
mod importing;
mod serving;
