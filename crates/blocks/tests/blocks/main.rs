//! Compression blocks: contents are read as they were pushed, or are errors, whatever happens to the bytes.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod damage;
mod golden;
mod histories;
mod model;
mod sparse;
