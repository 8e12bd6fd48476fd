//! The command line: what can be said, and what it means. The texts here are the manual.

mod archive;

use std::{collections::BTreeSet, ffi::OsString, num::NonZeroUsize, path::PathBuf};

use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use rashomon_buckets::{DomainName, Title, excerpt};

pub(crate) use self::archive::{
    ArchiveCommand, ArchiveStatsArguments, ArchiveVerifyArguments, EraseArguments, MergeArguments,
    SealArguments,
};
use crate::{
    commands::import::ServerUrl,
    config::{Access, GivenSettings, Listen, Replication, Span, StoreUrl},
    exit,
};

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
    /// Prints one line on standard output once it listens; logs go to standard error. SIGTERM and Ctrl-C make
    /// it finish what it accepted, close the store and end with 0; a second one ends it at once.
    #[command(after_help = "Example:\n  rashomon serve --data /var/lib/rashomon --listen 127.0.0.1:7231")]
    Serve(ServeArguments),

    /// Import whole histories: MediaWiki XML or JSON lines
    ///
    /// Takes MediaWiki's XML exports, versions 0.3 to 0.11, and the JSON lines that `export` writes; plain,
    /// .gz, .bz2, .xz, .lzma, .zst or .7z, told by their content. Importing again changes nothing. Of a file
    /// that is damaged or cut short, every whole revision before the damage is stored.
    ///
    /// A revision that stands with other content is in conflict, and left as it is. What can never be true is
    /// left out: a revision without a positive number, a title or a time, one that is made in the future (after
    /// the import begins, by more than the setting `skew`, 5 minutes), or that is its own parent; in JSON lines
    /// also what HTTP could not give back, such as a content type that is none. Both are counted and named, and
    /// the rest goes in. A text with another sha1 than its dump says goes in as it is; it is counted and named
    /// too.
    ///
    /// Progress goes to standard error, the counts to standard output at the end.
    #[command(
        after_help = "Exit codes:\n  0  every revision went in as it came, or stood so already\n  1  an error ended \
        the import; what came before it is stored\n  2  the command line is wrong, or names a file that cannot be \
        read; nothing was done\n  3  the import finished, but revisions are in conflict or were left out; the \
        first of\n     each kind are named on standard error, all are counted\n  130, 143  interrupted; what went \
        in stays, and importing again goes on\n\nExamples:\n  rashomon import --domain enwiki \
        enwiki-pages-meta-history.xml.bz2\n  zstdcat dump.xml.zst | rashomon import --domain enwiki \
        -\n  rashomon import --to http://127.0.0.1:7231 --domain enwiki dump.xml.7z"
    )]
    Import(ImportArguments),

    /// Export a domain as MediaWiki XML 0.11 or JSON lines
    ///
    /// The ending of --output says format and compression: .xml or .jsonl, then nothing, .gz, .bz2 or .zst. A
    /// file appears under its name only when it is whole. What XML cannot hold (control characters, revisions
    /// without wikitext) is named in a warning; JSON lines hold everything.
    #[command(
        after_help = "Exit codes:\n  0  everything was written\n  1  an error ended the export; no file was \
        left under the final name\n  2  the command line is wrong, or names a directory that is not there; \
        nothing was done\n  3  what the format can hold was written; pages that are not there, what was left \
        out, and\n     what the schema of XML exports does not allow are named on standard error\n  130, 143  \
        interrupted; no file was left under the final name\n\nExamples:\n  rashomon export --domain enwiki \
        --history --output enwiki.xml.zst\n  rashomon export --domain enwiki --title Main_Page --format jsonl | \
        head"
    )]
    Export(ExportArguments),

    /// Copy all that is stored into another store, such as from SQLite into Cassandra
    ///
    /// Takes every row of every table as it stands, with its times. Nobody may use either store meanwhile. A
    /// migration that was cut off goes on where it was when the same command is given again; one that came to
    /// its end is made again from the beginning, which adds what is new. A target that holds other data is
    /// refused.
    ///
    /// Progress goes to standard error, the counts and the digests of --verify to standard output.
    #[command(
        after_help = "Exit codes:\n  0  all is copied; with --verify, and both stores hold the same\n  1  an error \
        ended it, and the same command goes on from there; or the stores differ, and the\n     first difference of \
        each table is named on standard output\n  2  the command line is wrong, or the target holds other data; \
        nothing was copied\n  130, 143  interrupted; the same command goes on from there\n\nExamples:\n  rashomon \
        migrate --from sqlite:/var/lib/rashomon --to cassandra://10.0.0.1/rashomon --verify"
    )]
    Migrate(MigrateArguments),

    /// Check every stored byte against its checksum, and that all parts are there
    #[command(
        after_help = "Exit codes:\n  0  the store is sound\n  1  it is not, each problem is named on standard output; or \
        it cannot be opened,\n     which is told on standard error\n  2  the command line is wrong, or there is \
        no store"
    )]
    Verify(VerifyArguments),

    /// Show what a store holds, by domain
    Stats(StatsArguments),

    /// Say what retention would free, or have it freed now
    ///
    /// The policy is that of the configuration, with what the flags say above it. Where neither says anything, --dry-run
    /// looks what would go after a day, and --now is refused; so it is with flags above a configuration that keeps
    /// everything. What it frees are the bodies of what was superseded; what is known of the revisions stays. A
    /// server with the same configuration does the same by itself.
    #[command(
        after_help = "Exit codes:\n  0  it is done\n  1  an error ended it; what was freed is freed\n  2  the \
        command line is wrong, nobody has said what may go, or there is no store\n  130, 143  interrupted\n\nExamples:\n  rashomon retention \
        --dry-run --grace 30d --min-keep 10\n  rashomon retention --now --config rashomon.toml"
    )]
    Retention(RetentionArguments),

    /// What was superseded, in compression blocks
    #[command(subcommand)]
    Archive(ArchiveCommand),

    /// Measure the strategies of retention against one another, by replaying a real history
    ///
    /// Every edit of an export is made again on tables of its own for each strategy, by a clock that follows the
    /// edits, with the sweep beside it; some of what is superseded is read in its time. Counted are reads, writes
    /// and deletes of tables, and bytes; those that the notes count apart from the rest, and beside theirs.
    #[command(
        after_help = "Exit codes:\n  0  it is done\n  1  an error ended it\n  2  the command line is wrong, or the \
        directory of --backend is there already, or\n     a file cannot be written; nothing was measured\n  130, 143  interrupted\n\nExamples:\n  rashomon \
        compare-strategies --input wiki.xml.zst --backend memory:\n  rashomon compare-strategies --input \
        wiki.xml.zst --backend sqlite:/tmp/compared --svg compared.svg"
    )]
    CompareStrategies(CompareStrategiesArguments),

    /// Check a configuration, and print the settings that would be in effect
    ///
    /// Flags and environment count as they do for `serve`. What is printed is a configuration file that means
    /// the same. Ends with 2 where anything is wrong, and says where.
    CheckConfig(CheckConfigArguments),

    /// What is done at a cluster of Cassandra
    #[command(subcommand)]
    Cassandra(CassandraCommand),

    /// Serve a small sample wiki, to look around in
    ///
    /// The wiki is made anew and kept in memory, unless --data says where to keep it.
    Demo(DemoArguments),

    /// Print a script that completes this command line in a shell
    #[command(
        after_help = "Example:\n  rashomon completions bash > ~/.local/share/bash-completion/completions/rashomon"
    )]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// A configuration file (TOML); flags and environment stand above it
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where the revisions are kept: short for --store sqlite:DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Open a store whose log is missing after a crash, without the writes that were in the log
    #[arg(long)]
    pub(crate) accept_lost_log: bool,

    #[command(flatten)]
    pub(crate) given: GivenSettings,
}

