//! The arguments of `rashomon upgrade`.

use clap::Args;

use super::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct UpgradeArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Keep the old file of a SQLite store in its directory, under a name that is printed
    #[arg(long)]
    pub(crate) keep_old: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
