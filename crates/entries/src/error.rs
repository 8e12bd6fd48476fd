//! The errors of key-value buckets.

use std::time::Duration;

use rashomon_records::BucketName;

use crate::{Bucket, BucketType, DefinitionError};

/// The result of an operation on buckets, entries or counters.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of an operation on buckets, entries or counters.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bucket can be created under this name.
    #[error("'{name}' is reserved: choose another name for the bucket")]
    ReservedName {
        /// The name.
        name: BucketName,
    },
    /// There is no bucket of this name.
    #[error("there is no bucket of this name")]
    NoBucket,
    /// The bucket has entries, not pages.
    #[error("the bucket has the type {bucket_type}: name a bucket of type revisioned, such as page")]
    NoPages {
        /// The type of the bucket.
        bucket_type: BucketType,
    },
    /// The bucket exists with another definition. Nothing was changed.
    #[error("the bucket exists already, with another definition: {}", stored.definition)]
    OtherDefinition {
        /// The stored bucket.
        stored: Box<Bucket>,
    },
    /// The condition of the request does not hold. Nothing was changed.
    #[error("the condition of the request does not hold")]
    ConditionFailed,
    /// A definition is invalid. Nothing was changed.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A body is larger than the bucket allows. Nothing was changed.
    #[error(
        "the body has more than {limit} bytes, the limit of the bucket: send a smaller body, or raise max_size in the \
         definition of the bucket, at most to the setting body_limit"
    )]
    TooLarge {
        /// The maximum number of bytes.
        limit: u64,
    },
    /// Other writers changed the same row again and again. A repeat may succeed.
    #[error("other requests changed the same entry, counter or bucket again and again; try again")]
    Contended,
    /// The increment would make the counter exceed the range of 64-bit integers. Nothing was changed.
    #[error(
        "the counter has the value {value}; with the increment it would pass {}, the limit of a 64-bit \
         integer: use an increment that is nearer to 0",
        if *by < 0 { i64::MIN } else { i64::MAX }
    )]
    Overflow {
        /// The value of the counter.
        value: i64,
        /// The increment.
        by: i64,
    },
    /// The counter has as many idempotency keys of the last 24 hours as the setting allows. Nothing was
    /// changed.
    #[error(
        "the counter has {limit} idempotency keys of the last 24 hours, the limit of the setting \
         max_idempotency_keys: try again when the oldest ones have expired, or without an idempotency key"
    )]
    TooManyIdempotencyKeys {
        /// The maximum number of keys.
        limit: u64,
        /// The time until the oldest keys have expired.
        retry_after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Records(#[from] rashomon_records::Error),
}

impl From<Error> for rashomon_records::Error {
    /// Unwraps an error of the store. Converts any other error to `Invalid`.
    fn from(error: Error) -> Self {
        match error {
            Error::Records(error) => error,
            error => Self::Invalid(error.to_string()),
        }
    }
}

impl From<rashomon_tables::Error> for Error {
    fn from(error: rashomon_tables::Error) -> Self {
        Self::Records(error.into())
    }
}
