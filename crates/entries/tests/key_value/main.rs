//! Tests of key-value buckets.

mod buckets;
mod clock_jumps;
mod conditions;
mod counter_faults;
mod counter_histories;
mod counters;
mod counters_sqlite;
mod kills;
mod large;
mod listings;
mod purges;
mod random;
mod splits;
mod support;
mod verify;
