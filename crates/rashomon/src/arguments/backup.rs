//! The arguments of `rashomon backup` and `rashomon restore`.

use std::{num::NonZeroUsize, path::PathBuf};

use crate::configuration::ByteSize;
use clap::Args;

use super::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Folder of the backup: an earlier backup of the same store, or a new folder
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// Maximum amount that is read from the store in a second, so that a server of the store stays fast; 0B for no
    /// limit. Database pages that change during the backup are read again without this limit
    #[arg(long, value_name = "SIZE", default_value = "40MB")]
    pub(crate) rate: ByteSize,

    /// Number of newest states to keep; older ones are deleted at the end [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<NonZeroUsize>,

    /// The store has moved: accept a folder whose newest state was taken from another directory
    #[arg(long)]
    pub(crate) moved: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Folder of the backup
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,

    /// Directory for the store: a new or empty one, or one with an unfinished restore of the same state
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub(crate) data: Option<PathBuf>,

    /// Number of the state to restore [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub(crate) state: Option<u32>,

    /// List the states of the backup, and restore nothing
    #[arg(long, conflicts_with = "data")]
    pub(crate) list: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
