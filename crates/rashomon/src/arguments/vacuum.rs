//! The arguments of `rashomon vacuum`.

use clap::Args;

use super::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct VacuumArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// After giving the free pages back, rewrite the rest of the file, which also closes the gaps within its pages.
    /// The rewrite needs as much free disk space as the rest of the file takes, and as much again for temporary files
    /// (in TMPDIR, else /var/tmp). The rewrite takes longer than copying the file. If it is interrupted, the next run
    /// begins again
    #[arg(long)]
    pub(crate) full: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
