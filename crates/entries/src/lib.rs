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
