//! The binary, run as a person or a service manager runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod configuration;
mod demo;
mod exporting;
mod help;
mod importing;
mod process;
mod serving;
mod stores;
mod wiki;
