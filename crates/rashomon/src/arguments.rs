//! The command line. The doc comments of commands and flags in this file are the help texts.

mod archive;
mod backup;
mod bucket;
mod cassandra;
mod import_export;
mod retention;
mod rewrite;
mod token;
mod upgrade;
mod vacuum;

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf};

use crate::configuration::{Access, Listen, RawSettings, StoreUrl};
use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use rashomon_pages::{Shown, excerpt, visible};

pub(crate) use self::archive::{
    ArchiveCommand, ArchiveStatsArguments, ArchiveVerifyArguments, EraseArguments, MergeArguments,
    SealArguments,
};
pub(crate) use self::backup::{BackupArguments, RestoreArguments};
pub(crate) use self::bucket::*;
pub(crate) use self::cassandra::{CassandraCommand, SchemaArguments};
pub(crate) use self::import_export::{ExportArguments, ExportFormat, ImportArguments};
pub(crate) use self::retention::RetentionArguments;
pub(crate) use self::rewrite::RewriteArguments;
pub(crate) use self::token::*;
pub(crate) use self::upgrade::UpgradeArguments;
pub(crate) use self::vacuum::VacuumArguments;
use crate::{exit, output};

/// Stores every revision and every render of a wiki, and serves them over HTTP
#[derive(Debug, Parser)]
#[command(name = "rashomon", version, arg_required_else_help = true, after_help = exit::TABLE, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a store over HTTP
    ///
    /// When the server listens, the command prints one line on standard output. Logs go to standard error.
    /// After SIGTERM or Ctrl-C, the server accepts no more connections. It waits up to `shutdown_grace` for
    /// running requests, and then up to the same time again for writes. Then it closes the store and exits with 0.
    /// A second signal ends the server at once.
    #[command(after_help = "Example:\n  rashomon serve --data /var/lib/rashomon --listen 127.0.0.1:7231")]
    Serve(ServeArguments),

    /// Import page histories from MediaWiki XML or JSON lines
    ///
    /// Reads MediaWiki XML exports, versions 0.3 to 0.11, and the JSON lines that `export` writes. Files may be plain,
    /// .gz, .bz2, .xz, .lzma, .zst or .7z; the content decides, not the name. Importing a file again changes nothing.
    /// If a file is damaged or truncated, every complete revision before the damage is stored.
    ///
    /// If the archive of a SQLite store is on, the pages that the store does not have are written as compressed blocks
    /// of the archive. Revisions of pages that the store has are written into its tables, and are sealed later. With
    /// --to, and on a cluster without --archive, all revisions are written into the tables. A new SQLite store has an
    /// archive, unless the configuration has `archive = false`, or `[retention]` without `[archive]`.
    ///
    /// A revision that is already stored with different content is a conflict: the stored revision stays. A revision is
    /// left out if its number, title, time or parent is not valid, if its time is in the future (by more than the
    /// setting `skew`, 5 minutes by default), if a property is larger than its `max_size`, or if it was erased in this
    /// store. In JSON lines, a revision with headers that are not valid in HTTP is left out too. A text that does not
    /// match its sha1 in the file is stored anyway. All of these cases are counted, and the first 20 of each kind are
    /// named. In XML, a text above 64 MiB (or above the `max_size` of `wikitext`, if that is larger) ends the import.
    ///
    /// Progress goes to standard error, and the counts go to standard output at the end.
    #[command(after_help = "\
Exit codes:
  0  every revision is stored as it was in the files
  1  an error ended the import; the complete revisions before it are stored
  2  the command line is wrong, or a file cannot be read; nothing was done
  3  the import finished with conflicts or left revisions out; standard error names the
     first 20 of each kind
  130, 143  interrupted; import the files again to continue

