//! The arguments of `rashomon retention`.

use std::num::NonZeroU32;

use crate::configuration::Span;
use clap::Args;
use rashomon_pages::DomainName;

use super::StoreArguments;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["dry_run", "now"])))]
pub(crate) struct RetentionArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Print how much would be deleted in each bucket, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Delete the bodies now
    #[arg(long)]
    pub(crate) now: bool,

    /// Domain to which the report and the flags apply. --now may also delete bodies in other domains, if the
    /// configured policies of those domains already allow it [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// Time for which the bodies of superseded revisions and renders stay; overrides the configuration
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Span>,

    /// Number of newest revisions of a page that always stay, each with its newest render; overrides the configuration
    #[arg(long, value_name = "N")]
    pub(crate) min_keep: Option<NonZeroU32>,

    /// Take the clock of this machine for right, even if no process of the store has seen the time pass. Otherwise only
    /// time that a server or a command has seen pass counts
    #[arg(long)]
    pub(crate) trust_clock: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
