//! `import`: imports a whole wiki into a new durable store, with the command that users run.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use wait4::Wait4;

use super::{memory, report::Report, service};

/// The oVirt wiki, and the number of its revisions. The README beside the file describes it.
pub(crate) const FILE: &str = "ovirt-wiki.xml.zst";
pub(crate) const REVISIONS: u64 = 16_251;

/// The options of the import.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Import this dump instead of the oVirt wiki. Needs `--revisions`.
    #[arg(long, requires = "revisions")]
    file: Option<PathBuf>,
    /// Number of revisions in the dump of `--file`.
    #[arg(long, requires = "file")]
    revisions: Option<u64>,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let file = options.file.clone().unwrap_or_else(|| xtask::test_data().join(FILE));
    ensure!(
        file.is_file(),
        "there is no dump {}: name one with --file, or set RASHOMON_TEST_DATA to the folder of the real data",
        file.display()
    );
    let revisions = options.revisions.unwrap_or(REVISIONS);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut report = Report::new(
        "import",
        format!(
            "{name} ({revisions} revisions) is imported into a new store with `rashomon import`. Time: from the start \
             of the command to its end. Memory: the peak of the resident memory as the kernel counts it, with mapped \
             files; and the peak without files, read every {} ms. Size: all files of the store",
            memory::POLL_INTERVAL.as_millis()
        ),
    );
    for _ in 0..runs {
        let data = service::data_folder()?;
        let store = data.path().join("store");
        let started = clock.monotonic();
        let mut child = Command::new(binary)
            .args(["import", "--domain", service::DOMAIN, "--data"])
            .arg(&store)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the program")?;
        let watcher = memory::watch(child.id());
        let ended = child.wait4()?;
        let seconds = (clock.monotonic() - started).as_secs_f64();
        ensure!(ended.status.success(), "the import ended with {}", ended.status);
        let stored = stored_revisions(binary, &["--data".as_ref(), store.as_os_str()])?;
        ensure!(stored == revisions, "{stored} revisions are there after the import, and not {revisions}");
        report.add("revisions", "a second", revisions as f64 / seconds);
        report.add("time", "s", seconds);
        report.add("processor time", "s", (ended.rusage.utime + ended.rusage.stime).as_secs_f64());
        report.add("peak memory", "MiB", ended.rusage.maxrss as f64 / f64::from(1 << 20));
        let own = watcher.join().expect("the watcher does not panic");
        report.add("peak memory without files", "MiB", own as f64 / 1024.0);
        report.add("on disk", "MiB", service::size(&store)? as f64 / f64::from(1 << 20));
    }
    Ok(report)
}

/// The number of revisions that `stats` prints. `store` has the flags that name the store.
pub(crate) fn stored_revisions(binary: &Path, store: &[&OsStr]) -> Result<u64> {
    let stats = Command::new(binary).args(["stats", "--json"]).args(store).output()?;
    let stats: serde_json::Value =
        serde_json::from_slice(&stats.stdout).context("`stats` printed no JSON")?;
    stats["domains"][service::DOMAIN]["revisions"].as_u64().context("the stats have no revisions")
}
