//! Damages copies of a store, asks each copy all questions, and compares the answers with those of the
//! undamaged store.
//!
//! [`base`] writes a few small stores and keeps copies of them after each step. [`layout`] finds the role of each
//! SQLite page of a store's file (interior, leaf, overflow, free). [`kinds`] damages a copy, and [`ask`] asks the
//! copy. [`judge`] accepts an answer that is right, that is an error, or that names the damage and is otherwise right.
//! After damage to the log, all answers may also be those of one earlier commit. After damage by older pages, the
//! answers may be those of several earlier commits, may mix several commits, or may lack rows. Findings are other
//! answers, panics, and damage that `verify` does not name although it must. `verify` must name damage that an answer
//! shows, and each change of meaningful bytes that is neither damage to the log nor damage by older pages. [`binary`]
//! also checks the commands of the program. [`many`] runs the trials.
//!
//! # Invariants
//!
//! - The same seed damages the same bytes. The logs of SQLite are an exception, since they have random salts.
//! - A damaged store gives the right answer, an error, or an answer that names the damage. After damage to the log, or
//!   if database pages are older than others, answers may be those of earlier commits; see decision 0020.

pub mod ask;
pub mod base;
pub mod binary;
pub mod judge;
pub mod kinds;
pub mod layout;
pub mod many;
pub mod tally;
pub mod wal;
