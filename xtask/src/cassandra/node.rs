//! The process of one node.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, test_kill_process},
};

use super::server::CERTIFICATE;
use crate::process::{Stopwatch, cut};

/// The variable with the address of the node that tests use.
pub(crate) const FOR_TESTS: &str = "RASHOMON_TEST_CASSANDRA";

/// The time limit until a node accepts CQL connections, on a machine that does other work too.
const START_LIMIT: Duration = Duration::from_secs(180);
/// The time limit until a node has ended after it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two checks of a node that starts or ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The number of lines of a node's log that are shown after a failure.
const LOG_LINES: usize = 40;

/// A node that this process started. Dropping the value kills the node.
#[derive(Debug)]
pub struct Node {
    child: Option<Child>,
    number: u8,
    folder: PathBuf,
    nodetool: PathBuf,
}

impl Node {
    /// The host that a node listens on.
    pub(crate) fn host(number: u8) -> String {
        format!("127.0.0.{number}")
    }

    /// The address at which a node accepts CQL connections.
    #[must_use]
    pub fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, number], 9042))
    }

    /// Starts the command in a process group of its own, so that Ctrl-C ends this program but does not
    /// interrupt the node.
    pub(super) fn spawn(
        mut command: Command,
        number: u8,
        folder: PathBuf,
        nodetool: PathBuf,
    ) -> Result<Self> {
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        fs::write(folder.join("pid"), child.id().to_string())?;
        Ok(Self { child: Some(child), number, folder, nodetool })
    }

    /// Waits until the node accepts CQL connections, and clients can log in.
    pub(crate) fn wait(mut self) -> Result<Self> {
        let clock = Stopwatch::start();
        while !takes_cql(self.number) || !self.knows_its_user() {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                bail!("node {} ended at its start, {status}:\n{}", self.number, self.log());
            }
            ensure!(
                clock.elapsed() < START_LIMIT,
                "node {} accepts no clients:\n{}",
                self.number,
                self.log()
            );
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(self)
    }

    /// Whether clients can log in, if a password is required. A new node accepts connections a moment before clients
    /// can log in.
    fn knows_its_user(&self) -> bool {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        !read("cassandra.yaml").contains("PasswordAuthenticator")
            || read("logs/system.log").contains("Created default superuser role")
    }

    /// A program that runs nodetool on the node.
    #[must_use]
    pub fn nodetool(&self) -> &Path {
        &self.nodetool
    }

    /// The folder of a keyspace's tables.
    #[must_use]
    pub fn data(&self, keyspace: &str) -> PathBuf {
        self.folder.join("data").join(keyspace)
    }

    /// The environment variables by which tests find the node.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        let certificate = self.folder.join(CERTIFICATE);
        [
            (FOR_TESTS, Self::address(self.number).to_string()),
            ("RASHOMON_TEST_NODETOOL", self.nodetool.display().to_string()),
            ("RASHOMON_TEST_CASSANDRA_AUTHORITIES", certificate.display().to_string()),
            ("RASHOMON_TEST_CASSANDRA_STORAGE", self.folder.display().to_string()),
        ]
    }

    /// The reason why the node has ended. `None` while it runs.
    pub(crate) fn death(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        Some(format!("node {} ended, {status}:\n{}", self.number, self.log()))
    }

    /// Sends a signal to the node.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("this process does not control the node any more")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Ends the node with a signal, and waits for its end.
    pub(super) fn end(mut self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        let clock = Stopwatch::start();
        while self.child.as_mut().map(Child::try_wait).transpose()?.flatten().is_none() {
            ensure!(clock.elapsed() < STOP_LIMIT, "node {} does not end:\n{}", self.number, self.log());
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Keeps the node running when the value is dropped.
    pub(super) fn leave(mut self) {
        self.child = None;
    }

    /// The last lines of the node's logs.
    fn log(&self) -> String {
        let files = ["logs/output", "logs/system.log"].map(|file| self.folder.join(file));
        let texts = files.iter().map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<_> = text.lines().map(cut).collect();
            let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
            format!("--- the last lines of {}\n{}\n", file.display(), last.join("\n"))
        });
        texts.collect()
    }

    /// The nodes below a folder whose processes run.
    pub(super) fn running_in(ring: &Path) -> Result<Vec<(u8, Pid)>> {
        let mut running = Vec::new();
        for number in 1..=9 {
            let folder = ring.join(format!("n{number}"));
            let Ok(pid) = fs::read_to_string(folder.join("pid")) else { continue };
            let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) else { continue };
            // Another process may have the same process id by now.
            let process = Command::new("ps")
                .args(["-ww", "-o", "command=", "-p", &pid.as_raw_nonzero().to_string()])
                .output()
                .context("cannot run ps")?;
            if String::from_utf8_lossy(&process.stdout).contains(&*folder.to_string_lossy()) {
                running.push((number, pid));
            }
        }
        Ok(running)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The node may have ended by itself; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether the node accepts CQL connections.
pub(super) fn takes_cql(number: u8) -> bool {
    TcpStream::connect_timeout(&Node::address(number), LOOK_INTERVAL).is_ok()
}

/// Asks a node to end, and waits until it has ended. Kills a node that hangs.
pub(super) fn stop(process: Pid) -> Result<()> {
    for signal in [Signal::TERM, Signal::KILL] {
        match kill_process(process, signal) {
            Err(Errno::SRCH) => return Ok(()),
            sent => sent?,
        }
        let clock = Stopwatch::start();
        while clock.elapsed() < STOP_LIMIT {
            if test_kill_process(process) == Err(Errno::SRCH) {
                return Ok(());
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }
    bail!("process {} cannot be ended", process.as_raw_nonzero())
}
