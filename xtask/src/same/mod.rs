//! `cargo xtask same OLD NEW`: two versions of the program do the same.
//!
//! Both get the same seeded requests and commands, under the same clock and with the same random bytes. Their answers
//! are compared byte for byte, except tids and measured times. At the end, so are the digests of all tables.

mod compare;
mod frozen;
mod script;
mod world;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, builder::PossibleValuesParser};

use self::{
    script::Traits,
    world::{Place, World},
};
use crate::cassandra;

/// Which programs, and how much of them.
#[derive(Debug, Args)]
pub struct Options {
    /// The program `rashomon` before a change
    old: PathBuf,

    /// The program after it
    new: PathBuf,

    /// Seed of the first script; others follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Scripts for each configuration
    #[arg(long, value_name = "N", default_value_t = 1)]
    scripts: u64,

    /// Steps of a script
    #[arg(long, value_name = "N", default_value_t = 800)]
    steps: usize,

    /// Only this configuration; may be given several times
    #[arg(long = "only", value_name = "NAME", value_parser = names())]
    names: Vec<String>,

    /// Also run two processes on a node of Cassandra, which is started
    #[arg(long)]
    cassandra: bool,
}

/// A configuration to compare under.
struct Configuration {
    name: &'static str,
    settings: &'static str,
    archive: bool,
    retention: bool,
    /// Whether two processes work on a node of Cassandra, instead of one on a file.
    cluster: bool,
}

/// No loop of a server collects garbage. In the settings of retention, `skew` is longer than a run takes: the time of
/// day does not go on by itself, and must not look as if it had been set.
const COMMON: &str = "collect_every = \"0s\"\naccess_log = \"off\"\nlog_level = \"error\"\n";

impl Configuration {
    /// One process on a file, without retention and without an archive.
    const fn on_file(name: &'static str, settings: &'static str) -> Self {
        Self { name, settings, archive: false, retention: false, cluster: false }
    }

    const fn with_retention(mut self) -> Self {
        self.retention = true;
        self
    }

    const fn with_archive(mut self) -> Self {
        self.archive = true;
        self
    }

    const fn on_cluster(mut self) -> Self {
        self.cluster = true;
        self
    }
}

const CONFIGURATIONS: &[Configuration] = &[
    Configuration::on_file("plain", ""),
    Configuration::on_file(
        "app-ttl",
        "[retention]\nskew = \"5m\"\ngrace = \"1h\"\nslack = \"10m\"\ndelete_probability = 0.5\n",
    )
    .with_retention(),
    Configuration::on_file(
        "app-ttl-renders",
        "[retention]\nskew = \"5m\"\ngrace = \"1h\"\ncull = \"renders\"\nmin_keep = 2\ntimeline = \"memory\"\n",
    )
    .with_retention(),
    Configuration::on_file("two-table", "[retention]\nskew = \"5m\"\nstrategy = \"two-table\"\ngrace = \"1h\"\n")
        .with_retention(),
    Configuration::on_file(
        "table-per-query-a",
        "[retention]\nskew = \"5m\"\nstrategy = \"table-per-query\"\ngrace = \"1h\"\n",
    )
    .with_retention(),
    Configuration::on_file(
        "table-per-query-read",
        "[retention]\nskew = \"5m\"\nstrategy = \"table-per-query\"\nfill = \"copy-on-read\"\ngrace = \"1h\"\n",
    )
    .with_retention(),
    Configuration::on_file(
        "table-per-query-write",
        "[retention]\nskew = \"5m\"\nstrategy = \"table-per-query\"\nfill = \"write-through\"\ngrace = \"1h\"\n",
    )
    .with_retention(),
    Configuration::on_file(
        "table-per-query-b",
        "[retention]\nskew = \"5m\"\nstrategy = \"table-per-query\"\noption = \"B\"\ngrace = \"1h\"\n",
    )
    .with_retention(),
    Configuration::on_file("archive", "[archive]\nafter = \"1h\"\nwithin = \"1h\"\n").with_archive(),
    Configuration::on_file(
        "archive-first-render",
        "[retention]\nskew = \"5m\"\ngrace = \"1h\"\n[archive]\nwithin = \"1h\"\npolicy = \"first-render\"\n",
    )
    .with_retention()
    .with_archive(),
    Configuration::on_file("cluster-plain", "").on_cluster(),
    Configuration::on_file("cluster-app-ttl", "[retention]\nskew = \"5m\"\ngrace = \"1h\"\n").with_retention().on_cluster(),
    Configuration::on_file(
        "cluster-table-per-query",
        "[retention]\nskew = \"5m\"\nstrategy = \"table-per-query\"\ngrace = \"1h\"\n",
    )
    .with_retention()
    .on_cluster(),
    Configuration::on_file("cluster-archive", "[archive]\nafter = \"1h\"\nwithin = \"1h\"\n")
        .with_archive()
        .on_cluster(),
];

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CONFIGURATIONS.iter().map(|configuration| configuration.name))
}

/// When a store in a file begins, in microseconds since 1970: 2026-01-01.
const FILE_START: i64 = 1_767_225_600_000_000;

/// Runs all scripts with both programs. `false` where they differ.
pub fn run(options: &Options) -> Result<bool> {
    for program in [&options.old, &options.new] {
        ensure!(program.is_file(), "there is no program {}", program.display());
    }
    let chosen = |configuration: &&Configuration| match &*options.names {
        [] => options.cassandra || !configuration.cluster,
        names => names.iter().any(|name| name == configuration.name),
    };
    let chosen: Vec<_> = CONFIGURATIONS.iter().filter(chosen).collect();
    let node = if chosen.iter().any(|configuration| configuration.cluster) {
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
                    println!("{}, seed {seed}: different at {difference}", configuration.name);
                }
            }
        }
    }
    drop(node);
    Ok(different == 0)
}

/// How many answers were the same, or what differed.
fn compare(options: &Options, configuration: &Configuration, seed: u64) -> Result<Result<usize, String>> {
    let servers = if configuration.cluster { 2 } else { 1 };
    let Configuration { archive, retention, .. } = *configuration;
    let script = script::draw(seed, options.steps, Traits { servers, archive, retention, commands: true });
    // A node of Cassandra has its own clock, from which the frozen one must not be far.
    let start = if configuration.cluster { now_micros() } else { FILE_START };
    let answers = |binary: &Path, name: &str| {
        let folder = crate::target().join("xtask/same").join(configuration.name).join(name);
        let store = if configuration.cluster {
            let keyspace = format!("same_{name}_{start}");
            format!("cassandra://127.0.0.1/{keyspace}?replication=1")
        } else {
            format!("sqlite:{}", folder.join("store").display())
        };
        let settings = format!("{COMMON}{}", configuration.settings);
        let place = Place { binary: binary.to_owned(), folder, store, settings, start };
        World::new(place, servers)?.run(&script)
    };
    let (old, new) = (answers(&options.old, "old")?, answers(&options.new, "new")?);
    Ok(match compare::difference(&old, &new) {
        None => Ok(new.len()),
        Some(difference) => Err(difference),
    })
}

/// The time of day, in microseconds since 1970.
#[allow(clippy::disallowed_methods)] // The clock of a cluster is this one.
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
