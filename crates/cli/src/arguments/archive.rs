//! The command line of `rashomon archive`.

use clap::{Args, Subcommand};
use rashomon_buckets::{BucketName, DomainName, Revision, Title};

use super::StoreArguments;
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Seal all that may be sealed now: put superseded revisions into compression blocks
    ///
    /// What is sealed is read as before. Nothing leaves its place before the block that has it was read back and
    /// compared; a sealing that was cut off loses nothing, and the next one goes on. A server with a table archive in
    /// its configuration seals by itself. Where a cluster is the store, that table has to stand in the configuration
    /// of every server before the first of them seals.
    #[command(
        after_help = "Exit codes:\n  0  it is done\n  1  an error ended it, or damaged revisions were passed over: \
        they stay in the tables, and all others were sealed\n  2  the command line is wrong, there is no store, or a \
        cluster is served without [archive]\n  130, 143  interrupted; what was sealed is sealed\n\nExamples:\n  rashomon archive seal --data \
        /var/lib/rashomon\n  rashomon archive seal --after 0s"
    )]
    Seal(SealArguments),

    /// Merge what pages have little of in each of several blocks, so that they have it in fewer
    ///
    /// A page that is sealed often has many small blocks, which take more room and more time than a few large ones.
    /// What is merged is read as before. No page leaves a block before the one that has its revisions was read back and
    /// compared; a merging that was cut off loses nothing. The old blocks are deleted at once where the
    /// command alone has the store, else a day later, by a server.
    #[command(
        after_help = "Exit codes:\n  0  it is done\n  1  an error ended it, or something is damaged; what was merged \
        is merged\n  2  the command line is wrong, or there is no store\n  130, 143  interrupted; what was merged is \
        merged\n\nExamples:\n  rashomon archive merge --data /var/lib/rashomon"
    )]
    Merge(MergeArguments),

    /// Erase what a revision says, and all its renders say, for good: from blocks, tables and files
    ///
    /// The record of the revision stays: its number, its times, who made it and with which summary, and that it was
    /// erased, when and by whom. Whoever asks for its content, or writes it again, is told so (410); an import that
    /// brings it again leaves it out. Text that other revisions have, too, stays theirs: erase these as well. A command
    /// that was cut off is given again, and finishes what is left. No server may have the directory meanwhile; its file
    /// is written anew, for which the disk needs as much room again. Copies that were made before (backups, exports,
    /// caches in front of the server) are not touched. The files of a cluster's nodes have it until they are
    /// compacted, for sure once gc_grace_seconds have passed: --status says when that is. docs/erasing.md says how it is
    /// done at once, and what else has it.
    #[command(
        after_help = "Exit codes:\n  0  it is erased\n  1  an error ended it, or something is left: give the command \
        again\n  2  the command line is wrong, or there is no store, no such page or no such revision\n\nExamples:\n  \
        rashomon archive erase --data /var/lib/rashomon --domain en.wikipedia.org --title Main_Page --rev 12345 --by \
        Ann\n  rashomon archive erase --status"
    )]
    Erase(EraseArguments),

    /// Check the archive alone: decode every block, and compare it with the indexes of its pages
    #[command(
        after_help = "Exit codes:\n  0  it is sound\n  1  it is not, or an error ended it\n  2  the command line \
        is wrong, or there is no store\n  130, 143  interrupted"
    )]
    Verify(ArchiveVerifyArguments),

    /// Show what is in blocks, by domain: revisions, bytes as they came and as they are stored
    Stats(ArchiveStatsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SealArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// How long something has to have been superseded, instead of what the configuration says; after an import
    /// 0s, since it counts from when it was stored. Not where a cluster is the store
    #[arg(long, value_name = "TIME")]
    pub(crate) after: Option<Span>,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,
}

/// What is shown in a line of a listing.
fn one_line(text: &str) -> Result<String, String> {
    const MOST: usize = 1000;
    if text.trim().is_empty() {
        return Err("it is empty: leave it out".to_owned());
    }
    // Some break a line, and some turn what follows around, and are no control characters.
    let hides = |c| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.chars().any(|c| c.is_control() || hides(c)) {
        return Err("it is shown in one line: write it without line breaks and control characters".to_owned());
    }
    if text.chars().count() > MOST {
        return Err(format!("it has more than {MOST} characters: say it in fewer"));
    }
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct EraseArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The domain
    #[arg(long, value_name = "NAME", required_unless_present = "status")]
    pub(crate) domain: Option<DomainName>,

    /// The bucket
    #[arg(long, value_name = "NAME", default_value_t = BucketName::page())]
    pub(crate) bucket: BucketName,

    /// The page
    #[arg(long, value_name = "TITLE", required_unless_present = "status")]
    pub(crate) title: Option<Title>,

    /// The number of the revision; several revisions: give it several times
    #[arg(long, value_name = "REV", required_unless_present = "status")]
    pub(crate) rev: Vec<Revision>,

    /// Who erases it, for the listings
    #[arg(long, value_name = "NAME", value_parser = one_line)]
    pub(crate) by: Option<String>,

    /// Why, for --status and exports
    #[arg(long, value_name = "TEXT", value_parser = one_line)]
    pub(crate) reason: Option<String>,

    /// Take out who made the revision, too
    #[arg(long)]
    pub(crate) user: bool,

    /// Take out its summary, too
    #[arg(long)]
    pub(crate) comment: bool,

    /// Where a block that has the revision is damaged, give up what else of it cannot be read, though a replica or a
    /// backup of the block may have it; what is given up is told
    #[arg(long)]
    pub(crate) give_up_damaged: bool,

    /// List what was erased, and until when files may have it
    #[arg(long, conflicts_with_all = ["title", "rev", "by", "reason", "user", "comment", "give_up_damaged"])]
    pub(crate) status: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveVerifyArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveStatsArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
