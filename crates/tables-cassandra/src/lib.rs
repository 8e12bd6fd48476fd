//! The table store in Cassandra. ScyllaDB speaks the same protocol.
//!
//! A store is a keyspace. Its tables have the names and key columns of the schemas. The values of a row are the
//! fields of one frozen value in the column `cell` ([`cell`]). So if two writers put a row at the same time, the row
//! has all values of one writer. [`ddl()`](crate::ddl()) returns the tables as CQL. An existing table is compared
//! with its schema ([`existing_table`]).
//!
//! A batch becomes a single statement, or a logged batch of one partition. Cassandra applies both as one mutation
//! ([`mod@write`]). A swap is a lightweight transaction ([`swap`]).
//!
//! Cassandra has more limits than the table layer ([`limits`]). The key of a partition has at most 65,535 bytes, and
//! so have all clustering columns of a row together. If a table has only one partition column, its value must not be
//! empty. A batch has at most 65,535 mutations, and at most 15 MiB. A call beyond these limits is `Invalid`.
//!
//! # Invariants
//!
//! - The values of a row are one cell with the write time of the batch, so a row never mixes the values of two writers.
//! - A batch is one mutation of one partition, and may be repeated.
//! - Rows that were read are not cached, since other processes write to the cluster, too.

mod catalog;
mod cell;
mod create;
mod ddl;
mod errors;
mod existing_table;
mod grace;
mod limits;
mod names;
mod options;
mod partitions;
mod read;
mod replicas;
mod retry;
mod session;
mod slices;
mod statements;
mod store;
mod swap;
mod table;
mod walk;
mod wire;
mod write;

pub use ddl::ddl;
pub use names::is_keyspace;
pub use options::{Compression, Consistency, Credentials, Options, Replication, SerialConsistency};
pub use store::CassandraStore;
