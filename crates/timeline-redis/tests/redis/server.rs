//! A Redis of a test's own, which keeps nothing.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How often it is asked whether it is there, every [`BEAT`].
const BEATS: usize = 1000;

const BEAT: Duration = Duration::from_millis(20);

/// A server that ends with the test.
#[derive(Debug)]
pub(crate) struct Redis {
    port: u16,
    directory: TempDir,
    child: Option<Child>,
}

impl Redis {
    /// Starts one. Where Redis is not installed, says so in a line and gives `None`; with `CI=true` that is a
    /// failure.
    pub(crate) fn start() -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut redis = Self { port, directory: tempfile::tempdir().unwrap(), child: None };
        redis.begin().then_some(redis)
    }

    /// Starts it, and waits until it answers. `false` where there is none to start.
    pub(crate) fn begin(&mut self) -> bool {
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
                return false;
            }
            Err(error) => panic!("redis-server: {error}"),
        }
        for _ in 0..BEATS {
            if self.try_to_say("PING").is_ok_and(|answer| answer == "+PONG") {
                return true;
            }
            thread::sleep(BEAT);
        }
        panic!("redis-server did not answer on port {}", self.port);
    }

    /// Kills it: all that it knew is lost.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// From now on it takes connections and answers nothing.
    pub(crate) fn hang(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on where it hung.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Says a line to it, and gives the first line of the answer.
    pub(crate) fn say(&self, line: &str) -> String {
        self.try_to_say(line).unwrap()
    }

    fn try_to_say(&self, line: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        write!(stream, "{line}\r\n")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
