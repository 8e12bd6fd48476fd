//! Servers that have Varnish in their configuration, and the figures of their purges.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{
    http::Client,
    process::Stopwatch,
    service::{Service, free_address},
};
use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::varnish::{Files, message::get};

/// An age above the three seconds for which docs/varnish.vcl compares the marks of an answer for each reader.
pub const OLD_ENOUGH: Duration = Duration::from_secs(4);
/// The time limit until all purges were acknowledged, and until Varnish passes requests on.
const LIMIT: Duration = Duration::from_secs(300);
/// The time in which the server sends the purges that were left to its queue, if there are any.
const QUEUE_TIME: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The host of the requests, as in `crate::http`.
pub(crate) const HOST: &str = "localhost";
/// The file of a server's log.
const LOG: &str = "log";
/// A folder in memory. Varnish maps its log from a file, whose changes would otherwise go to the measured disk.
const IN_MEMORY: &str = "/dev/shm";

/// The way in which a purge names an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By its URL.
    Purge,
    /// By its keys.
    Keys,
}

impl Method {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Purge => "purge",
            Self::Keys => "keys",
        }
    }
}

/// The caches of a server.
#[derive(Debug, Clone, Copy)]
pub struct Caches {
    /// The method of the purges of each cache.
    pub methods: &'static [Method],
    /// Whether the caches run. Otherwise the server cannot reach them.
    pub are_up: bool,
}

/// A server, and the caches of its configuration.
pub struct Server {
    service: Service,
    varnishes: Vec<Service>,
    /// The folder of the files of Varnish, which is removed last.
    _folder: TempDir,
}

/// The figures of the purges of a server, and the processor time so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct PurgeFigures {
    /// Acknowledged requests of purges.
    pub sent: f64,
    /// Purges that were left to the queue in the store.
    pub left: f64,
    /// Changes that a cache has acknowledged for the first time.
    pub delays: f64,
    /// The sum of the times from the commit of each change to its first acknowledgement, in seconds.
    pub delay_sum: f64,
    /// Processor time of the server.
    pub server_time: Duration,
    /// Processor time of all its caches.
    pub cache_time: Duration,
}

impl Server {
    /// Starts a server on a new store in the folder, and its caches. Waits until they work.
    pub fn start(binary: &Path, files: &Files, folder: &Path, caches: Caches) -> Result<Self> {
        fs::create_dir(folder)?;
        let address = free_address()?;
        let vcl = crate::varnish::vcl([address; 3])?.replace("store.example.org", HOST);
        let in_memory = work_folder()?;
        let (mut varnishes, mut config) = (Vec::new(), String::new());
        for (place, method) in caches.methods.iter().enumerate() {
            let name = format!("cache-{place}");
            let address = if caches.are_up {
                let varnish = crate::varnish::start(files, &vcl, &in_memory.path().join(&name))?;
                varnishes.push(varnish);
                varnishes[place].address()
            } else {
                free_address()?
            };
            config += &table(&name, address, *method);
        }
        let service = serve(binary, folder, address, &config, LOG)?;
        let server = Self { service, varnishes, _folder: in_memory };
        server.wait_for_caches()?;
        server.drain()?;
        Ok(server)
    }

    /// The address of the server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// The address of the first cache, which runs.
    #[must_use]
    pub fn cache(&self) -> SocketAddr {
        self.varnishes[0].address()
    }