/// Which store a command works on, and what the configuration says of its properties.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    /// Where the revisions are kept: short for --store sqlite:DIR [default: ./rashomon-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Where the revisions are kept: sqlite:DIRECTORY, or
    /// `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// The configuration file (TOML) that the store is served with: where it is, and what it allows
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Open a store whose log is missing after a crash, without the writes that were in the log
    #[arg(long)]
    pub(crate) accept_lost_log: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The domain that the revisions belong to, such as enwiki
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: DomainName,

    /// Send the files to this running server, instead of opening the store here
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "config", "jobs"])]
    pub(crate) to: Option<ServerUrl>,

    /// How many pages are stored side by side [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Put the revisions of new pages straight into blocks of the archive, all but each page's latest
    ///
    /// The small way to load a history that is mostly read: a few per cent of its bytes, in one pass. On a
    /// cluster the configuration must have [archive].
    #[arg(long, conflicts_with = "to")]
    pub(crate) archive: bool,

    /// The dumps, in any order; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The domain to export
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: DomainName,

    /// Only this page; may be given several times
    #[arg(long = "title", value_name = "TITLE")]
    pub(crate) titles: Vec<Title>,

    /// Every revision, instead of each page's latest
    #[arg(long)]
    pub(crate) history: bool,

    /// The format [default: by the ending of --output, else xml]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,

    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What an export is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// MediaWiki's XML, version 0.11: wikitext and what belongs to it
    Xml,
    /// An object a line: everything, with all renders
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct CompareStrategiesArguments {
    /// The export to replay, with its history, as `import` takes one
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// Where the tables are: memory:, sqlite:DIRECTORY (which is made), or cassandra://HOST/KEYSPACE (which
    /// stays full, so take one for this alone)
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub(crate) backend: StoreUrl,

    /// A configuration file (TOML) that says how a cluster is reached; what else it says does not count here
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Replay only the first pages
    #[arg(long, value_name = "N")]
    pub(crate) pages: Option<NonZeroUsize>,

    /// Simulate the index by time of wikis of other sizes, too, as the notes ask
    #[arg(long)]
    pub(crate) timelines: bool,

    /// Write what was measured into this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw a picture of it into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// The store to copy, as --store names one; it is only read
    #[arg(long, value_name = "URL")]
    pub(crate) from: StoreUrl,

    /// The store to copy into: empty, or one that this command has begun to fill
    #[arg(long, value_name = "URL")]
    pub(crate) to: StoreUrl,

    /// At the end, read both stores and compare what they hold
    #[arg(long)]
    pub(crate) verify: bool,

    /// A configuration file (TOML) that says how the stores are reached
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Open a store whose log is missing after a crash, without the writes that were in the log
    #[arg(long)]
    pub(crate) accept_lost_log: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Restore rows that follow from whole ones before checking: flipped bits of keys, entries of titles and domains,
    /// indexes of revisions by time and by tid, references to chunks. Prints each repair. Refused while pages of the file
    /// are in wrong places. No server may write meanwhile
    #[arg(long)]
    pub(crate) repair: bool,

    /// With --repair: print what would be restored, and change nothing
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["dry_run", "now"])))]
pub(crate) struct RetentionArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// Say what would be freed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Free it
    #[arg(long)]
    pub(crate) now: bool,

    /// Only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<DomainName>,

    /// How long what was superseded stays, instead of what the configuration says
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Span>,

    /// How many of a page's newest revisions stay whatever their age, instead of what the configuration says
    #[arg(long, value_name = "N")]
    pub(crate) min_keep: Option<std::num::NonZeroU32>,

    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfigArguments {
    /// The configuration file; none checks flags and environment alone
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Where the revisions are kept: short for --store sqlite:DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) given: GivenSettings,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CassandraCommand {
    /// Print the keyspace and its tables as CQL
    ///
    /// For review, and for whoever makes the tables where the service may not: `serve` makes what is missing,
    /// and needs no right to make anything where nothing is. Running it again does nothing.
    #[command(after_help = "Example:\n  rashomon cassandra schema --store cassandra://10.0.0.1/wiki \
        --replication east:3,west:3 | cqlsh 10.0.0.1")]
    Schema(SchemaArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// The cluster and the keyspace: `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`; nothing is
    /// asked there [default: the keyspace rashomon]
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// The configuration file (TOML) that the store is served with
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How many copies there are of everything, or how many in each data centre, as in east:3,west:2
    /// [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) replication: Option<Replication>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Keep the wiki in this directory, instead of memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Where to keep the wiki: sqlite:DIRECTORY, memory:, or
    /// `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]` [default: memory:]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// The address and port to listen on, instead of the first free port from 127.0.0.1:7231 on
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,

    /// Who may do what; must be said before it listens on an address that others can reach
    #[arg(long, value_enum)]
    pub(crate) access: Option<Access>,
}

/// Reads the command line and the variables of the environment.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let matches = (command.try_get_matches_from_mut(std::env::args_os()))
        .map_err(|error| name_variable(shorten_value(error), &command, std::env::args_os()))?;
    refuse_two_stores(&matches, &mut command)?;
    Arguments::from_arg_matches(&matches)
}

