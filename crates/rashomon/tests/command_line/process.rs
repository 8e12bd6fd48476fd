//! Runs the binary in a separate directory, and checks its output and its exit code.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    thread,
    time::Duration,
};

use rashomon_clock::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal};

/// A command that runs the binary in `directory`, only with the settings of the test.
pub(crate) fn rashomon(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rashomon"));
    let settings = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("RASHOMON_"));
    settings.for_each(|name| {
        command.env_remove(name);
    });
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// The output and the exit code of a run of the binary.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    /// The exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProcessOutput {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Asserts that the process ended with this exit code.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.shows_no_internals()
    }

    /// Asserts that standard error contains all these texts.
    #[track_caller]
    pub(crate) fn stderr_contains(self, words: &[&str]) -> Self {
        words.iter().for_each(|word| assert!(self.stderr.contains(word), "no {word:?} in {self:#?}"));
        self
    }

    /// Asserts that standard output contains all these texts.
    #[track_caller]
    pub(crate) fn stdout_contains(self, words: &[&str]) -> Self {
        words.iter().for_each(|word| assert!(self.stdout.contains(word), "no {word:?} in {self:#?}"));
        self
    }

    /// Asserts that standard error, which people read, has no panic and no debug output.
    #[track_caller]
    fn shows_no_internals(self) -> Self {
        for internal in ["panicked", "RUST_BACKTRACE", "Err(", "Some(", "Error {", "kind:", "Os {"] {
            assert!(!self.stderr.contains(internal), "{internal:?} in {self:#?}");
        }
        self
    }
}

/// Runs the binary to its end.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> ProcessOutput {
    finish(rashomon(directory).args(arguments))
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> ProcessOutput {
    ProcessOutput::of(command.output().expect("the binary runs"))
}

/// Waits until the condition is true, and panics after a timeout.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    /// A timeout that no step of a test reaches, even on a busy machine.
    const TEST_TIMEOUT: Duration = Duration::from_secs(120);
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < TEST_TIMEOUT, "{what}: not within {TEST_TIMEOUT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A running process, which is killed if the test ends earlier.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    child: Option<Child>,
    stdout: BufReader<ChildStdout>,
}

impl RunningProcess {
    /// Starts a command whose standard output is read line by line.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child: Some(child), stdout }
    }

    /// Starts a command like [`Self::start`], with standard error in a file.
    #[allow(dead_code, reason = "not every test binary with this module needs it")]
    pub(crate) fn start_with_log(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("the file can be created");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child: Some(child), stdout }
    }

    /// Returns the next line of standard output without its line end. Empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("UTF-8");
        line.trim_end().to_owned()
    }

    /// Reads the line that a server prints when it listens, and returns the address in the line.
    pub(crate) fn address(&mut self) -> String {
        let line = self.line();
        let address = line.split("://").nth(1).and_then(|rest| rest.split([' ', '/', ',']).next());
        address.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Takes the writer of the standard input of the process, which must be a pipe.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.as_mut().and_then(|child| child.stdin.take()).expect("it is piped")
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(self.child.as_ref().expect("it runs"));
        rustix::process::kill_process(id, signal).expect("it can be signalled");
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(mut self) -> ProcessOutput {
        let child = self.child.take().expect("it runs");
        let mut stdout = Vec::new();
        let output = thread::scope(|scope| {
            // Both pipes are read concurrently: the process does not end while one of them is full.
            scope.spawn(|| self.stdout.read_to_end(&mut stdout).expect("a pipe can be read"));
            child.wait_with_output().expect("it ends")
        });
        ProcessOutput::of(Output { stdout, ..output })
    }

    /// Asks the process to end, and waits for its end.
    pub(crate) fn stop(self) -> ProcessOutput {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
