//! A server under callgrind, which records on command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use xtask::{
    http::Client,
    process::find_program,
    service::{Service, free_address},
};

use super::callgrind::Profile;

/// The interval between two checks whether the server is idle, and the maximum number of checks.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
const MAX_IDLE_CHECKS: usize = 120;

/// The processor time that an idle server may take in [`IDLE_CHECK_INTERVAL`], in ticks of 10 ms.
const MAX_IDLE_TICKS: u64 = 2;

/// The time that a command to the server may take, in seconds.
const CONTROL_LIMIT: &str = "60";

/// Fails with a hint if a program of valgrind is missing.
pub(super) fn check_valgrind() -> Result<()> {
    for program in ["valgrind", "vgdb"] {
        let found = find_program(program);
        ensure!(found.is_some(), "there is no `{program}` in the path (Debian: apt-get install valgrind)");
    }
    Ok(())
}

/// A server under callgrind.
#[derive(Debug)]
pub(super) struct Server {
    service: Service,
    client: Client,
    folder: PathBuf,
    dumps: usize,
}

impl Server {
    /// Starts the program on the store in `folder`, and connects to it.
    pub(super) fn start(program: &Path, folder: &Path, settings: &str) -> Result<Self> {
        let config = folder.join("rashomon.toml");
        fs::write(&config, settings)?;
        let address = free_address()?;
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind", "--instr-atstart=no"])
            .arg(format!("--callgrind-out-file={}", profile(folder).display()))
            .arg(control(folder))
            .arg(program)
            .args(["serve", "--listen", &address.to_string(), "--config"])
            .arg(&config)
            .arg("--data")
            .arg(store(folder));
        let service = Service::start_command(address, command, &folder.join("log"))?;
        let client = Client::connect(address)?;
        Ok(Self { service, client, folder: folder.to_owned(), dumps: 0 })
    }

    /// Waits until the server is idle, for example until the work of its start is done.
    pub(super) fn wait_until_idle(&self) -> Result<()> {
        let mut before = self.processor_ticks()?;
        for _ in 0..MAX_IDLE_CHECKS {
            thread::sleep(IDLE_CHECK_INTERVAL);
            let now = self.processor_ticks()?;
            if now.saturating_sub(before) <= MAX_IDLE_TICKS {
                return Ok(());
            }
            before = now;
        }
        bail!("the server does not become idle: it still uses processor time after a minute")
    }

    /// The processor time that the server has used.
    fn processor_ticks(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.service.id()))?;
        // The name of the program, in brackets, may contain spaces. User and system time are the fields 14
        // and 15.
        let (_, fields) = stat.rsplit_once(") ").context("the process has no name in /proc/PID/stat")?;
        let times = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
        Ok(times.sum::<Result<u64, _>>()?)
    }

    /// Sends a request that has to be answered with `status`.
    pub(super) fn send(&mut self, request: &[u8], status: u16) -> Result<()> {
        let (answered, body) = self.client.send(request)?;
        let shown = String::from_utf8_lossy(&body);
        ensure!(answered == status, "a request was answered with {answered} and not {status}: {shown}");
        Ok(())
    }

    /// Records the server during the action and for some time after it.
    pub(super) fn record(
        &mut self,
        action: impl FnOnce(&mut Self) -> Result<()>,
        more: Duration,
    ) -> Result<Profile> {
        self.control(&["instrumentation on"])?;
        let before = self.written_bytes()?;
        action(self)?;
        thread::sleep(more);
        let written_bytes = self.written_bytes()?.saturating_sub(before);
        self.control(&["instrumentation off", "dump"])?;
        self.dumps += 1;
        let path = profile(&self.folder).with_extension(self.dumps.to_string());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let profile =
            Profile::parse(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        Ok(Profile { written_bytes, ..profile })
    }

    /// The bytes that the server has passed to the system.
    fn written_bytes(&self) -> Result<u64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.service.id()))?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        Ok(written.context("/proc/PID/io does not count the written bytes")?.parse()?)
    }

    /// Gives commands to callgrind. `callgrind_control` gives the same commands in the same way.
    fn control(&self, commands: &[&str]) -> Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(control(&self.folder)).arg(format!("--pid={}", self.service.id()));
        vgdb.arg(format!("--cmd-time-out={CONTROL_LIMIT}"));
        for command in commands {
            vgdb.arg("-c").args(command.split(' '));
        }
        let output = vgdb.output().context("cannot start vgdb")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "vgdb ended with {}: {}", output.status, printed.trim());
        Ok(())
    }
}

/// The folder of the store.
pub(super) fn store(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// The file of callgrind, without the number that each dump gets.
fn profile(folder: &Path) -> PathBuf {
    folder.join("callgrind")
}

/// The argument by which valgrind and vgdb find each other.
fn control(folder: &Path) -> String {
    format!("--vgdb-prefix={}", folder.join("vgdb").display())
}
