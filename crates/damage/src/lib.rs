//! Damages copies of a store, asks each copy everything, and compares the answers with those of the whole store.
//!
//! [`base`] writes a few small stores and keeps copies of them after each step. [`layout`] says what each page of a
//! file is, [`harm`] changes a copy, [`ask`] asks it, and [`judge`] decides whether each answer is right, an error, a
//! statement of the damage, or the answer of an earlier commit. Everything else is a finding. [`many`] runs trials.

pub mod ask;
pub mod base;
pub mod binary;
pub mod harm;
pub mod judge;
pub mod layout;
pub mod many;
pub mod tally;
pub mod wal;
