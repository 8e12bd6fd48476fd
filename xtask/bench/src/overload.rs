//! `overload`: offers more requests than a server on one core can answer.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use fastrand::Rng;
use rashomon_clock::Clock;
use rustix::{
    process::setpriority_process,
    thread::{CpuSet, sched_setaffinity},
};
use xtask::{http::Client, service::Service};

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    counted::{CountedTraffic, Outcome},
    load::{self, Measurement, Pace, Plan},
    memory,
    reads::Reads,
    report::Report,
    service,
    versions::{self, REVISIONS},
    writes::{self, Writes},
};

/// The cores of the server and of the load generator.
const SERVER_CORE: usize = 0;
const GENERATOR_CORE: usize = 1;
/// The loads: open loops, as multiples of the capacity, and a closed loop (`None`).
const LOADS: [Option<f64>; 5] = [Some(0.5), Some(1.0), Some(2.0), Some(5.0), None];
const WARM_UP: Duration = Duration::from_secs(1);
/// The number of imported pages. Together, their blocks are much larger than one block.
const IMPORTED_PAGES: usize = 200;
/// The number of pages that are written.
const WRITTEN_PAGES: usize = 50;
/// The number of pages whose latest is read during the load, and the number of connections that read these pages.
const READ_PAGES: usize = 8;
/// The rate at which the latest is read during the load.
const READS_PER_SECOND: f64 = 400.0;
/// The niceness of the thread that makes the load. The thread that reads the latest keeps the normal priority, because
/// its latency is measured.
const LOAD_PRIORITY: i32 = 19;
/// The configuration of the server, with which it keeps no unpacked block in memory.
const NO_BLOCKS: &str = "[archive]\ncache_size = 0\n";

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Another program `rashomon`, which is measured in turns with this one.
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// Seconds of each measurement, after one second of warm-up.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Maximum number of concurrent connections of the load.
    #[arg(long, default_value_t = 256)]
    connections: usize,
}

/// The kind of request that overloads the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    Post,
    Archived,
}

impl Class {
    const ALL: [Self; 2] = [Self::Post, Self::Archived];

    const fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Archived => "archived read",
        }
    }

    /// The number of connections of the closed loop that measures the capacity. It is so low that nothing is refused.
    const fn closed_connections(self) -> usize {
        match self {
            Self::Post => 24,
            Self::Archived => 8,
        }
    }
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "overload",
        format!(
            "the server on one core, the load generator on another; POST of revisions (html of {HTML_SIZE} bytes, \
             data-parsoid of {DATA_PARSOID_SIZE} bytes) to {WRITTEN_PAGES} pages, and GET of random archived renders \
             of {IMPORTED_PAGES} pages with no unpacked block in memory. The capacity is measured by a closed loop \
             with {} connections for POST and {} for reads. Open loops with at most {} connections then offer multiples \
             of the capacity, for {} s each after {} s of warm-up. Then a closed loop with as many connections repeats \
             each request as soon as it is answered, also after refusals. Meanwhile the latest is read {READS_PER_SECOND} \
             times a second. Goodput: successful answers; best: the highest goodput of all loads. The latency of a \
             refusal counts from the time of sending, that of a read of the latest from its scheduled time",
            Class::Post.closed_connections(),
            Class::Archived.closed_connections(),
            options.connections,
            options.seconds,
            WARM_UP.as_secs(),
        ),
    );
    let contents = Contents::new(1);
    let folder = service::data_folder()?;
    let dump = folder.path().join("dump.jsonl");
    fs::write(&dump, versions::history(&contents, IMPORTED_PAGES)?)?;
    let programs: Vec<_> = [("", Some(binary)), (", the other", options.other.as_deref())]
        .into_iter()
        .filter_map(|(name, program)| Some((name, program?)))
        .collect();
    for (name, program) in &programs {
        let store = folder.path().join(format!("archive{}", name.len()));
        let mut import = Command::new(program);
        import.args(["import", "--archive", "--domain", service::DOMAIN, "--data"]);
        service::finish(import.arg(store).arg(&dump))?;
    }
    for turn in 0..runs {
        for class in Class::ALL {
            for at in 0..programs.len() {
                // The order of the programs alternates from turn to turn.
                let (name, program) = programs[(turn + at) % programs.len()];
                let store = match class {
                    Class::Post => folder.path().join(format!("written{}_{turn}", name.len())),
                    Class::Archived => folder.path().join(format!("archive{}", name.len())),
                };
                let mut add = |figure: &str, unit: &'static str, value: f64| {
                    report.add(&format!("{}: {figure}{name}", class.name()), unit, value);
                };
                Side { options, class, contents: &contents, clock }.measure(program, &store, &mut add)?;
            }
        }
    }
    Ok(report)
}

/// Restricts this thread, and the threads and processes that it starts, to a core.
fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Starts a server on its core. From then on, this thread is on the core of the load generator.
fn start(program: &Path, store: &Path) -> Result<Service> {
    let config = store.with_extension("toml");
    fs::write(&config, NO_BLOCKS)?;
    let arguments =
        ["serve".as_ref(), "--config".as_ref(), config.as_os_str(), "--data".as_ref(), store.as_os_str()];
    pin(SERVER_CORE)?;
    let server = Service::start(program, &arguments, &store.with_extension("log"));
    pin(GENERATOR_CORE)?;
    server
}

/// The measurements of one class with one program.
struct Side<'a> {
    options: &'a Options,
    class: Class,
    contents: &'a Contents,
    clock: &'a dyn Clock,
}

/// The results of a load.
struct Load {
    measured: Measurement,
    outcome: Outcome,
    latest: Measurement,
}

