//! The store, seen from outside.

mod common;
mod contract;
mod corruption;
mod crash;
mod full_disk;
mod opening;
mod writing;
