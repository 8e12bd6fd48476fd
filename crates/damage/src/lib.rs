//! Damages copies of a store, asks each copy all questions, and compares the answers with those of the
//! undamaged store.
//!
//! [`base`] writes a few small stores and keeps copies of them after each step. [`layout`] finds the role of
//! each page of a file, [`damage`] damages a copy, and [`ask`] asks the copy. [`judge`] decides whether each
//! answer is right, an error, a report of the damage, or the answer of an earlier commit. Any other answer is
//! a finding. [`many`] runs the trials.

pub mod ask;
pub mod base;
pub mod binary;
pub mod damage;
pub mod judge;
pub mod layout;
pub mod many;
pub mod tally;
pub mod wal;
