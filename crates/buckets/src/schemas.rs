//! The tables of buckets.
