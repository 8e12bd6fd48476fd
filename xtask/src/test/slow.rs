//! Checks that slow clients do not delay other clients: slowhttptest opens hundreds of connections while other requests
//! are answered.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{Outcome, resources::StepResources, steps};
use crate::{
    http::Client,
    process::{kill_group, log_file},
    service::Service,
    tools::Tool,
};

/// The number of slow connections, the number that is opened per second, and the seconds for which they are held.
const CONNECTIONS: &str = "300";
const PER_SECOND: &str = "150";
const SECONDS: &str = "12";

/// The minimum number of slow connections that must be open at once.
const MIN_CONNECTED: u64 = 200;

/// The page that slow clients read and write. It is larger than what the buffers of a connection hold.
const PAGE: &str = "/v1/slow/page/Slow";
const PAGE_BYTES: usize = 900_000;

/// The pause between two requests of another client.
const PAUSE: Duration = Duration::from_millis(20);

/// A kind of slow clients, and the arguments of slowhttptest for it. The path of the requests comes last.
const KINDS: [(&str, &[&str], &str); 3] = [
    ("heads", &["-H", "-i", "4"], "?rev/latest/html"),
    (
        "bodies",
        &["-B", "-i", "4", "-s", "8192", "-t", "POST", "-f", "application/x-www-form-urlencoded"],
        "?rev/",
    ),
    ("readers", &["-X", "-w", "512", "-y", "1024", "-n", "4", "-z", "64"], "?rev/latest/html"),
];

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let program = resources.toolbox.fetch(Tool::SlowHttpTest)?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let log = log_file("slow-service");
    let server =
        Service::start(&steps::binary(), &["serve".as_ref(), "--data".as_ref(), data.as_os_str()], &log)?;
    let mut next = NextRevision(1);
    next.post(&mut Client::connect(server.address())?, PAGE, &"x".repeat(PAGE_BYTES))?;
    let mut remarks = Vec::new();
    for (kind, arguments, query) in KINDS {
        let url = format!("http://{}{PAGE}{query}", server.address());
        let answered = read_and_write_beside(&program, kind, arguments, &url, &server, &mut next)
            .with_context(|| format!("beside slow {kind}; the log of the server is {}", log.display()))?;
        remarks.push(format!("{answered} requests beside slow {kind}"));
    }
    ensure!(server.stop()?.success(), "the server ended with an error, see {}", log.display());
    Ok(Outcome::Passed(remarks.join(", ")))
}

/// Reads and writes while slow clients are connected, with new connections too. Returns the number of answers.
fn read_and_write_beside(
    program: &Path,
    kind: &str,
    arguments: &[&str],
    url: &str,
    server: &Service,
    next: &mut NextRevision,
) -> Result<u64> {
    let mut slow = Slow::start(program, kind, arguments, url)?;
    let mut kept_alive = Client::connect(server.address())?;
    let mut answered = 0;
    while !slow.has_ended()? {
        next.post(&mut kept_alive, "/v1/slow/page/Other", "small")?;
        let (status, body) = Client::connect(server.address())?.get("/v1/slow/page/Other?rev/latest/html")?;
        ensure!(status == 200 && body == b"small", "a read was answered with {status}");
        answered += 2;
        thread::sleep(PAUSE);
    }
    let log = log_file(&format!("slow-{kind}"));
    let printed = without_colours(&fs::read_to_string(&log)?);
    let connected = most_connected(&printed);
    ensure!(
        connected >= MIN_CONNECTED,
        "at most {connected} slow clients were connected, see {}",
        log.display()
    );
    ensure!(is_available(&printed), "the server did not answer slowhttptest in time, see {}", log.display());
    Ok(answered)
}

/// Removes the codes for colours from the output of slowhttptest.
fn without_colours(printed: &str) -> String {
    let mut pieces = printed.split("\u{1b}[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // A code ends with a letter.
        text.push_str(
            piece.split_once(|letter: char| letter.is_ascii_alphabetic()).map_or("", |(_, rest)| rest),
        );
    }
    text
}

/// The values of a line that slowhttptest prints every few seconds.
fn values<'a>(printed: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    printed.lines().filter_map(move |line| Some(line.trim().strip_prefix(name)?.trim()))
}

/// The greatest number of connections that were open at once.
fn most_connected(printed: &str) -> u64 {
    values(printed, "connected:").filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

/// Whether each request that slowhttptest has sent by itself was answered in time.
fn is_available(printed: &str) -> bool {
    let mut answers = values(printed, "service available:").peekable();
    answers.peek().is_some() && answers.all(|answer| answer == "YES")
}

/// The number of the next revision.
struct NextRevision(u64);

impl NextRevision {
    /// Posts the next revision.
    fn post(&mut self, client: &mut Client, page: &str, html: &str) -> Result<()> {
        let body = format!("_rev={}&html={html}", self.0);
        self.0 += 1;
        let request = format!(
            "POST {page}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, body) = client.send(request.as_bytes())?;
        ensure!(status == 201, "a write was answered with {status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}

/// slowhttptest, which ends by itself. Dropping the value kills it.
struct Slow(Child);

impl Slow {
    fn start(program: &Path, kind: &str, arguments: &[&str], url: &str) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let log = fs::File::create(log_file(&format!("slow-{kind}")))?;
        let child = Command::new(program)
            .args(["-c", CONNECTIONS, "-r", PER_SECOND, "-l", SECONDS, "-p", "3", "-u", url])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            kill_group(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_slowhttptest_is_read() {
        let line = |connected: &str, available: &str| {
            format!(
                "\u{1b}[1;32mconnected:   \u{1b}[1;32m        {connected}\n\u{1b}[1;32mservice available:\u{1b}[1;32m   \
                 \u{1b}[1;32m{available}\u{1b}[0m\n"
            )
        };
        let good = without_colours(&(line("7", "YES") + &line("300", "YES") + &line("12", "YES")));
        assert_eq!((most_connected(&good), is_available(&good)), (300, true));
        let bad = without_colours(&(line("300", "YES") + &line("300", "NO")));
        assert!(!is_available(&bad));
        assert_eq!((most_connected(""), is_available("")), (0, false));
    }
}