    /// Waits until the caches pass requests on. A cache that starts before the server counts the server as failed at
    /// first.
    fn wait_for_caches(&self) -> Result<()> {
        let clock = Stopwatch::start();
        for varnish in &self.varnishes {
            while get("/healthz").host(HOST).answer(varnish.address())?.status() != 200 {
                ensure!(clock.elapsed() < LIMIT, "Varnish does not reach the server");
                thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Waits until the caches that run have acknowledged all purges twice. Returns how long that took.
    pub fn drain(&self) -> Result<Duration> {
        if self.varnishes.is_empty() {
            return Ok(Duration::ZERO);
        }
        let clock = Stopwatch::start();
        loop {
            let metrics = self.metrics()?;
            if is_drained(&metrics, self.varnishes.len()) {
                return Ok(clock.elapsed());
            }
            ensure!(clock.elapsed() < LIMIT, "the caches have not acknowledged all purges: {metrics}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the server has sent the purges that were left to its queue since `before`.
    pub fn drain_queue(&self, before: &PurgeFigures) -> Result<()> {
        let mut last = self.figures()?;
        while last.left > before.left {
            thread::sleep(QUEUE_TIME);
            let now = self.figures()?;
            if now.sent == last.sent {
                break;
            }
            last = now;
        }
        Ok(())
    }

    /// Reads the figures of the server.
    pub fn figures(&self) -> Result<PurgeFigures> {
        let metrics = self.metrics()?;
        let sum = |name: &str| values(&metrics, name).iter().sum::<f64>();
        let mut cache_time = Duration::ZERO;
        for varnish in &self.varnishes {
            cache_time += processor_time(varnish.id())?;
        }
        Ok(PurgeFigures {
            sent: sum("rashomon_purges_sent_total"),
            left: sum("rashomon_purges_left_total"),
            delays: sum("rashomon_purge_delay_seconds_count"),
            delay_sum: sum("rashomon_purge_delay_seconds_sum"),
            server_time: processor_time(self.service.id())?,
            cache_time,
        })
    }

    fn metrics(&self) -> Result<String> {
        let answer = get("/metrics").host(HOST).answer(self.address())?;
        ensure!(answer.status() == 200, "the metrics are answered with {answer:?}");
        Ok(answer.text())
    }

    /// Reads URLs through the first cache, so that it stores the answers. Then waits until they are not young any more,
    /// and checks that each is answered from memory.
    pub fn store(&self, paths: &[String]) -> Result<()> {
        let mut client = Client::connect(self.cache())?;
        for path in paths {
            let (status, _) = client.get(path)?;
            ensure!(status == 200, "{path} is answered with {status}");
        }
        thread::sleep(OLD_ENOUGH);
        paths.iter().try_for_each(|path| self.ensure_stored(path))
    }

    /// Checks that the first cache answers a URL from memory.
    pub fn ensure_stored(&self, path: &str) -> Result<()> {
        let answer = get(path).host(HOST).answer(self.cache())?;
        ensure!(answer.header("x-cache") == "hit", "{path} is not in the cache: {answer:?}");
        Ok(())
    }
}

/// Starts a server with a configuration on the store of a folder. Its log is a file of this name in the folder.
pub(crate) fn serve(
    binary: &Path,
    folder: &Path,
    address: SocketAddr,
    config: &str,
    log: &str,
) -> Result<Service> {
    let file = folder.join("rashomon.toml");
    fs::write(&file, config)?;
    let listen = address.to_string();
    let data = folder.join("store");
    let arguments = [
        "serve".as_ref(),
        "--config".as_ref(),
        file.as_os_str(),
        "--data".as_ref(),
        data.as_os_str(),
        "--listen".as_ref(),
        listen.as_ref(),
    ];
    Service::start_at(address, binary, &arguments, &folder.join(log))
}

/// Starts a server without caches on a new store in the folder.
pub fn serve_alone(binary: &Path, folder: &Path, config: &str) -> Result<Service> {
    fs::create_dir(folder)?;
    serve(binary, folder, free_address()?, config, LOG)
}

/// A new folder in memory, or else where temporary files are.
fn work_folder() -> Result<TempDir> {
    let parent = Some(PathBuf::from(IN_MEMORY)).filter(|folder| folder.is_dir());
    Ok(tempfile::tempdir_in(parent.unwrap_or_else(std::env::temp_dir))?)
}

/// The part of a configuration with a cache.
pub(crate) fn table(name: &str, address: SocketAddr, method: Method) -> String {
    let method = method.name();
    format!("[caches.{name}]\nurl = \"http://{address}\"\nmethod = \"{method}\"\nhosts = [\"{HOST}\"]\n")
}

/// Whether the metrics of a server say that its caches are reached, and have acknowledged every purge.
pub(crate) fn is_drained(metrics: &str, caches: usize) -> bool {
    let (ups, waiting) =
        (values(metrics, "rashomon_purge_cache_up"), values(metrics, "rashomon_purges_waiting"));
    let are_complete = ups.len() == caches && waiting.len() == caches;
    are_complete && ups.iter().all(|up| *up > 0.0) && waiting.iter().all(|number| *number == 0.0)
}

/// The values of a metric, one for each cache.
fn values(metrics: &str, name: &str) -> Vec<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once(' ')?.1.parse().ok();
    metrics.lines().filter_map(value).collect()
}

/// The processor time of a process and its child processes so far.
fn processor_time(process: u32) -> Result<Duration> {
    let folder = format!("/proc/{process}");
    let stat = fs::read_to_string(format!("{folder}/stat"))?;
    let mut time = time_of_stat(&stat).with_context(|| format!("no times in {folder}/stat"))?;
    let children = fs::read_to_string(format!("{folder}/task/{process}/children"))?;
    for child in children.split_whitespace() {
        time += processor_time(child.parse()?)?;
    }
    Ok(time)
}

/// The time in user mode and in the kernel, from `/proc/PID/stat`.
fn time_of_stat(stat: &str) -> Option<Duration> {
    // The name of the program is in brackets, and may have spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_cache_are_found_by_the_whole_name() {
        let metrics = "# TYPE rashomon_purges_sent counter\nrashomon_purges_sent_total{cache=\"a b\"} 12\n\
                       rashomon_purges_sent_total{cache=\"c\"} 0.5\nrashomon_purges_sent_total_other{cache=\"c\"} 7\n";
        assert_eq!(values(metrics, "rashomon_purges_sent_total"), [12.0, 0.5]);
    }

    #[test]
    fn times_of_a_process_are_found_after_its_name() {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = format!("7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 {ticks} {ticks} 5 5 20 0 9");
        assert_eq!(time_of_stat(&stat), Some(Duration::from_secs(2)));
    }
}
