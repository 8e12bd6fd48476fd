//! Rewrites of stored values with real transformers, over stores in memory and in SQLite.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod blocks;
mod space;
mod support;
mod tables;
mod transformers;