/// `--data` stands above a store that the environment names, but two flags that say different things are a
/// mistake.
fn refuse_two_stores(matches: &ArgMatches, command: &mut clap::Command) -> Result<(), clap::Error> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let given = |id: &str| {
        let known = matches.try_contains_id(id).is_ok();
        known && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    if given("data") && given("store") {
        let message = "--data DIR is short for --store sqlite:DIR: give one of them";
        return Err(command.error(ErrorKind::ArgumentConflict, message));
    }
    Ok(())
}

/// Shortens the wrong value that an error repeats.
fn shorten_value(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = ContextValue::String(excerpt(value));
        error.insert(ContextKind::InvalidValue, value);
    }
    error
}

/// Names the variable that a wrong value came from, where no flag gave it.
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
    let variable = (command.get_subcommands().flat_map(clap::Command::get_arguments))
        .find(|known| known.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long)))
        .and_then(|known| known.get_env()?.to_str());
    if let Some(variable) = variable.filter(|variable| std::env::var_os(variable).is_some()) {
        let tip = format!("the value comes from the variable {variable} of the environment");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The variables of the environment that are settings.
pub(crate) fn variables() -> BTreeSet<String> {
    let command = Arguments::command();
    (command.get_subcommands().flat_map(clap::Command::get_arguments))
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
        .collect()
}

/// The store that was asked for; `--data` is the short form of `--store`.
pub(crate) fn store_of(data: Option<PathBuf>, store: Option<StoreUrl>) -> Option<StoreUrl> {
    data.map(StoreUrl::Sqlite).or(store)
}
