//! `archive`: imports complete histories directly into an archive, and reads them back, with the commands and the
//! server that users run. Also measures writers beside a seal, in this process.

mod beside;
mod input;
mod reads;

use std::{
    fs,
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use wait4::Wait4;

use super::{
    blocks::{self, sets::Set},
    memory,
    report::Report,
    service,
};
use input::Input;

/// The histories to measure, and how to read them.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure these sets: `ovirt-wiki`, `documents`, `renders`; or `sealing`, which measures writers beside a
    /// seal [default: all].
    #[arg(value_parser = ["ovirt-wiki", "documents", "renders", "sealing"])]
    sets: Vec<String>,
    /// Number of random reads of renders in each measurement.
    #[arg(long, default_value_t = 1000)]
    reads: usize,
    /// Measure only the archive, and do not pack its texts in other formats.
    #[arg(long)]
    alone: bool,
}

const SETS: [&str; 3] = ["ovirt-wiki", "documents", "renders"];

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "archive",
        format!(
            "Whole histories are imported into a new store with `rashomon import --archive`. Sizes are those of all \
             files of the store, and of the archive's tables as `archive stats` counts them, in per cent of all \
             texts. Random reads: {} renders in blocks are read by their tids over HTTP, one after the other on one \
             connection, and compared with the input: with unpacked blocks in memory (warm); the first {} after a \
             start; and without memory for unpacked blocks, so that each read unpacks its block. Current reads: as \
             many current renders, from a store whose latest revisions are in rows, without answers in memory. Idle \
             pages: the latest of each page, whose revisions are all in blocks, without memory for unpacked blocks, \
             and then an edit of each page. Blocks opened per read: the blocks that the server reads from the store \
             for each of {} random revisions, by number, by time (the redirect is not followed) and by tid. \
             Histories: `rashomon export --history` as JSON lines, of the page with the most text and of all pages; \
             and the set's own file, unpacked with zstd in this process. {}",
            options.reads,
            reads::AFTER_START,
            reads::COUNTED_REVISIONS,
            beside::how(),
        ),
    );
    for name in SETS {
        if !options.sets.is_empty() && !options.sets.iter().any(|set| set == name) {
            continue;
        }
        let set = Set::load(name)?;
        let folder = service::data_folder()?;
        let input = Input::of(&set, folder.path())?;
        for run in 0..runs {
            eprintln!("{name}: run {}", run + 1);
            measure(options, binary, &input, &set, run, clock, &mut report)?;
        }
        if !options.alone {
            blocks::pack_in_other_formats(&set, &mut report)?;
        }
    }
    if options.sets.is_empty() || options.sets.iter().any(|set| set == "sealing") {
        for run in 0..runs {
            eprintln!("sealing: run {}", run + 1);
            beside::measure(&mut |what, unit, value| report.add(&format!("sealing: {what}"), unit, value))?;
        }
    }
    Ok(report)
}

fn measure(
    options: &Options,
    binary: &Path,
    input: &Input,
    set: &Set,
    run: usize,
    clock: &dyn Clock,
    report: &mut Report,
) -> Result<()> {
    let folder = service::data_folder()?;
    let store = folder.path().join("store");
    let raw = set.raw() as f64;
    let mut add = |what: &str, unit, value: f64| report.add(&format!("{}: {what}", set.name), unit, value);

    let mut import = Command::new(binary);
    import.args(["import", "--archive", "--domain", service::DOMAIN, "--data"]).arg(&store).arg(&input.file);
    let imported = run_measured(import, clock)?;
    add("import --archive, texts", "MB/s", raw / 1e6 / imported.seconds);
    add("import --archive", "revisions a second", input.revisions as f64 / imported.seconds);
    add("import --archive, texts a processor second", "MB/s", raw / 1e6 / imported.processor);
    add("import --archive, peak memory without files", "MiB", imported.peak_mib);
    add("the whole store", "% of all texts", service::size(&store)? as f64 * 100.0 / raw);
    let stats = stats(binary, &store)?;
    let of =
        |field: &str| stats[field].as_u64().map(|number| number as f64).context("the stats lack a field");
    add("the archive's tables", "% of all texts", (of("block_bytes")? + of("index_bytes")?) * 100.0 / raw);
    add(
        "the archive's tables, of the texts in them",
        "%",
        (of("block_bytes")? + of("index_bytes")?) * 100.0 / of("raw_bytes")?,
    );
    add("blocks", "", of("blocks")?);

    // For reads of the latest revision as a row, another store has the latest revisions in its tables.
    let (in_rows, settings) = (folder.path().join("latest-in-rows"), folder.path().join("never.toml"));
    fs::write(&settings, "[archive]\nidle = \"never\"\n")?;
    let mut import = Command::new(binary);
    import.args(["import", "--archive", "--domain", service::DOMAIN, "--config"]).arg(&settings);
    import.arg("--data").arg(&in_rows).arg(&input.file);
    run_measured(import, clock)?;
    add(
        "the whole store, latest revisions in rows",
        "% of all texts",
        service::size(&in_rows)? as f64 * 100.0 / raw,
    );

    let stores = reads::Stores { sealed_whole: &store, latest_in_rows: &in_rows };
    reads::measure(options.reads, binary, stores, set, run as u64, clock, &mut add)?;

    let page = set.pages.iter().max_by_key(|page| page.raw()).context("the set has no pages")?;
    for (what, title, raw) in
        [("history of one page", Some(&page.title), page.raw() as f64), ("all histories", None, raw)]
    {
        let mut export = Command::new(binary);
        export
            .args(["export", "--history", "--format", "jsonl", "--domain", service::DOMAIN, "--data"])
            .arg(&store);
        if let Some(title) = title {
            export.args(["--title", title]);
        }
        let exported = run_measured(export, clock)?;
        add(&format!("{what}, texts"), "MB/s", raw / 1e6 / exported.seconds);
        add(&format!("{what}, peak memory without files"), "MiB", exported.peak_mib);
    }
    let (bytes, seconds) = blocks::unpack_files(set.name, clock)?;
    add("zstd of the set's file, unpacked", "MB/s", bytes as f64 / 1e6 / seconds);
    Ok(())
}

/// The time and the memory that a command used.
struct Resources {
    seconds: f64,
    processor: f64,
    peak_mib: f64,
}

/// Runs a command to its end, and discards its output.
fn run_measured(mut command: Command, clock: &dyn Clock) -> Result<Resources> {
    let started = clock.monotonic();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start the program")?;
    let watcher = memory::watch(child.id());
    let ended = child.wait4()?;
    let status: ExitStatus = ended.status;
    let own = watcher.join().expect("the watcher does not panic");
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(Resources {
        seconds: (clock.monotonic() - started).as_secs_f64(),
        processor: (ended.rusage.utime + ended.rusage.stime).as_secs_f64(),
        peak_mib: own as f64 / 1024.0,
    })
}

/// The statistics that `archive stats` prints.
fn stats(binary: &Path, store: &Path) -> Result<serde_json::Value> {
    let output = Command::new(binary).args(["archive", "stats", "--json", "--data"]).arg(store).output()?;
    let mut stats: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("`archive stats` printed no JSON")?;
    Ok(stats[service::DOMAIN]["page"].take())
}
