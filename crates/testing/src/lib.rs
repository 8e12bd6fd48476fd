//! What tests of several crates share, and what tests the whole service.
//!
//! [`stores`] has the stores of the tests above the table layer. The other modules need the feature `programs`:
//! [`simulation`] compares retention with a model in random histories, [`damage`] damages stores and asks them
//! everything, [`fuzz_targets`] has the functions that `cargo xtask fuzz` calls, and [`comparison`] counts what the
//! strategies of retention cost.

#[cfg(feature = "programs")]
pub mod comparison;
#[cfg(feature = "programs")]
pub mod damage;
#[cfg(feature = "programs")]
pub mod fuzz_targets;
#[cfg(feature = "programs")]
pub mod simulation;
pub mod stores;