impl Side<'_> {
    fn measure(
        &self,
        program: &Path,
        store: &Path,
        add: &mut dyn FnMut(&str, &'static str, f64),
    ) -> Result<()> {
        let server = start(program, store)?;
        let memory = memory::watch(server.id());
        let address = server.address();
        let pages = self.pages_to_read(address)?;
        // The first run only brings the latest into memory, for each connection.
        self.latest(address, &pages)?;
        let alone = self.latest(address, &pages)?.latency_ms(0.99);
        add("p99 of reads of the latest alone", "ms", alone);
        let mut next = 1;
        let seconds = self.options.seconds as f64;
        let connections = self.class.closed_connections();
        let capacity = self.load(address, Pace::Closed, connections, &mut next)?.1.served as f64 / seconds;
        add("capacity", "a second", capacity);
        let mut loads = Vec::new();
        for load in LOADS {
            let pace = load.map_or(Pace::Closed, |multiple| Pace::Open(multiple * capacity));
            loads.push(self.beside(address, &pages, pace, &mut next)?);
        }
        let goodput = |load: &Load| load.outcome.served as f64 / seconds;
        let best = loads.iter().map(goodput).fold(capacity, f64::max);
        for (multiple, load) in LOADS.iter().zip(&loads) {
            let name = multiple.map_or("closed loop".to_owned(), |multiple| format!("{multiple} x"));
            let mut add = |figure: &str, unit, value| add(&format!("{name}, {figure}"), unit, value);
            if let Some(multiple) = multiple {
                add("answered / offered", "", load.measured.per_second() / (multiple * capacity));
            }
            add("goodput / best", "", goodput(load) / best);
            add("refused", "a second", load.outcome.refused.len() as f64 / seconds);
            if !load.outcome.refused.is_empty() {
                add("p50 of refusals", "ms", load.outcome.refused.value_at_quantile(0.5) as f64 / 1e6);
                add("p99 of refusals", "ms", load.outcome.refused.value_at_quantile(0.99) as f64 / 1e6);
            }
            add("p99 of reads of the latest", "ms", load.latest.latency_ms(0.99));
            add("p99 of reads of the latest / alone", "", load.latest.latency_ms(0.99) / alone);
        }
        ensure!(server.stop()?.success(), "the server ended with an error");
        let peak = memory.join().map_err(|_| anyhow!("the thread that reads the memory has panicked"))?;
        add("peak memory without mapped files", "MiB", peak as f64 / 1024.0);
        Ok(())
    }

    /// Returns the paths of the latest of pages that the load does not change. Writes these pages first if the load
    /// consists of POSTs.
    fn pages_to_read(&self, address: SocketAddr) -> Result<Vec<String>> {
        let latest = |title: &String| format!("{}?rev/latest/html", writes::page_path(title));
        if self.class == Class::Archived {
            return Ok(writes::titles(READ_PAGES).iter().map(latest).collect());
        }
        let titles: Vec<String> = (0..READ_PAGES).map(|number| format!("Read_{number}")).collect();
        let mut writes = Writes::new(self.contents, titles.clone(), 1, 1);
        writes.send(&mut Client::connect(address)?, titles.len())?;
        Ok(titles.iter().map(latest).collect())
    }

    fn plan(&self, address: SocketAddr, connections: usize, pace: Pace) -> Plan {
        let measure = Duration::from_secs(self.options.seconds);
        Plan { address, connections, pace, warm_up: WARM_UP, measure }
    }

    /// Reads the latest of pages at a low rate.
    fn latest(&self, address: SocketAddr, pages: &[String]) -> Result<Measurement> {
        let plan = self.plan(address, READ_PAGES, Pace::Open(READS_PER_SECOND));
        load::run(&plan, self.clock, &mut Reads::new(pages, Some(HTML_SIZE), None, READ_PAGES))
    }

    /// Sends requests of the class.
    fn load(
        &self,
        address: SocketAddr,
        pace: Pace,
        connections: usize,
        next: &mut u64,
    ) -> Result<(Measurement, Outcome)> {
        let plan = self.plan(address, connections, pace);
        if self.class == Class::Post {
            let inner = Writes::new(self.contents, writes::titles(WRITTEN_PAGES), *next, connections);
            let mut traffic = CountedTraffic::new(inner)?;
            let measured = load::run(&plan, self.clock, &mut traffic)?;
            *next = traffic.inner.next();
            return Ok((measured, traffic.outcome));
        }
        let mut numbers: Vec<u64> = (1..=IMPORTED_PAGES as u64 * REVISIONS).collect();
        Rng::with_seed(*next).shuffle(&mut numbers);
        *next += 1;
        let titles = writes::titles(IMPORTED_PAGES);
        let paths: Vec<_> = numbers.iter().map(|number| versions::by_tid(&titles, *number)).collect();
        let inner = Reads::new(&paths, Some(HTML_SIZE), None, connections);
        let mut traffic = CountedTraffic::new(inner)?;
        let measured = load::run(&plan, self.clock, &mut traffic)?;
        Ok((measured, traffic.outcome))
    }

    /// Sends requests of the class while another thread reads the latest.
    fn beside(&self, address: SocketAddr, pages: &[String], pace: Pace, next: &mut u64) -> Result<Load> {
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                // On Linux, this is the priority of the thread.
                setpriority_process(None, LOAD_PRIORITY)?;
                self.load(address, pace, self.options.connections, next)
            });
            let latest = self.latest(address, pages);
            let load = load.join().map_err(|_| anyhow!("the load generator has panicked"))?;
            let (measured, outcome) = load?;
            Ok(Load { measured, outcome, latest: latest? })
        })
    }
}