Examples:
  rashomon import --domain enwiki enwiki-pages-meta-history.xml.bz2
  zstdcat dump.xml.zst | rashomon import --domain enwiki -
  rashomon import --to http://127.0.0.1:7231 --domain enwiki dump.xml.7z")]
    Import(ImportArguments),

    /// Export a bucket of a domain (by default its pages) as MediaWiki XML 0.11 or JSON lines
    ///
    /// An export has one bucket, and only the latest revision of each page, unless --history is given. Without
    /// --format, the extension of --output sets the format: .xml or .jsonl. A further extension, .gz, .bz2 or .zst,
    /// compresses the file. The file appears under its name only when it is complete. XML holds wikitext and metadata,
    /// but no properties of renders, such as html. A revision that XML cannot hold, such as one without wikitext or
    /// with control characters, is left out of XML and counted. The first 20 of these are named. JSON lines hold all
    /// data of the exported revisions, with their renders.
    #[command(after_help = "\
Exit codes:
  0  the bucket was exported, or the pages of --title (XML has no properties of renders)
  1  an error ended the export, or the domain, the bucket or all pages of --title do not exist;
     the file of --output was not written (an older file of this name is unchanged)
  2  the command line is wrong, or the store or the directory of --output does not exist;
     nothing was done
  3  the export finished, but a page of --title does not exist, rows are damaged, revisions
     were left out, retention or the policy of the archive has removed bodies, or values in
     the XML violate its schema; standard error names at least the first 20 of each kind
  130, 143  interrupted; the file of --output was not written

Examples:
  rashomon export --domain enwiki --history --output enwiki.xml.zst
  rashomon export --domain enwiki --title Main_Page --format jsonl | head")]
    Export(ExportArguments),

    /// Copy a whole store into another store, such as from SQLite into Cassandra
    ///
    /// Copies the rows of all tables with their write times and expiry times. Only rows that are always written by
    /// compare-and-set, such as page leases, get new write times. Damaged rows are not copied, and the first 100 are
    /// named. Nothing else may use either store during the migration. A target with other data is refused.
    ///
    /// To continue after an interruption, run the same command again. As long as no server has used the target, a
    /// completed migration may be run again: all rows are copied again, so new rows of the source are added. Rows that
    /// were deleted in the source stay in the target. The command fails if a row that is always written by
    /// compare-and-set (such as an entry or a counter of a key-value bucket) differs between the stores.
    ///
    /// Progress goes to standard error. The counts, and the digests of --verify, go to standard output.
    #[command(after_help = "\
Exit codes:
  0  everything was copied; with --verify, both stores have the same rows
  1  an error ended the migration (run the command again to continue), rows of the source are
     damaged, or the stores differ (standard output names the first difference of each table)
  2  the command line is wrong, there is no source, or the target holds other data; nothing
     was copied
  130, 143  interrupted; run the command again to continue

Examples:
  rashomon migrate --from sqlite:/var/lib/rashomon --to cassandra://10.0.0.1/rashomon --verify")]
    Migrate(MigrateArguments),

    /// Check all bodies, indexes and blocks; with SQLite, also the checksum of each row, and the file itself
    ///
    /// With SQLite, no server may have the store open. On a cluster, no server may write during the check: a write in
    /// progress looks like damage.
    #[command(after_help = "\
Exit codes:
  0  the store is sound
  1  the store is damaged (standard output names each problem), or it cannot be opened
     (standard error says why)
  2  the command line is wrong, or there is no store
  130, 143  interrupted")]
    Verify(VerifyArguments),

    /// Show what a store holds, by domain
    Stats(StatsArguments),

    /// Give free space in the file of a SQLite store back to the file system
    ///
    /// Deleted and sealed content leaves free pages in the file, which later writes use. A running server
    /// gives free pages back by itself, all but 16 MB of them (32 MB while writes arrive). This command gives all of
    /// them back. No server may have the store open. If the command is killed, no data is lost.
    ///
    /// Progress goes to standard error, and the sizes before and after go to standard output.
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, such as a full disk; nothing is lost, and the file system
     keeps the space that was given back before
  2  the command line is wrong, there is no SQLite store, or the store is a Cassandra cluster
  130, 143  interrupted; run the command again to continue

