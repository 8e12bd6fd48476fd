//! Key-value buckets: entries under keys, without versions.
//!
//! A bucket has a definition ([`Definition`]), which is stored. [`KeyValueStore`] has all operations on
//! buckets and their entries. The source is note 002, "Key/value store without versioning".
//!
//! An entry is one row, in a partition of its own. Each write of the row is a compare-and-set, so that conditional
//! requests are exact, also in a cluster. An index has the keys of a bucket in order. A key is in the index before its
//! entry is stored, so a listing reads the index and then the entries.
//!
//! A counter is one row as well. A repeated increment with the same [`IdempotencyKey`] counts once.
//!
//! # Invariants
//!
//! - Every write of a definition or an entry is a compare-and-set. So a condition of a request holds at the moment of
//!   the write, also in a cluster.
//! - A key is added to the index before its entry is stored, and removed only after its entry is deleted.
//! - The keys of rows contain the random id of their bucket. If a deleted bucket is created again, it has another id.
//!   The keys of pages in a bucket of type `revisioned` contain the id, too (`page_buckets`), see decision 0037.
//! - A counter is written only by compare-and-set. Its row has the idempotency keys of the last change, and the next
//!   change first stores them in another table. A process that reads both reads the row first, so that it misses no
//!   idempotency key. See decision 0036.
//! - An increment is carried out whether or not its caller still waits for the answer.

mod bucket;
mod cache;
mod collect;
mod counter;
mod definition;
mod entry;
mod error;
mod growth;
mod idempotency;
mod index;
mod list;
mod locks;
mod page_buckets;
mod parts;
mod queue;
mod repair;
mod rows;
mod sink;
mod split;
mod stats;
mod store;
mod verify;

pub use bucket::{Bucket, CreatedBucket, check_new_bucket};
pub use counter::CounterSummary;
pub use definition::{BucketType, Definition, DefinitionError};
pub use entry::{Allows, Entry, EntryTag, PutOutcome};
pub use error::{Error, Result};
pub use idempotency::{CallerDigest, IdempotencyKey, IdempotencyKeyError};
pub use list::{EntrySummary, KeyRange, Order};
pub use page_buckets::DeletedBucket;
pub use rashomon_records::EntryKey;
pub use sink::EntrySink;
pub use stats::BucketStats;
pub use store::{KeyValueStore, Settings};
