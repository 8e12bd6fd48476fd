//! `cargo xtask same OLD NEW`: checks that two versions of the program behave in the same way.
//!
//! Both versions get the same requests and commands from a seed, with the same clock and the same random
//! bytes. Their answers are compared byte for byte, except tids and measured times. At the end the digests of
//! all tables are compared as well.

mod compare;
mod frozen;
mod script;
mod world;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, builder::PossibleValuesParser};

use self::{
    script::Traits,
    world::{ProgramSetup, World},
};
use crate::cassandra;

/// The programs to compare, and the extent of the comparison.
#[derive(Debug, Args)]
pub struct Options {
    /// The program `rashomon` before the change
    old: PathBuf,

    /// The program `rashomon` after the change
    new: PathBuf,

    /// Seed of the first script; each further script has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Scripts for each configuration
    #[arg(long, value_name = "N", default_value_t = 1)]
    scripts: u64,

    /// Steps of a script
    #[arg(long, value_name = "N", default_value_t = 800)]
    steps: usize,

    /// Run only this configuration; may be given several times
    #[arg(long = "only", value_name = "NAME", value_parser = names())]
    names: Vec<String>,

    /// Also run two processes on a node of Cassandra, which this command starts
    #[arg(long)]
    cassandra: bool,
}

/// A configuration for the comparison.
struct Configuration {
    name: &'static str,
    /// The keys of `[retention]` in addition to [`RETENTION`]. `None`: there is no such table.
    retention: Option<&'static str>,
    /// The keys of `[archive]`; `None`: there is no such table.
    archive: Option<&'static str>,
    /// Whether two processes work on a node of Cassandra, instead of one on a file.
    is_cluster: bool,
}

/// The settings of every server. No background loop collects garbage.
const COMMON: &str = "collect_every = \"0s\"\naccess_log = \"off\"\nlog_level = \"error\"\n";

/// The settings of retention. `skew` is longer than a run takes: the time of day does not advance by itself in a run,
/// and the server must not mistake this for a clock jump.
const RETENTION: &str = "[retention]\nskew = \"5m\"\ngrace = \"1h\"\n";

const CONFIGURATIONS: &[Configuration] = &[
    Configuration::new("plain"),
    Configuration::new("app-ttl").retention("slack = \"10m\"\ndelete_probability = 0.5"),
    Configuration::new("app-ttl-renders")
        .retention("cull = \"renders\"\nmin_keep = 2\ntimeline = \"memory\""),
    Configuration::new("two-table").retention("strategy = \"two-table\""),
    Configuration::new("table-per-query-a").retention("strategy = \"table-per-query\""),
    Configuration::new("table-per-query-read")
        .retention("strategy = \"table-per-query\"\nfill = \"copy-on-read\""),
    Configuration::new("table-per-query-write")
        .retention("strategy = \"table-per-query\"\nfill = \"write-through\""),
    Configuration::new("table-per-query-b").retention("strategy = \"table-per-query\"\noption = \"B\""),
    Configuration::new("archive").archive("after = \"1h\"\nwithin = \"1h\""),
    Configuration::new("archive-first-render")
        .retention("")
        .archive("within = \"1h\"\npolicy = \"first-render\""),
    Configuration::new("cluster-plain").on_cluster(),
    Configuration::new("cluster-app-ttl").retention("").on_cluster(),
    Configuration::new("cluster-table-per-query").retention("strategy = \"table-per-query\"").on_cluster(),
    Configuration::new("cluster-archive").archive("after = \"1h\"\nwithin = \"1h\"").on_cluster(),
];

impl Configuration {
    /// One process on a file, without retention and without an archive.
    const fn new(name: &'static str) -> Self {
        Self { name, retention: None, archive: None, is_cluster: false }
    }

    const fn retention(self, keys: &'static str) -> Self {
        Self { retention: Some(keys), ..self }
    }

    const fn archive(self, keys: &'static str) -> Self {
        Self { archive: Some(keys), ..self }
    }

    const fn on_cluster(self) -> Self {
        Self { is_cluster: true, ..self }
    }

    fn traits(&self) -> Traits {
        Traits {
            servers: if self.is_cluster { 2 } else { 1 },
            archive: self.archive.is_some(),
            retention: self.retention.is_some(),
        }
    }

    /// The text of the settings file.
    fn settings(&self) -> String {
        let retention = self.retention.map(|keys| format!("{RETENTION}{keys}\n"));
        let archive = self.archive.map(|keys| format!("[archive]\n{keys}\n"));
        [Some(COMMON.to_owned()), retention, archive].into_iter().flatten().collect()
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CONFIGURATIONS.iter().map(|configuration| configuration.name))
}

/// The time at which a run on a file starts, in microseconds since 1970: 2026-01-01.
const FILE_START: i64 = 1_767_225_600_000_000;

/// Runs all scripts with both programs. Returns `false` if the programs differ.
pub fn run(options: &Options) -> Result<bool> {
    for program in [&options.old, &options.new] {
        ensure!(program.is_file(), "there is no program {}", program.display());
    }
    let chosen = |configuration: &&Configuration| match &*options.names {
        [] => options.cassandra || !configuration.is_cluster,
        names => names.iter().any(|name| name == configuration.name),
    };
    let chosen: Vec<_> = CONFIGURATIONS.iter().filter(chosen).collect();
    let node = if chosen.iter().any(|configuration| configuration.is_cluster) {
        Some(cassandra::start_for_benchmarks()?)
    } else {
        None
    };
    let mut different = 0;
    for configuration in chosen {
        for seed in options.seed..options.seed.saturating_add(options.scripts) {
            match compare(options, configuration, seed)? {
                Ok(answers) => println!("{}, seed {seed}: the same {answers} answers", configuration.name),
                Err(difference) => {
                    different += 1;
                    println!("{}, seed {seed}: different: {difference}", configuration.name);
                }
            }
        }
    }
    drop(node);
    Ok(different == 0)
}

/// Returns the number of equal answers, or a description of the difference.
fn compare(options: &Options, configuration: &Configuration, seed: u64) -> Result<Result<usize, String>> {
    let traits = configuration.traits();
    let script = script::draw(seed, options.steps, traits);
    // A node of Cassandra has its own clock, and the frozen clock must not be far from it.
    let start = if configuration.is_cluster { now_micros() } else { FILE_START };
    let answers = |binary: &Path, name: &str| {
        let folder = crate::target().join("xtask/same").join(configuration.name).join(name);
        let store = if configuration.is_cluster {
            let keyspace = format!("same_{name}_{start}");
            format!("cassandra://127.0.0.1/{keyspace}?replication=1")
        } else {
            format!("sqlite:{}", folder.join("store").display())
        };
        let settings = configuration.settings();
        let setup = ProgramSetup { binary: binary.to_owned(), folder, store, settings, start };
        World::new(setup, traits.servers)?.run(&script)
    };
    let (old, new) = (answers(&options.old, "old")?, answers(&options.new, "new")?);
    Ok(match compare::difference(&old, &new) {
        None => Ok(new.len()),
        Some(difference) => Err(difference),
    })
}

/// The time of day, in microseconds since 1970.
#[allow(clippy::disallowed_methods)] // The cluster uses this clock.
fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = CONFIGURATIONS.iter().map(|each| each.name).collect();
        assert_eq!(names.len(), CONFIGURATIONS.len());
    }
}
