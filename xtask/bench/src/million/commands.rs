//! Runs the commands that users run, with a limit of their time.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rashomon_clock::Clock;

use super::wiki::Wiki;
use crate::{memory, report::Report, service::DOMAIN};

/// The interval at which the end of a command is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The commands of a binary on a store.
#[derive(Clone, Copy)]
pub(super) struct Commands<'a> {
    pub(super) binary: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) clock: &'a dyn Clock,
    /// The time after which a command is cut off.
    pub(super) limit: Duration,
}

/// A command that has ended, or was cut off.
struct Ended {
    seconds: f64,
    /// The time until the first byte on standard output.
    first_byte: Option<f64>,
    was_cut_off: bool,
    peak_mib: f64,
}

impl Commands<'_> {
    /// The folder of the store with this name.
    pub(super) fn store(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A command line: a verb of several words, and the store.
    pub(super) fn line(&self, verb: &str, store: &Path) -> Command {
        let mut command = Command::new(self.binary);
        command.args(verb.split_whitespace()).arg("--data").arg(store);
        command
    }

    /// Imports the wiki, however long it takes: all other measurements need the store.
    pub(super) fn import(&self, report: &mut Report, wiki: &Wiki, store: &Path) -> Result<()> {
        let line = self.line(&format!("import --domain {DOMAIN} -"), store);
        let ended = Self { limit: Duration::MAX, ..*self }.run(line, Some(wiki))?;
        add_time(report, "import", "revisions", &ended, wiki.revisions());
        report.add("import, peak memory without files", "MiB", ended.peak_mib);
        Ok(())
    }

    /// Measures a command that handles this many items of a kind. With a wiki, the command reads it on its input.
    pub(super) fn measure(
        &self,
        report: &mut Report,
        name: &str,
        (count, items): (u64, &str),
        command: Command,
        input: Option<&Wiki>,
    ) -> Result<()> {
        let ended = self.run(command, input)?;
        add_time(report, name, items, &ended, count);
        Ok(())
    }

    /// Measures an export, also until its first byte.
    pub(super) fn export(
        &self,
        report: &mut Report,
        name: &str,
        count: (u64, &str),
        arguments: &str,
        store: &Path,
    ) -> Result<()> {
        let line = self.line(&format!("export --domain {DOMAIN} {arguments}"), store);
        let ended = self.run(line, None)?;
        let name_of_first = format!("{name}, first byte");
        match ended.first_byte {
            Some(seconds) => report.add(&name_of_first, "s", seconds),
            None => report.add_bound(&name_of_first, "s", "more than", ended.seconds),
        }
        add_time(report, name, count.1, &ended, count.0);
        report.add(&format!("{name}, peak memory without files"), "MiB", ended.peak_mib);
        Ok(())
    }

    /// Runs a command to its end or to the limit. Its output is discarded.
    fn run(&self, mut command: Command, input: Option<&Wiki>) -> Result<Ended> {
        let errors = self.folder.join("errors");
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let started = self.clock.monotonic();
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let watcher = memory::watch(child.id());
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        thread::scope(|scope| {
            if let (Some(wiki), Some(stdin)) = (input, stdin) {
                // A command that fails or is cut off closes its input: its status says more than this error.
                scope.spawn(move || drop(wiki.write(stdin)));
            }
            let first_byte = scope.spawn(|| stdout.and_then(|stdout| first_byte(stdout, self.clock)));
            let (status, was_cut_off) = self.wait(&mut child, started)?;
            let seconds = (self.clock.monotonic() - started).as_secs_f64();
            let first_byte = first_byte.join().map_err(|_| anyhow!("the reader of the output panicked"))?;
            let peak = watcher.join().map_err(|_| anyhow!("the reader of the memory panicked"))?;
            let printed = fs::read_to_string(&errors).unwrap_or_default();
            ensure!(was_cut_off || status, "{command:?} failed: {}", printed.trim());
            let first_byte = first_byte.map(|at| at.saturating_sub(started).as_secs_f64());
            Ok(Ended { seconds, first_byte, was_cut_off, peak_mib: peak as f64 / 1024.0 })
        })
    }

    /// Waits until the child ends, or kills it at the limit. Returns whether it succeeded, and whether it was killed.
    fn wait(&self, child: &mut Child, started: Duration) -> Result<(bool, bool)> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status.success(), false));
            }
            if self.clock.monotonic().saturating_sub(started) >= self.limit {
                child.kill()?;
                child.wait()?;
                return Ok((false, true));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Reads all output. Returns the time of the first byte.
fn first_byte(mut output: impl Read, clock: &dyn Clock) -> Option<Duration> {
    let mut buffer = vec![0; 64 << 10];
    let mut first = None;
    while output.read(&mut buffer).is_ok_and(|read| read > 0) {
        first.get_or_insert_with(|| clock.monotonic());
    }
    first
}

fn add_time(report: &mut Report, name: &str, items: &str, ended: &Ended, count: u64) {
    let (rate, unit) = (count as f64 / ended.seconds, "a second");
    if ended.was_cut_off {
        report.add_bound(name, "s", "more than", ended.seconds);
        report.add_bound(&format!("{name}, {items}"), unit, "less than", rate);
    } else {
        report.add(name, "s", ended.seconds);
        report.add(&format!("{name}, {items}"), unit, rate);
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::SystemClock;

    use super::*;

    #[test]
    fn command_is_cut_off_at_the_limit() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), SystemClock::new());
        let limit = Duration::from_millis(50);
        let commands = Commands { binary: "sh".as_ref(), folder: folder.path(), clock: &clock, limit };
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            commands.run(command, None)
        };
        let ended = shell("echo begins; exec sleep 60").unwrap();
        assert!(ended.was_cut_off && ended.first_byte.is_some_and(|first| first <= ended.seconds));
        let error = shell("echo no such thing >&2; exit 1").err().unwrap();
        assert!(error.to_string().ends_with("no such thing"), "{error}");
    }

    #[test]
    fn wiki_reaches_the_input_of_a_command() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), SystemClock::new());
        let limit = Duration::from_secs(60);
        let commands = Commands { binary: "sh".as_ref(), folder: folder.path(), clock: &clock, limit };
        let shape = super::super::wiki::Shape { pages: 3, revisions: 2, bytes: 100, mix: false, seed: 1 };
        let mut command = Command::new("sh");
        command.args(["-c", "test $(grep -c '<revision>') = 6"]);
        assert!(!commands.run(command, Some(&Wiki::new(shape))).unwrap().was_cut_off);
    }
}
