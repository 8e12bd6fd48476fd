//! Tests of the store through its public functions.

mod contract;
mod corruption;
mod crash;
mod damaged_keys;
mod fixtures;
mod full_disk;
mod lost_log;
mod misplaced;
mod opening;
mod page_reader;
mod turns;
mod upgrading;
mod vacuuming;
mod writing;
