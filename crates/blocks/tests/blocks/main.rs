//! Compression blocks: even from damaged bytes, a read returns the content that was pushed, or an error.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod damage;
mod golden;
mod histories;
mod model;
mod sparse;
