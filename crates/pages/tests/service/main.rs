//! Tests of an open store with all its parts: records, archive, retention, garbage collection and migration. Many
//! tests run over each kind of store.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod archive;
mod bounded_reads;
mod catalog;
mod collecting;
mod conditions;
mod domains;
mod faults;
mod imports;
mod latest_cache;
mod mementos;
mod migration;
mod new_revisions;
mod page_buckets;
mod processes;
mod random_writes;
mod reading;
mod renders;
mod retention;
mod rewrites;
mod sizes;
mod statistics;
mod support;
mod verify;
mod verify_by_blocks;
