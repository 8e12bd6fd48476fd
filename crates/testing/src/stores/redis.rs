//! A Redis server for a single test. The server stores nothing on disk.
#![allow(clippy::print_stderr)] // Skipped tests are reported.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The maximum number of polls until the server answers.
const MAX_POLLS: usize = 1000;

/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The number of ports that are tried, since other processes may take a port.
const PORTS: usize = 10;

/// How long to wait for an answer. The machine may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The outcome of starting the server.
enum StartOutcome {
    Answers,
    /// The server ended before it answered.
    Ended,
    /// Redis is not installed.
    IsMissing,
}

/// A server that is killed at the end of the test.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    directory: TempDir,
    child: Option<Child>,
}

impl Redis {
    /// Starts a server. If Redis is not installed, prints a message and returns `None`.
    ///
    /// # Panics
    ///
    /// If the server does not answer or ends at once, or if Redis is not installed and the environment has `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mut redis = Self { port: 0, directory, child: None };
        for _ in 0..PORTS {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
            redis.port = listener.local_addr().expect("it is bound").port();
            // Redis cannot choose a port itself, so another process may take this port in the meantime.
            drop(listener);
            match redis.try_to_start() {
                StartOutcome::Answers => return Some(redis),
                StartOutcome::IsMissing => return None,
                StartOutcome::Ended => {}
            }
        }
        panic!("redis-server ended at once on each of {PORTS} ports");
    }

    /// Starts the server again on its port, and waits until the server answers. Returns `false` if Redis is not
    /// installed.
    ///
    /// # Panics
    ///
    /// If the server does not answer or ends at once, or if Redis is not installed and the environment has `CI=true`.
    pub fn restart(&mut self) -> bool {
        match self.try_to_start() {
            StartOutcome::Answers => true,
            StartOutcome::IsMissing => false,
            StartOutcome::Ended => {
                panic!("redis-server ended at once: another process may have port {}", self.port)
            }
        }
    }

    fn try_to_start(&mut self) -> StartOutcome {
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(child) => self.child = Some(child),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let missing = "redis-server is not installed (Debian: apt install redis-server)";
                assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{missing}");
                eprintln!("the timeline in Redis is not tested: {missing}");
                return StartOutcome::IsMissing;
            }
            Err(error) => panic!("redis-server: {error}"),
        }
        for _ in 0..MAX_POLLS {
            if self.is_answering() {
                return StartOutcome::Answers;
            }
            let child = self.child.as_mut().expect("it was started");
            if child.try_wait().expect("it is ours").is_some() {
                self.child = None;
                return StartOutcome::Ended;
            }
            thread::sleep(POLL_INTERVAL);
        }
        panic!("redis-server did not answer on port {}", self.port);
    }

    /// Whether this server answers. Another program may answer on the port; only this server has this directory.
    fn is_answering(&self) -> bool {
        /// The number of lines of the answer: a list of two texts, each after its length.
        const LINES: usize = 5;
        let directory = self.directory.path().canonicalize().expect("it was made");
        self.ask("CONFIG GET dir", LINES)
            .is_ok_and(|lines| lines.last().is_some_and(|line| Some(line.as_str()) == directory.to_str()))
    }

    /// Kills the server. All data of the server is lost.
    ///
    /// # Panics
    ///
    /// If the server cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    /// Suspends the server. A suspended server still accepts connections, but does not answer.
    ///
    /// # Panics
    ///
    /// If the server does not run.
    pub fn hang(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the server after [`Self::hang`].
    ///
    /// # Panics
    ///
    /// If the server does not run.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it is ours");
    }

    /// Returns the URL of the server, as in a configuration.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Sends a line to the server, and returns the first line of the answer.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn command(&self, line: &str) -> String {
        self.try_command(line).expect("it answers")
    }

    fn try_command(&self, line: &str) -> std::io::Result<String> {
        Ok(self.ask(line, 1)?.pop().unwrap_or_default())
    }

    /// Sends a line to the server, and returns this many lines of the answer.
    fn ask(&self, line: &str, lines: usize) -> std::io::Result<Vec<String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        // Another program on this port may never answer.
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        write!(stream, "{line}\r\n")?;
        BufReader::new(stream).lines().take(lines).collect()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
