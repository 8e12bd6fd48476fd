//! Compression blocks: what goes in comes out, whatever is done to the bytes.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod damage;
mod golden;
mod histories;
mod model;
