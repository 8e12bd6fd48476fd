//! Tests of the binary, which is run as a user or a service manager runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod archive_by_default;
mod archive_kills;
mod archiving;
mod auditing;
mod backing_up;
mod clusters;
mod configuration;
mod damaged;
mod demo;
mod disks;
mod earlier_stores;
mod encrypted;
mod entries;
mod every_store;
mod exporting;
#[path = "../cassandra/false_clock.rs"]
mod false_clock;
mod forwarding;
mod generating;
mod help;
mod home;
mod http;
mod importing;
mod importing_entries;
mod kills;
mod memory;
mod migrating;
mod packing;
mod page_buckets;
mod permissions;
mod process;
mod retaining;
mod rewriting;
mod serving;
mod stores;
mod test_stores;
mod to_server;
mod unusual_files;
mod upgrading;
mod vacuuming;
mod wiki;
