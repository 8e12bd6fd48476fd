//! The arguments of `rashomon vacuum`.

use clap::Args;

use super::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct VacuumArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Then rewrite the file, which also closes the gaps within its pages. This needs free disk space of the
    /// size of the file that is left, and the same again for temporary files (in TMPDIR, else /var/tmp). It
    /// takes longer than copying the file. If it is interrupted, the next run begins again
    #[arg(long)]
    pub(crate) full: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