Examples:
  rashomon vacuum --data /var/lib/rashomon
  rashomon vacuum --full")]
    Vacuum(VacuumArguments),

    /// Show what retention would delete, or delete it now
    ///
    /// Refused if the store has an archive, even if the configuration turns the archive off: use `rashomon archive
    /// seal`. New SQLite stores have an archive by default.
    ///
    /// Deletes the bodies of superseded revisions and renders; their metadata stays. A server with the same
    /// configuration does this by itself. The policy comes from the configuration, and flags override it. If
    /// the configuration has no retention table, --dry-run assumes a grace of one day, and --now requires
    /// --grace. If the configuration sets the strategy `keep-everything`, for all domains or for one, --now
    /// deletes nothing there, whatever the flags are (see docs/retention.md).
    #[command(after_help = "\
Exit codes:
  0  done
  1  an error ended the command, or some values were not deleted, because of a clock jump or
     damaged rows; other values may have been deleted
  2  the command line is wrong, there is no store, the archive of the store is on, or --now
     was refused (see docs/retention.md)
  130, 143  interrupted

Examples:
  rashomon retention --dry-run --grace 30d --min-keep 10
  rashomon retention --now --config rashomon.toml")]
    Retention(RetentionArguments),

    /// Back up a SQLite store, also while a server uses it
    ///
    /// Adds a state to a folder. A state is the content of the store at one moment during the run. Every write that was
    /// acknowledged before the command began is part of the state. Only the pieces of the SQLite file (database pages)
    /// that have changed since the newest state in the folder are written. These pages are read again and compared
    /// before the state is added. To continue after an interruption, run the same command again. For a Cassandra
    /// cluster see docs/cassandra-backup.md.
    ///
    /// Progress goes to standard error. The counts go to standard output at the end.
    #[command(after_help = "\
Exit codes:
  0  a state was added
  1  an error ended the backup; run the command again to continue. Existing states are not
     changed, but --keep may have deleted older ones
  2  the command line is wrong, there is no store, or the folder is in use, has other files, or
     has a backup of a store in another directory (see --moved); nothing was done
  130, 143  interrupted; run the command again to continue

Examples:
  rashomon backup --data /var/lib/rashomon --to /mnt/backup/wiki
  rashomon backup --to /mnt/backup/wiki --rate 50MB --keep 30")]
    Backup(BackupArguments),

    /// Make a SQLite store from a backup
    ///
    /// Restores the newest state of the folder, or the state that --state names. Every database page is
    /// compared with its hash. To continue after an interruption, run the same command again; the store cannot
    /// be opened before it is complete.
    #[command(after_help = "\
Exit codes:
  0  the store is complete, or the states were listed
  1  an error ended the restore; run the command again to continue, or, if the backup is
     damaged, restore another state
  2  the command line is wrong, there is no such state, or the directory is not empty; nothing
     was done
  130, 143  interrupted; run the command again to continue

Examples:
  rashomon restore --from /mnt/backup/wiki --list
  rashomon restore --from /mnt/backup/wiki --data /var/lib/rashomon --state 12")]
    Restore(RestoreArguments),

    /// Convert a store that an earlier version of Rashomon wrote
    ///
    /// Each version of Rashomon opens only stores of its own format. This command writes a SQLite store of an earlier
    /// format into a new file beside the old one, compares both files row by row, and then replaces the old file. No
    /// server may have the store open. The new file needs about as much free disk space as the old file uses; this is
    /// checked first. If the command is interrupted or killed, the SQLite store is unchanged or completely converted.
    /// For a Cassandra cluster, the command adds columns that tables lack; servers may keep running (see
    /// docs/upgrade.md).
    ///
    /// Progress goes to standard error. The sizes before and after go to standard output.
    #[command(after_help = "\
Exit codes:
  0  the store has the format of this version; a store that already had this format is unchanged
  1  an error ended the command, such as a full disk or a server that has the store open; a
     SQLite store is unchanged or completely converted; remove the cause, and run it again
  2  the command line is wrong, or there is no store; nothing was done
  3  the store has the format of this version, and has damaged rows, as it had before;
     standard error names the first 100
  130, 143  interrupted; a SQLite store is unchanged; run the command again

