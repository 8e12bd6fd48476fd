//! One program that runs on a store of its own, and its answers.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    compare::{Answer, find_tid},
    frozen::FrozenClock,
    script::Step,
};
use crate::{
    process::Stopwatch,
    service::{Service, free_address},
};

/// The tid that replaces `{tid:N}` in a request if no answer has contained a tid yet.
const NO_TID: &str = "00000000-0000-1000-8000-000000000000";
/// The time limit of an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for a server to become ready, or to become idle.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A server counts as idle if none of its threads has run during this many checks in a row. The threads sleep
/// while they wait for an answer of a Cassandra node, so a cluster needs more checks.
const IDLE_CHECKS: u32 = 5;
const IDLE_CHECKS_ON_CLUSTER: u32 = 40;
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// The environment of a program.
#[derive(Debug)]
pub(super) struct ProgramSetup {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    /// The store, as `--store` takes it.
    pub(super) store: String,
    /// The settings, without the store.
    pub(super) settings: String,
    /// The time of the clock at first, in microseconds since 1970.
    pub(super) start: i64,
}

impl ProgramSetup {
    /// The keyspace of a store on Cassandra.
    fn keyspace(&self) -> Option<&str> {
        let path = self.store.strip_prefix("cassandra://")?.split_once('/')?.1;
        Some(path.split_once('?').map_or(path, |(keyspace, _)| keyspace))
    }
}

/// A program and its store.
#[derive(Debug)]
pub(super) struct World {
    setup: ProgramSetup,
    clock: FrozenClock,
    servers: Vec<Option<Service>>,
    /// The number of processes started so far. Each draws other random bytes.
    processes: u64,
    tids: Vec<String>,
    answers: Vec<Answer>,
}

impl World {
    /// Makes a new world. Deletes the folder of an earlier one.
    pub(super) fn new(setup: ProgramSetup, servers: usize) -> Result<Self> {
        if setup.folder.exists() {
            fs::remove_dir_all(&setup.folder)?;
        }
        fs::create_dir_all(&setup.folder)?;
        fs::write(setup.folder.join("rashomon.toml"), &setup.settings)?;
        let clock = FrozenClock::new(&setup.folder, setup.start)?;
        let servers = (0..servers).map(|_| None).collect();
        Ok(Self { setup, clock, servers, processes: 0, tids: Vec::new(), answers: Vec::new() })
    }

