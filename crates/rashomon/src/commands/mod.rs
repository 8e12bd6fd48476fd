//! The commands, each in its own file.

pub(crate) mod archive;
pub(crate) mod backup;
pub(crate) mod bucket;
pub(crate) mod cassandra;
pub(crate) mod check_config;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod migrate;
pub(crate) mod retention;
pub(crate) mod rewrite;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod token;
pub(crate) mod upgrade;
pub(crate) mod vacuum;
pub(crate) mod verify;
