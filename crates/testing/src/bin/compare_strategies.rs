//! The program behind `cargo xtask compare-strategies`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

use std::{
    fs::{self, OpenOptions},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Isolated, Memory, TableStore};
use rashomon_tables_cassandra::{CassandraStore, Credentials, Options as ClusterOptions, Replication};
use rashomon_tables_sqlite::{Options, SqliteStore};
use rashomon_testing::{
    comparison::{CONTESTANTS, History, Report, draw, replay, tables, timelines},
    stores,
};

/// Repeat every edit of an export on separate tables for each strategy of retention. A simulated clock follows the
/// times of the edits, retention runs between the edits, and some superseded revisions are read before they expire.
/// Print counts of reads, writes, deletes and bytes beside the estimates of the design notes (see docs/comparison.md).
#[derive(Debug, Parser)]
#[command(name = "cargo xtask compare-strategies", bin_name = "cargo xtask compare-strategies")]
struct Arguments {
    /// Export with history to replay, in a format that `rashomon import` reads.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Store for the tables: memory:, sqlite:DIRECTORY (a new one), or cassandra://[USER:PASSWORD@]HOST[:PORT]/KEYSPACE
    /// (a keyspace for this purpose alone; its tables stay).
    #[arg(long, value_name = "URL", default_value = "memory:")]
    backend: String,
    /// Replay only the first N pages.
    #[arg(long, value_name = "N")]
    pages: Option<NonZeroUsize>,
    /// Also estimate how many entries the index of superseded revisions (the timeline) would have for each of the four
    /// wikis in the design notes. The smallest has 1.3 edits a day, and the largest 186,497.
    #[arg(long)]
    timelines: bool,
    /// Write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results to this file as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Where the tables of each strategy are.
enum Backend {
    Memory,
    /// A new directory, in which each strategy has a store.
    Sqlite(PathBuf),
    /// A keyspace, in which each strategy has a namespace: the keyspace may have the tables of an earlier run.
    Cluster(Box<ClusterOptions>),
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(arguments: &Arguments) -> Result<()> {
    let files = [&arguments.json, &arguments.svg];
    files.into_iter().flatten().try_for_each(|path| check_writable(path))?;
    let backend = parse_backend(&arguments.backend)?;
    let history = History::read(&arguments.input, arguments.pages.map(usize::from)).await?;
    let mut report = Report {
        backend: arguments.backend.split(':').next().unwrap_or_default().to_owned(),
        pages: history.pages(),
        edits: history.edits(),
        bytes: history.bytes(),
        strategies: Vec::new(),
        timelines: Vec::new(),
    };
    for (number, contestant) in CONTESTANTS.into_iter().enumerate() {
        eprintln!("replaying {}", contestant.name);
        let clock = Arc::new(ManualClock::new(history.begins()));
        let tables = open(&backend, number, Arc::clone(&clock) as Arc<dyn Clock>).await?;
        report.strategies.push(replay(contestant, &history, clock, tables).await?);
    }
    if arguments.timelines {
        report.timelines = timelines(&history, &mut |wiki| eprintln!("simulating {wiki}"));
    }
    print!("{}", tables(&report));
    if let Some(path) = &arguments.json {
        write(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &draw(&report))?;
    }
    Ok(())
}

/// Parses a URL. Checks that the directories of SQLite stores do not exist, and makes the directory of all of them.
fn parse_backend(url: &str) -> Result<Backend> {
    if url == "memory:" {
        return Ok(Backend::Memory);
    }
    if let Some(directory) = url.strip_prefix("sqlite:").map(Path::new) {
        if (0..CONTESTANTS.len()).any(|number| directory.join(number.to_string()).exists()) {
            bail!("{} already exists: name a directory that does not exist", directory.display());
        }
        let error = || format!("cannot create {}", directory.display());
        fs::create_dir_all(directory).with_context(error)?;
        return Ok(Backend::Sqlite(directory.to_owned()));
    }
    let cluster = url.strip_prefix("cassandra://").and_then(|rest| rest.split_once('/'));
    let Some((address, keyspace)) = cluster.filter(|(_, keyspace)| !keyspace.is_empty()) else {
        bail!("{url} is no store: give memory:, sqlite:DIRECTORY or cassandra://HOST/KEYSPACE");
    };
    let (user, host) = address.rsplit_once('@').map_or((None, address), |(user, host)| (Some(user), host));
    let credentials = user.map(|user| {
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        Credentials { user: user.to_owned(), password: password.to_owned() }
    });
    Ok(Backend::Cluster(Box::new(ClusterOptions {
        contact_points: vec![if host.contains(':') { host.to_owned() } else { format!("{host}:9042") }],
        keyspace: keyspace.to_owned(),
        replication: Replication::Simple(1),
        credentials,
        ..ClusterOptions::default()
    })))
}

/// Opens the tables of one strategy.
async fn open(backend: &Backend, number: usize, clock: Arc<dyn Clock>) -> Result<Arc<dyn TableStore>> {
    Ok(match backend {
        Backend::Memory => Arc::new(Memory::new(clock)),
        Backend::Sqlite(directory) => {
            let own = directory.join(number.to_string());
            Arc::new(SqliteStore::open(&own, clock, Options::default())?)
        }
        Backend::Cluster(options) => {
            let store = CassandraStore::connect(ClusterOptions::clone(options), clock).await?;
            Arc::new(Isolated::new(store, stores::namespace()))
        }
    })
}

/// Checks that a file can be written, since the measurement may take hours. Does not change the file.
fn check_writable(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) }).with_context(|| {
        format!(
            "cannot write {}: name a file in an existing directory in which you may write",
            path.display()
        )
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