    /// Carries out all steps. Then runs `migrate --verify` on the store: the output of this command, which
    /// has the digests of all tables, is the last answer.
    pub(super) fn run(mut self, script: &[Step]) -> Result<Vec<Answer>> {
        for step in script {
            self.step(step).with_context(|| format!("{step:?}").chars().take(300).collect::<String>())?;
        }
        let copy = self.setup.folder.join("copy");
        let digests = ["migrate", "--verify", "--from", &self.setup.store, "--to"].map(str::to_owned);
        let digests: Vec<_> = digests.into_iter().chain([format!("sqlite:{}", copy.display())]).collect();
        self.stop()?;
        self.answer(&digests, &[])?;
        Ok(self.answers)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Advance(micros) => self.advance(*micros),
            Step::Request { server, method, path, kind, body } => {
                self.request(*server, method, path, kind, body)
            }
            Step::Command(words) => self.command(words, &[]),
            Step::Import { options, dump } => {
                let file = self.setup.folder.join("dump.jsonl");
                fs::write(&file, dump)?;
                self.command(options, &[file.as_path()])
            }
        }
    }

    /// Moves the clock ahead, and wakes the servers, so that they notice which of their timers have expired.
    fn advance(&mut self, micros: i64) -> Result<()> {
        self.clock.advance(micros)?;
        for number in 0..self.servers.len() {
            if let Some(server) = &self.servers[number] {
                exchange(server.address(), b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
                self.wait_until_idle(number)?;
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        for server in self.servers.iter_mut().filter_map(Option::take) {
            let output = server.output();
            let status = server.stop()?;
            ensure!(status.success(), "a server ended with {status}: {output}");
        }
        Ok(())
    }

    fn environment(&mut self) -> Vec<(String, String)> {
        self.processes += 1;
        self.clock.environment(self.processes)
    }

    fn server(&mut self, number: usize) -> Result<SocketAddr> {
        if let Some(server) = &self.servers[number] {
            return Ok(server.address());
        }
        let address = free_address()?;
        let mut command = Command::new(&self.setup.binary);
        command.arg("serve").arg("--config").arg(self.setup.folder.join("rashomon.toml"));
        command.args(["--store", &self.setup.store, "--listen", &address.to_string()]);
        command.envs(self.environment());
        let service =
            Service::start_command(address, command, &self.setup.folder.join(format!("log-{number}")))?;
        self.servers[number] = Some(service);
        let clock = Stopwatch::start();
        while !exchange(address, b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")?
            .starts_with(b"HTTP/1.0 200")
        {
            ensure!(clock.elapsed() < READY_LIMIT, "a server does not become ready");
            thread::sleep(Duration::from_millis(20));
        }
        // Let the server finish the work of its start.
        self.wait_until_idle(number)?;
        Ok(address)
    }

    /// Waits until a server's background work is done. Without the wait, this work would draw random bytes
    /// and read the clock at another time in each run.
    fn wait_until_idle(&self, number: usize) -> Result<()> {
        let Some(server) = &self.servers[number] else { return Ok(()) };
        let enough = if self.setup.keyspace().is_some() { IDLE_CHECKS_ON_CLUSTER } else { IDLE_CHECKS };
        let (mut checks, mut last, clock) = (0, 0, Stopwatch::start());
        while checks < enough {
            ensure!(clock.elapsed() < READY_LIMIT, "a server does not become idle");
            thread::sleep(POLL_INTERVAL);
            let switches = context_switches(server.id())?;
            checks = if switches == last { checks + 1 } else { 0 };
            last = switches;
        }
        Ok(())
    }

    fn request(&mut self, server: usize, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<()> {
        let path = self.with_tid(path);
        let address = self.server(server)?;
        let mut request = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n").into_bytes();
        if !kind.is_empty() {
            write!(request, "Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())?;
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        let given = exchange(address, &request)?;
        self.wait_until_idle(server)?;
        if method == "POST"
            && let text = String::from_utf8_lossy(&given)
            && let Some(at) = find_tid(&text)
        {
            self.tids.push(text[at..at + NO_TID.len()].to_owned());
        }
        self.answers.push(Answer { asked: format!("{method} {path}"), given });
        Ok(())
    }

    /// Replaces `{tid:N}` in a path by a tid of an earlier answer.
    fn with_tid(&self, path: &str) -> String {
        let Some((before, rest)) = path.split_once("{tid:") else { return path.to_owned() };
        let (number, after) = rest.split_once('}').unwrap_or((rest, ""));
        let number = number.parse::<usize>().unwrap_or(0).checked_rem(self.tids.len());
        let tid = number.map_or(NO_TID, |number| &self.tids[number]);
        format!("{before}{tid}{after}")
    }

    fn command(&mut self, words: &[String], files: &[&Path]) -> Result<()> {
        if self.setup.keyspace().is_none() {
            self.stop()?;
        }
        let mut words = words.to_vec();
        let config = self.setup.folder.join("rashomon.toml").to_string_lossy().into_owned();
        words.extend(["--config".to_owned(), config, "--store".to_owned(), self.setup.store.clone()]);
        self.answer(&words, files)
    }

    /// Removes the names of the folder and of the keyspace from a text, since they differ between the two
    /// programs.
    fn without_own_names(&self, text: &str) -> String {
        let text = text.replace(&*self.setup.folder.to_string_lossy(), "<folder>");
        match self.setup.keyspace() {
            Some(keyspace) => text.replace(keyspace, "<keyspace>"),
            None => text,
        }
    }

    /// Runs a command, and records its output and its exit status.
    fn answer(&mut self, words: &[String], files: &[&Path]) -> Result<()> {
        let log = self.setup.folder.join("errors");
        let mut command = Command::new(&self.setup.binary);
        command
            .args(words)
            .args(files)
            .envs(self.environment())
            .stdin(Stdio::null())
            .stderr(File::create(&log)?);
        let output = command.output().context("cannot start the program")?;
        let mut given = format!("{}\n", output.status).into_bytes();
        given.extend_from_slice(&output.stdout);
        given.extend_from_slice(&fs::read(&log)?);
        let given = self.without_own_names(&String::from_utf8_lossy(&given));
        let asked = self.without_own_names(&words.join(" "));
        self.answers.push(Answer { asked, given: given.into_bytes() });
        Ok(())
    }
}

/// The number of context switches of a process, summed over its present threads.
fn context_switches(process: u32) -> Result<u64> {
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile.
        let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        switches += counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(switches)
}

/// Sends a request, and returns the whole answer.
fn exchange(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
