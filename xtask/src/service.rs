//! Starts and stops servers, in particular the service itself.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Stopwatch, kill_group};

/// The time limit until the service accepts connections, also after a crash.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time limit until the service has finished accepted requests and has ended.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A process that accepts connections. Dropping the value kills the process.
#[derive(Debug)]
pub struct Service {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started_in: Duration,
}

impl Service {
    /// Starts `binary` with `arguments` and `--listen` on a free port of the loopback. Its output goes to
    /// `log`. Waits until the process accepts connections.
    pub fn start<S: AsRef<OsStr>>(binary: &Path, arguments: &[S], log: &Path) -> Result<Self> {
        let address = free_address()?;
        let listen = ["--listen".into(), address.to_string().into()];
        let all: Vec<OsString> = arguments.iter().map(Into::into).chain(listen).collect();
        Self::start_at(address, binary, &all, log)
    }

    /// Starts a program that listens on an address from its arguments or its settings.
    pub fn start_at<S: AsRef<OsStr>>(
        address: SocketAddr,
        binary: &Path,
        arguments: &[S],
        log: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(arguments);
        Self::start_command(address, command, log)
    }

    /// Starts a command that listens on an address.
    pub fn start_command(address: SocketAddr, mut command: Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let clock = Stopwatch::start();
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let mut service = Self { child, address, log: log.to_owned(), started_in: Duration::ZERO };
        while TcpStream::connect(address).is_err() {
            if let Some(status) = service.child.try_wait()? {
                bail!("the server ended at its start, {status}: {}", service.output());
            }
            ensure!(clock.elapsed() < START_LIMIT, "the server takes no connections: {}", service.output());
            thread::sleep(Duration::from_millis(2));
        }
        service.started_in = clock.elapsed();
        Ok(service)
    }

    /// The address on which the process listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The time until the process accepted connections.
    #[must_use]
    pub const fn started_in(&self) -> Duration {
        self.started_in
    }

    /// The last part of the output.
    #[must_use]
    pub fn output(&self) -> String {
        const MAX: usize = 8_000;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let start = text.char_indices().rev().nth(MAX).map_or(0, |(at, _)| at);
        text[start..].to_owned()
    }

    /// Kills the process with SIGKILL, so that it cannot finish anything.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the process with SIGSTOP until [`Self::resume`]. A stopped process does not answer.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the paused process.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Asks the process with SIGTERM to end, and waits for its end.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let clock = Stopwatch::start();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(clock.elapsed() < STOP_LIMIT, "the server did not end: {}", self.output());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_group(&mut self.child);
        }
    }
}

/// Returns a free address on the loopback. Another process may take it first; then the caller's process fails
/// to start.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
