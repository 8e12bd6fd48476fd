//! The table store in Cassandra. ScyllaDB speaks the same protocol.
//!
//! A store is a keyspace. Its tables have the names and key columns of the schemas. The value columns of a
//! row are the fields of one frozen value in the column `cell` ([`cell`]). So of two concurrent writers, one
//! wins the whole row. [`ddl()`](crate::ddl()) prints the tables as CQL. An existing table is compared with
//! its schema ([`existing_table`]).
//!
//! A batch becomes one statement, or a logged batch of one partition. Cassandra applies either as one mutation
//! ([`mod@write`]). A swap is a lightweight transaction ([`swap`]).
//!
//! Cassandra has more limits than the table layer ([`limits`]). The key of a partition takes at most 65,535
//! bytes, and so do the clustering columns of a row together. If a table has only one partition column, its
//! value must not be empty. A batch has at most 65,535 mutations, and takes at most 15 MiB. A call beyond
//! these limits is `Invalid`.

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
mod wire;
mod write;

pub use ddl::ddl;
pub use names::is_keyspace;
pub use options::{Compression, Consistency, Credentials, Options, Replication, SerialConsistency};
pub use store::CassandraStore;
