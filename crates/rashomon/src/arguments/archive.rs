//! The command line of `rashomon archive`.

use crate::configuration::{Idle, Span};
use clap::{Args, Subcommand};
use rashomon_pages::{BucketName, DomainName, Revision, Title};

use super::StoreArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Seal superseded revisions and idle pages: move them into compression blocks
    ///
    /// The latest revision of a page is sealed too if the page is idle (see --idle). Reads of sealed revisions
    /// are the same as before. A revision leaves the tables only after its block was read back and compared.
    /// Interrupting the command loses nothing; the next run continues. A server whose archive is on seals by itself,
    /// without this command. On a cluster, every server must have `[archive]` in its configuration before the first
    /// server seals.
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, or damaged revisions stay in the tables
  2  the command line is wrong, there is no store, or [archive] is missing in the
     configuration (a cluster and a retention policy require it)
  130, 143  interrupted; sealed revisions stay sealed

Examples:
  rashomon archive seal --data /var/lib/rashomon
  rashomon archive seal --after 0s
  rashomon archive seal --after 0s --idle 0s")]
    Seal(SealArguments),

    /// Compact the archive: rewrite pages that are spread over many small blocks into fewer, larger ones
    ///
    /// Many small blocks take more space and more time to read than a few large ones. Reads are the same as
    /// before. A page leaves a block only after its new block was read back and compared. Interrupting the
    /// command loses nothing. With SQLite, the command deletes the old blocks at once. On a cluster, garbage
    /// collection deletes them when `gc_grace_seconds` and a day have passed.
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, or a block is damaged; the finished blocks stay
  2  the command line is wrong, or there is no store
  130, 143  interrupted; the finished blocks stay

Examples:
  rashomon archive merge --data /var/lib/rashomon")]
    Merge(MergeArguments),

    /// Erase the content of a revision and of its renders permanently from tables and blocks, and with SQLite from the
    /// file
    ///
    /// The record of the revision stays: number, times, user and comment (unless --user or --comment erases
    /// them), and the time and author of the erasure. Reads and writes of an erased revision are answered
    /// with 410, and imports leave it out. Other revisions with the same text are not changed: erase them
    /// as well. If the command was interrupted, run it again to complete the erasure.
    ///
    /// With SQLite, no server may have the store open. The file is rewritten, which needs free disk space of
    /// the size of the file, and the same again for temporary files. Copies elsewhere (backups, exports, HTTP
    /// caches) are not changed. On a cluster, the files of the nodes have the content until they are
    /// compacted. --status shows a time: a full compaction after this time is certain to remove the content,
    /// and an earlier compaction may remove it. docs/erasing.md says how to remove the content earlier, and
    /// which other places may have it.
    #[command(after_help = "\
Exit codes:
  0  the content is erased; with --status: no erasure is unfinished
  1  an error ended the command, some content is left, or --status found an unfinished
     erasure; the output says what to do
  2  the command line is wrong, or the store, the page or the revision does not exist
  130, 143  interrupted; run the command again

Examples:
  rashomon archive erase --data /var/lib/rashomon --domain en.wikipedia.org --title Main_Page --rev 12345 --by Ann
  rashomon archive erase --status")]
    Erase(EraseArguments),

    /// Check only the archive: decode every block, and compare it with the indexes of its pages
    #[command(after_help = "\
Exit codes:
  0  the archive is sound
  1  the archive is damaged, or an error ended the check
  2  the command line is wrong, or there is no store
  130, 143  interrupted")]
    Verify(ArchiveVerifyArguments),

    /// Show the contents of the archive, by domain: revisions, original bytes and stored bytes
    Stats(ArchiveStatsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SealArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// Minimum time since a revision was superseded; overrides the configuration [default: 24h, or the `grace` of
    /// `[retention]`]. Times are those of the writes to this store, not those of the edits, so use 0s to seal right
    /// after an import. Refused on a cluster
    #[arg(long, value_name = "TIME")]
    pub(crate) after: Option<Span>,

    /// Time without writes after which the latest revision of a page is sealed too; with `never`, it is not
    /// sealed. Overrides the configuration [default: 30d]. Refused on a cluster
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<Idle>,

    /// Take the clock of this machine for right, even if no process of the store has seen the time pass. A policy that
    /// drops renders otherwise counts only time that a server or a command has seen pass
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// Take the clock of this machine for right, even if no process of the cluster has seen the time pass, so that
    /// blocks that no page references are deleted
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

/// Checks the author or the reason of an erasure, which is shown in one line of a list.
fn parse_one_line(text: &str) -> Result<String, String> {
    const MAX_CHARACTERS: usize = 1000;
    if text.trim().is_empty() {
        return Err("it is empty: omit the flag".to_owned());
    }
    // Some characters break a line or reverse the direction of the text, but are not control characters.
    let hides = |c| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.chars().any(|c| c.is_control() || hides(c)) {
        return Err("it is shown in one line: write it without line breaks and control characters".to_owned());
    }
    if text.chars().count() > MAX_CHARACTERS {
        return Err(format!("it has more than {MAX_CHARACTERS} characters: shorten it"));
    }
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct EraseArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Take the clock of this machine for right, even if no process of the cluster has seen the time pass, so that old
    /// blocks with the content are deleted
    #[arg(long)]
    pub(crate) trust_clock: bool,

    /// Domain of the page; with --status, list only the erasures in this domain [default with --status: all]
    #[arg(long, value_name = "NAME", required_unless_present = "status")]
    pub(crate) domain: Option<DomainName>,

    /// Bucket of the page: `page`, or a bucket of the type `revisioned` [default: page; with --status, all buckets]
    #[arg(long, value_name = "NAME")]
    pub(crate) bucket: Option<BucketName>,

    /// Title of the page
    #[arg(long, value_name = "TITLE", required_unless_present = "status")]
    pub(crate) title: Option<Title>,

    /// Number of the revision; may be given several times
    #[arg(long, value_name = "REV", required_unless_present = "status")]
    pub(crate) rev: Vec<Revision>,

    /// Name of the person who erases the revision, shown by --status, over HTTP, and in exports as JSON lines
    #[arg(long, value_name = "NAME", value_parser = parse_one_line)]
    pub(crate) by: Option<String>,

    /// Reason, shown by --status and in exports as JSON lines
    #[arg(long, value_name = "TEXT", value_parser = parse_one_line)]
    pub(crate) reason: Option<String>,

    /// Also erase the name and the number of the user in the record of the revision
    #[arg(long)]
    pub(crate) user: bool,

    /// Also erase the comment in the record of the revision
    #[arg(long)]
    pub(crate) comment: bool,

    /// If the block of the revision is damaged, also delete the other revisions in it that cannot be read,
    /// and report them. Use this only if neither a replica nor a backup has the block
    #[arg(long)]
    pub(crate) give_up_damaged: bool,

    /// List the erasures. On a cluster, each finished erasure is listed with a time: a full compaction after
    /// this time removes the content from the files of the nodes, and an earlier compaction may remove it
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

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
