//! The table layer: rows in partitions, sorted by their clustering columns, as in Cassandra.
//!
//! A [`TableStore`] stores rows, and does not know what they mean. The trait documents the promises of a store, and
//! promises nothing that a cluster cannot keep. The test suite `contract` (behind the feature of this name) checks
//! these promises, and runs on every store.
//!
//! This crate has three stores. [`Memory`] is for tests and for the store `memory:`. Other stores are compared with it.
//! [`Counting`] and [`Faulty`] wrap any other store: `Counting` counts calls, and `Faulty` fails according to a
//! plan. Both are [`Decorator`]s. Two more stores are behind features. `Isolated` (`isolated`) is a namespace in a
//! shared store. `ReplicaStore` (`replicas`), for tests, has replicas, and a write may reach only some of them.
//!
//! # Invariants
//!
//! - A batch belongs to one partition, and happens completely or not at all. Of two writes of a row, the one with the
//!   later `written_at` wins.
//! - `swap` compares and sets a row after it has written the batches of its call. So a reader that finds the row also
//!   finds the rows of the batches, even after a crash.
//! - The trait promises nothing that a cluster cannot keep: it has no transaction over partitions, and no snapshot over
//!   several reads.
//! - A store does not know what its rows mean. The caller bounds the sizes of values and batches.

#[cfg(feature = "contract")]
pub mod contract;
mod counting;
mod decorator;
mod error;
mod faulty;
#[cfg(feature = "isolated")]
mod isolated;
mod memory;
mod partition_versions;
mod query;
mod read_ahead;
#[cfg(feature = "replicas")]
mod replicas;
mod schema;
mod store;
mod streams;
mod value;
mod versioned_cache;
mod walk;
mod write;

pub use counting::{Count, Counting, Counts, Kind, TableCounts};
pub use decorator::Decorator;
pub use error::{Error, Outage, Result};
pub use faulty::{Call, Fault, Faulty, Gate, Plan, Rates};
#[cfg(feature = "isolated")]
pub use isolated::Isolated;
pub use memory::Memory;
pub use partition_versions::{PartitionVersions, Slot, VersionedRead};
pub use query::{
    ClusteringRange, Cursor, DamagedRow, OnDamage, Order, Page, Partition, Read, ReadFrom, Scan, compare_rows,
};
pub use rashomon_clock::TimeUuid;
pub use read_ahead::ReadAhead;
#[cfg(feature = "replicas")]
pub use replicas::{REPLICAS, Reach, ReplicaStore};
pub use schema::{Column, ColumnType, Direction, Schema, SchemaBuilder};
pub use store::TableStore;
pub use streams::{PartitionStream, RowStream, first_keys};
pub use value::{Key, Row, Value};
pub use versioned_cache::VersionedCache;
pub use walk::{Walk, WalkPage, WalkRows, WalkStream};
pub use write::{Batch, MAX_BATCH_BYTES, MAX_VALUE_BYTES, Mutation, Swap};
