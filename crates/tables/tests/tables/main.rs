//! Tests of the table layer: the store in memory, the decorators, and the rules that need no store.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod counting;
mod faulty;
mod isolated;
mod memory;
mod random;
mod replicas;
mod rules;
mod streams;
