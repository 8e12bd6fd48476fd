//! The arguments of `rashomon compare-strategies`.

use std::{num::NonZeroUsize, path::PathBuf};

use crate::configuration::StoreUrl;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CompareStrategiesArguments {
    /// Export with history to replay, in a format that `import` reads
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// Store for the tables: memory:, sqlite:DIRECTORY (a new one), or cassandra://HOST/KEYSPACE (a keyspace for this
    /// purpose alone; its tables stay)
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub(crate) backend: StoreUrl,

    /// Configuration file (TOML) with the connection settings of a cluster; its other settings are ignored
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Replay only the first N pages
    #[arg(long, value_name = "N")]
    pub(crate) pages: Option<NonZeroUsize>,

    /// Also estimate how many entries the index of superseded revisions (the timeline) would have for each of the four
    /// wikis in the design notes. The smallest has 1.3 edits a day, and the largest 186,497
    #[arg(long)]
    pub(crate) timelines: bool,

    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw the results to this file as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