Examples:
  rashomon upgrade --data /var/lib/rashomon
  rashomon upgrade --store cassandra://10.0.0.1/wiki")]
    Upgrade(UpgradeArguments),

    /// Convert stored values of a property, such as html, to the current version of their format, in place
    ///
    /// The content type of a value may name the version of its format (its spec), in the parameter `profile`. Sends
    /// each value of the property whose version is earlier than the current one to a transformer, an external service
    /// that converts between versions. Replaces the value by the answer, as `PUT ?rev/{tid}/html` does: the render
    /// keeps its tid, and the value gets a new ETag. A value is replaced only if it has not changed since it was read.
    /// Values without an earlier version are left alone, and so are blocks of the archive, unless --archived is given.
    /// The command may be interrupted or killed at any point, and run again. With SQLite, no server may have the store
    /// open (see docs/rewrite.md).
    #[command(after_help = "\
Exit codes:
  0  all values have the current version, except those that are left alone
  1  an error ended the command, such as 20 failures in succession; run it again to continue
  2  the command line or the configuration is wrong, or there is no store; nothing was done
  3  some values were not rewritten; standard error names the first 20 failures, and standard
     output has the counts; run the command again
  130, 143  interrupted; run the command again to continue

Examples:
  rashomon rewrite --property html --with http://10.0.0.4:8000/html --to-version https://www.mediawiki.org/wiki/Specs/HTML/2.8.0
  rashomon rewrite --property html --with http://10.0.0.4:8000/html --config rashomon.toml --rate 50 --archived")]
    Rewrite(RewriteArguments),

    /// Manage the archive: superseded revisions and idle pages in compression blocks
    #[command(subcommand)]
    Archive(ArchiveCommand),

    /// List, create and delete buckets, and read and write the entries of key-value buckets
    #[command(subcommand)]
    Bucket(BucketCommand),

    /// Make, list and revoke the tokens of clients
    #[command(subcommand)]
    Token(TokenCommand),

    /// Check a configuration, and print the resulting settings
    ///
    /// Flags and environment variables count as they do for `serve`. Prints all resulting settings as a configuration
    /// file. If a setting is wrong, the command names the setting, and exits with 2.
    CheckConfig(CheckConfigArguments),

    /// Print the schema for a Cassandra cluster
    #[command(subcommand)]
    Cassandra(CassandraCommand),

    /// Serve a small sample wiki
    ///
    /// The wiki is loaded at each start: into memory, or into the store that --data or --store names. In a new
    /// SQLite store, it is loaded into archive blocks.
    Demo(DemoArguments),

    /// Print a shell completion script for this program
    #[command(
        after_help = "Example:\n  rashomon completions bash > ~/.local/share/bash-completion/completions/rashomon"
    )]
    Completions {
        /// Shell for which the script is printed
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Configuration file (TOML); flags and environment variables override it
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Directory of the store: short for --store sqlite:DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Open a SQLite store whose log (rashomon.sqlite-wal) is missing after a crash; the writes in the log are lost
    #[arg(long)]
    pub(crate) accept_lost_log: bool,

    #[command(flatten)]
    pub(crate) raw: RawSettings,
}

/// The store that a command uses, and the configuration file.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    /// Directory of the store: short for --store sqlite:DIR [default: ./rashomon-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// The store: sqlite:DIRECTORY, or `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// Configuration file (TOML) of the server that uses the store
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Open a SQLite store whose log (rashomon.sqlite-wal) is missing after a crash; the writes in the log are lost
    #[arg(long)]
    pub(crate) accept_lost_log: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// Store to copy: sqlite:DIRECTORY, or `cassandra://HOST[:PORT][,HOST...]/KEYSPACE`. The
    /// command does not change it, except that it creates missing tables in a SQLite store
    #[arg(long, value_name = "URL")]
    pub(crate) from: StoreUrl,

    /// Store to copy into: empty, or the target of an earlier run of this command
    #[arg(long, value_name = "URL")]
    pub(crate) to: StoreUrl,

    /// Read both stores again at the end, and compare them
    #[arg(long)]
    pub(crate) verify: bool,

    /// Configuration file (TOML) with the connection settings of a cluster
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Open a SQLite store whose log (rashomon.sqlite-wal) is missing after a crash; the writes in the log are lost
    #[arg(long)]
    pub(crate) accept_lost_log: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Repair the store before the check. This restores keys in which one bit is flipped, and indexes and
    /// other rows whose content follows from undamaged rows (see docs/operations.md)
    #[arg(long)]
    pub(crate) repair: bool,

    /// With --repair: print the repairs, and change nothing
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfigArguments {
    /// Configuration file; without one, only flags and environment variables are checked
    #[arg(env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Directory of the store: short for --store sqlite:DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) raw: RawSettings,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Keep the wiki in this directory instead of memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Store of the wiki: sqlite:DIRECTORY, memory:, or `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`
    /// [default: memory:]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// Address and port to listen on [default: 127.0.0.1, and the first free port from 7231 to 7250]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,

    /// Access rights; required to listen on an address other than loopback
    #[arg(long, value_enum)]
    pub(crate) access: Option<Access>,
}

