//! `million`: a wiki of many short pages, beside a small wiki of the same pages, and beside a table of SQLite.

mod commands;
mod requests;
mod table;
mod wiki;

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rashomon_clock::Clock;

use super::{
    report::Report,
    service::{self, DOMAIN},
};
use commands::Commands;
use requests::Requests;
use table::{EXPORT, Table};
use wiki::{Shape, Wiki};

/// The number of pages of the small wiki.
const SMALL: u32 = 1_000;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of pages.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pages: u32,
    /// Revisions of each page.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    revisions: u32,
    /// Bytes of the text of each revision.
    #[arg(long, default_value_t = 245, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    bytes: usize,
    /// Make a mix of pages: 70 % with one revision, 29 % with `--revisions`, and 1 % with as many of 50 KB.
    #[arg(long)]
    mix: bool,
    /// Seed of the wiki and of the random requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests of each measurement, at most as many as the wiki has revisions.
    #[arg(long, default_value_t = 20_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    requests: usize,
    /// Seconds after which a measurement is cut off, except the first import.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Vec<Report>> {
    let shape = |pages| Shape {
        pages,
        revisions: options.revisions,
        bytes: options.bytes,
        mix: options.mix,
        seed: options.seed,
    };
    let mut reports = Vec::new();
    if options.pages > SMALL {
        reports.push(measure(&Wiki::new(shape(SMALL)), options, binary, runs, clock)?);
    }
    let wiki = Wiki::new(shape(options.pages));
    reports.push(measure(&wiki, options, binary, runs, clock)?);
    reports.push(measure_table(&wiki, options, runs, clock)?);
    Ok(reports)
}

fn name(wiki: &Wiki) -> String {
    format!("{} pages", wiki.pages())
}

/// The number of requests of a measurement.
fn requests(wiki: &Wiki, options: &Options) -> usize {
    options.requests.min(usize::try_from(wiki.revisions()).unwrap_or(usize::MAX))
}

fn measure(wiki: &Wiki, options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let (count, limit) = (requests(wiki, options), Duration::from_secs(options.limit));
    let mut report = Report::new(
        name(wiki),
        format!(
            "{} revisions of {} bytes{} in shuffled order, imported with `rashomon import`. Each kind of request goes to \
             a server that was just started, {count} requests in random order. Redirects, from a number or a time to \
             the render, are not followed. Requests are measured in {runs} turns, \
             commands once, from start to end. A measurement is cut off after {} s",
            wiki.revisions(),
            options.bytes,
            if options.mix { ", mixed with long ones," } else { "" },
            options.limit,
        ),
    );
    eprintln!("{}", name(wiki));
    let folder = service::data_folder()?;
    let commands = Commands { binary, folder: folder.path(), clock, limit };
    let store = commands.store("store");
    commands.import(&mut report, wiki, &store)?;
    add_sizes(&mut report, wiki, &commands, &store)?;
    whole_walks(&mut report, wiki, &commands, &store)?;

    let mut requests = Requests {
        binary,
        store: &store,
        wiki,
        clock,
        limit,
        count,
        seed: options.seed,
        rng: Rng::with_seed(options.seed),
        next_revision: wiki.revisions() + 1,
    };
    for turn in 0..runs {
        eprintln!("turn {}", turn + 1);
        requests.reads(&mut report)?;
    }
    requests.memory(&mut report)?;
    for turn in 0..runs {
        requests.writes(&mut report, turn, runs)?;
    }

    let pages = (u64::from(wiki.pages()), "pages");
    for verb in ["archive seal", "archive merge"] {
        commands.measure(&mut report, verb, pages, commands.line(verb, &store), None)?;
    }
    report.add("blocks, after a seal and a merge", "MB", block_bytes(&commands, &store)? / 1e6);
    Ok(report)
}

/// The commands that go through a whole store.
fn whole_walks(report: &mut Report, wiki: &Wiki, commands: &Commands<'_>, store: &Path) -> Result<()> {
    let (revisions, pages) = ((wiki.revisions(), "revisions"), (u64::from(wiki.pages()), "pages"));
    for verb in ["stats", "verify", "archive verify"] {
        commands.measure(report, verb, revisions, commands.line(verb, store), None)?;
    }
    commands.export(report, EXPORT, revisions, "--history --format jsonl", store)?;
    commands.export(report, "export --history, XML", revisions, "--history", store)?;
    commands.export(report, "export, the latest of each page", pages, "", store)?;
    let mut backup = commands.line("backup", store);
    backup.arg("--to").arg(commands.store("backup"));
    commands.measure(report, "backup", pages, backup, None)?;
    let again = commands.line(&format!("import --domain {DOMAIN} -"), store);
    commands.measure(report, "import again", revisions, again, Some(wiki))?;

    let server = service::serve(commands.binary, &commands.store("through-a-server"))?;
    let mut through = Command::new(commands.binary);
    through.args(["import", "--domain", DOMAIN, "--to", &format!("http://{}", server.address()), "-"]);
    commands.measure(report, "import through a server", revisions, through, Some(wiki))?;
    // The server may still move revisions into blocks, and nothing of its store is needed.
    server.kill()
}

/// The sizes of a new store.
fn add_sizes(report: &mut Report, wiki: &Wiki, commands: &Commands<'_>, store: &Path) -> Result<()> {
    let (all, blocks) = (service::size(store)? as f64, block_bytes(commands, store)?);
    report.add("store", "MB", all / 1e6);
    report.add("blocks, after the import", "MB", blocks / 1e6);
    report.add("the store beside its blocks, bytes a page", "", (all - blocks) / f64::from(wiki.pages()));
    Ok(())
}

/// The size of all blocks, by the commands' own measure.
fn block_bytes(commands: &Commands<'_>, store: &Path) -> Result<f64> {
    let output = service::finish(&mut commands.line("archive stats --json", store))?;
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    stats[DOMAIN]["page"]["block_bytes"].as_f64().context("`archive stats` has no size of the blocks")
}

/// Measures a plain table of the same wiki.
fn measure_table(wiki: &Wiki, options: &Options, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let (count, limit) = (requests(wiki, options), Duration::from_secs(options.limit));
    let mut report = Report::new(
        "table of SQLite",
        format!(
            "the same {} in a table without compression, used by this program: a commit for each new \
             revision, and one scan each for `stats` and for an export",
            name(wiki),
        ),
    );
    eprintln!("a table of SQLite");
    let folder = service::data_folder()?;
    let table = Table::fill(&folder.path().join("table.sqlite"), wiki, clock, limit, &mut report)?;
    table.walks(&mut report)?;
    let mut rng = Rng::with_seed(options.seed);
    for _ in 0..runs {
        table.reads(count, &mut rng, &mut report)?;
    }
    table.writes(count, &mut rng, &mut report)?;
    Ok(report)
}
