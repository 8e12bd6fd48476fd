//! The simulation: no history breaks a promise, and each promise that a world breaks on purpose is noticed.
#![allow(clippy::unwrap_used)] // Helpers of tests need it as well.

mod broken;
mod histories;
