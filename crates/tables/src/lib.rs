//! The table layer: rows in partitions, sorted by their clustering columns, as in Cassandra.
//!
//! A [`TableStore`] keeps rows and knows nothing of what they mean. What it promises is written at the trait
//! and checked by `contract` (behind the feature of that name), the suite that every store runs; nothing is in
//! it that a cluster cannot keep.
//!
//! Three stores are here: [`Memory`] for tests, and as the oracle that others are held against; and around any
//! other one [`Counting`], which says what it was asked for, and [`Faulty`], which fails on a plan; each is a
//! [`Decorator`]. Behind the feature `isolated` is `Isolated`, which makes many stores of one, for tests. Behind the
//! feature `replicas` is `ReplicaStore`, in which a write may reach some replicas only, for tests too.

#[cfg(feature = "contract")]
pub mod contract;
mod counting;
mod decorator;
mod error;
mod faulty;
mod generations;
#[cfg(feature = "isolated")]
mod isolated;
mod memory;
mod query;
#[cfg(feature = "replicas")]
mod replicas;
mod schema;
mod store;
mod streams;
mod time_uuid;
mod value;
mod write;

pub use counting::{Count, Counting, Counts, Kind, TableCounts};
pub use decorator::Decorator;
pub use error::{Error, Outage, Result};
pub use faulty::{Call, Fault, Faulty, Gate, Plan, Rates};
pub use generations::{Generations, Slot};
#[cfg(feature = "isolated")]
pub use isolated::Isolated;
pub use memory::Memory;
pub use query::{ClusteringRange, Cursor, DamagedRow, OnDamage, Order, Page, Partition, ReadFrom, Scan};
#[cfg(feature = "replicas")]
pub use replicas::{REPLICAS, Reach, ReplicaStore};
pub use schema::{Column, ColumnType, Direction, Schema, SchemaBuilder};
pub use store::TableStore;
pub use streams::{PartitionStream, RowStream};
pub use time_uuid::TimeUuid;
pub use value::{Key, Row, Value};
pub use write::{Batch, MAX_BATCH_BYTES, MAX_VALUE_BYTES, Mutation, Swap};