/// Parses the command line and the environment variables.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let matches = (command.try_get_matches_from_mut(std::env::args_os()))
        .map_err(|error| name_variable(shorten_value(error), &command, std::env::args_os()))?;
    refuse_two_stores(&matches, &mut command)?;
    Arguments::from_arg_matches(&matches)
}

/// Prints the error of a command line, and ends the program. For clap, help and version are errors too: it chooses the
/// stream and the exit code.
pub(crate) fn print_and_exit(error: &clap::Error) -> ! {
    let shown = error.render();
    // An error quotes arguments as they are. Only sequences that set colours may reach a terminal: clap's own, mostly.
    if shown.ansi().to_string().lines().all(|line| visible(line, Shown::InColouredLine) == line) {
        error.exit();
    }
    // Without colours, clap also leaves out the escape sequences of arguments.
    output::to_stderr(shown.to_string().trim_end());
    std::process::exit(error.exit_code());
}

/// Refuses `--data` and `--store` together on the command line. `--data` overrides a store from the
/// environment or the file.
fn refuse_two_stores(matches: &ArgMatches, command: &mut clap::Command) -> Result<(), clap::Error> {
    let mut matches = matches;
    while let Some((_, of_subcommand)) = matches.subcommand() {
        matches = of_subcommand;
    }
    let given = |id: &str| {
        let known = matches.try_contains_id(id).is_ok();
        known && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    if given("data") && given("store") {
        let message = "--data DIR is short for --store sqlite:DIR: give only one of them";
        return Err(command.error(ErrorKind::ArgumentConflict, message));
    }
    Ok(())
}

/// Shortens the wrong value in an error message.
fn shorten_value(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = ContextValue::String(excerpt(value));
        error.insert(ContextKind::InvalidValue, value);
    }
    error
}

/// Adds the name of the environment variable with the wrong value to an error, unless a flag gave the value.
fn name_variable(
    mut error: clap::Error,
    command: &clap::Command,
    mut words: impl Iterator<Item = OsString>,
) -> clap::Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let flag = argument.split([' ', '[', '=']).next().unwrap_or_default().to_owned();
    if words.any(|word| word.to_string_lossy().split('=').next() == Some(&flag)) {
        return error;
    }
    let variable = (all_arguments(command).into_iter())
        .find(|known| known.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long)))
        .and_then(|known| known.get_env()?.to_str());
    if let Some(variable) = variable.filter(|variable| std::env::var_os(variable).is_some()) {
        let tip = format!("the value comes from the environment variable {variable}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the arguments of a command and of all its subcommands.
fn all_arguments(command: &clap::Command) -> Vec<&clap::Arg> {
    let of_subcommands = command.get_subcommands().flat_map(all_arguments);
    command.get_arguments().chain(of_subcommands).collect()
}

/// Returns the names of the environment variables that the commands read.
pub(crate) fn variables() -> BTreeSet<String> {
    let command = Arguments::command();
    (all_arguments(&command).into_iter())
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
        .chain([crate::remote::TOKEN_VARIABLE.to_owned()])
        .collect()
}

/// Returns the requested store. `--data` is the short form of `--store`.
pub(crate) fn store_of(data: Option<PathBuf>, store: Option<StoreUrl>) -> Option<StoreUrl> {
    data.map(StoreUrl::Sqlite).or(store)
}
