//! The simulation: no history breaks a promise, and each promise that a world breaks on purpose is noticed.
#![allow(clippy::unwrap_used)] // In what tests call, too.

mod broken;
mod histories;
