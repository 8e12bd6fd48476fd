//! Finds and runs other programs. [`run_logged`] writes all of a program's output to a file and some of it to the
//! screen, and has a time limit.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// The maximum number of lines of a program that are shown while it runs. The file has all of them.
const MAX_SHOWN: usize = 1_000;
/// The number of the last lines of a failed program that are shown.
const TAIL_LINES: usize = 60;
/// The maximum length of a line on the screen. Longer lines are cut.
const MAX_LINE: usize = 400;

/// The arguments of cargo for the whole workspace. They are always the same, so that nothing is compiled twice.
pub(crate) const EVERYTHING: &[&str] = &["--workspace", "--all-features", "--locked"];

/// The cargo that runs this program, or else the one in the path.
#[must_use]
fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A command of cargo.
///
/// The build server compiles each crate once. There, the results for faster later compilations would only fill
/// the disk.
#[must_use]
pub fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    if on_build_server() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The command that checks whether all code is formatted.
pub(crate) fn formatting_command() -> Command {
    let mut command = cargo_command();
    command.args(["fmt", "--all", "--", "--check", "--files-with-diff"]).current_dir(crate::root());
    command
}

/// Whether the program runs on the build server: `CI=true`.
pub(crate) fn on_build_server() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// The cargo command for the whole workspace. Everything that compiles the project's crates for tests uses it.
///
/// Clippy compiles the crates. It is rustc with more lints, so one compilation serves the lints, the programs and
/// the tests.
pub(crate) fn cargo_with_clippy(subcommand: &str) -> Result<Command> {
    let clippy = beside_cargo("clippy-driver");
    let clippy = clippy.context("clippy is missing: install it (`rustup component add clippy`)")?;
    let mut command = cargo_command();
    command.arg(subcommand).args(EVERYTHING).env("RUSTC_WORKSPACE_WRAPPER", clippy);
    Ok(command)
}

/// The program that belongs to cargo: in the folder of cargo, or else in the path.
pub(crate) fn beside_cargo(name: &str) -> Option<PathBuf> {
    let beside = Path::new(&cargo()).with_file_name(name);
    if beside.is_file() { Some(beside) } else { find_program(name) }
}

/// The full path of a program, if it can be found in the path.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The file for the output of a program.
pub(crate) fn log_file(name: &str) -> PathBuf {
    crate::target().join("xtask").join(format!("{name}.log"))
}

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    /// The exit status.
    pub status: ExitStatus,
    /// The file with all of its output.
    pub log: PathBuf,
    /// The lines that were shown, up to a limit.
    pub shown: Vec<String>,
}

/// Runs a command to its end. Its output goes to `log`, and the lines that `worth_showing` selects go to the
/// screen. If the command takes longer than `limit`, it is killed with everything that it started, and an
/// error is returned.
pub fn run_logged(
    mut command: Command,
    log: &Path,
    limit: Duration,
    worth_showing: fn(&str) -> bool,
) -> Result<Finished> {
    let folder = log.parent().context("the path of the log has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    writeln!(file, "{command:?}")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let lines = output_lines(&mut child);

    let name = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut screen = Screen { name, ..Screen::default() };
    let limit_millis = limit.as_millis();
    let clock = Stopwatch::start();
    loop {
        let left = limit_millis.saturating_sub(clock.elapsed().as_millis());
        match lines.recv_timeout(Duration::from_millis(u64::try_from(left)?)) {
            Ok(line) => {
                writeln!(file, "{line}")?;
                screen.line(line, worth_showing);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill_group(&mut child);
                bail!("{:?} took longer than {limit:?}; see {}", command.get_program(), log.display());
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        screen.print_tail();
    }
    Ok(Finished { status, log: log.to_owned(), shown: screen.shown })
}

/// Kills a program that leads its own process group, with everything in the group.
pub fn kill_group(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    // If the program has just ended by itself, there is nothing to kill.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

/// Reads both outputs of a program line by line. The channel ends when both outputs do.
fn output_lines(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        forward_lines(out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        forward_lines(err, sender);
    }
    receiver
}

fn forward_lines(output: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if lines.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[derive(Debug, Default)]
struct Screen {
    /// The name of the log, since several programs may run at once.
    name: String,
    shown: Vec<String>,
    hidden: usize,
    lines: usize,
    /// The last lines, whether they were shown or not.
    tail: std::collections::VecDeque<String>,
}

impl Screen {
    fn line(&mut self, line: String, worth_showing: fn(&str) -> bool) {
        self.lines += 1;
        if worth_showing(&line) {
            if self.shown.len() < MAX_SHOWN {
                println!("    {}: {}", self.name, cut(&line));
                self.shown.push(line.clone());
            } else {
                self.hidden += 1;
            }
        }
        self.tail.push_back(line);
        if self.tail.len() > TAIL_LINES {
            self.tail.pop_front();
        }
    }

    fn print_tail(&self) {
        if self.shown.len() == self.lines {
            return;
        }
        if self.hidden > 0 {
            println!("    {}: ... {} more lines are in the log", self.name, self.hidden);
        }
        println!("    {}: the last lines of the output", self.name);
        for line in &self.tail {
            println!("    {}: {}", self.name, cut(line));
        }
    }
}

/// Cuts a line for the screen.
pub(crate) fn cut(line: &str) -> &str {
    line.char_indices().nth(MAX_LINE).map_or(line, |(end, _)| &line[..end])
}

/// Measures elapsed time.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts measuring.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // Nothing here is tested with another clock.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
