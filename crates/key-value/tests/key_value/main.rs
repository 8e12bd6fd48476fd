//! Tests of key-value buckets.

mod buckets;
mod conditions;
mod large;
mod listings;
mod random;
mod splits;
mod support;
mod verify;
