//! Tables of Rashomon in Cassandra, the distributed engine; ScyllaDB speaks the same protocol.
//!
//! A store is a keyspace. Its tables have the schema's names and key columns; the value columns of a row are
//! the fields of one frozen value in the column `cell` ([`cell`]), so that of two writers one wins the whole
//! row. What the tables look like is written at [`ddl()`](crate::ddl()), and what stands is held against that
//! ([`standing`]).
//!
//! A batch becomes one logged batch of one partition, which Cassandra applies as one mutation ([`mod@write`]). A
//! swap is a lightweight transaction ([`swap`]).
//!
//! Beyond what the table layer bounds, Cassandra bounds keys: those of a partition, and of the clustering
//! columns together, take at most 65,535 bytes; a partition column that is alone is not empty; and a batch has
//! at most 65,535 mutations ([`limits`]). What is beyond that is `Invalid`.

mod catalog;
mod cell;
mod create;
mod ddl;
mod errors;
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
mod standing;
mod statements;
mod store;
mod swap;
mod table;
mod wire;
mod write;

pub use ddl::ddl;
pub use names::is_keyspace;
pub use options::{Compression, Consistency, Credentials, Options, Replication, SerialConsistency};
pub use store::CassandraStore;
