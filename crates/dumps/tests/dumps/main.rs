//! Reading and writing whole histories.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

mod blocks;
mod damage;
mod export;
mod import;
mod properties;
mod reading_order;
mod real_data;
mod unexpected;
mod wiki;
mod xml_reader;
