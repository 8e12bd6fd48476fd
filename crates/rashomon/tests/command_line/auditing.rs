//! The audit log of `rashomon serve`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{
    http::{get, post, request},
    process::{RunningProcess, finish, rashomon, run, wait_until},
};

/// A server in memory with an audit log in `audit.log`, and with these additional arguments.
fn serve(arguments: &[&str]) -> (TempDir, RunningProcess, String) {
    let directory = tempdir().unwrap();
    let (server, address) = serve_in(&directory, arguments);
    (directory, server, address)
}

fn serve_in(directory: &TempDir, arguments: &[&str]) -> (RunningProcess, String) {
    let mut command = rashomon(directory.path());
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--audit-log", "audit.log"]);
    let mut server = RunningProcess::start(command.args(arguments));
    let address = server.address();
    (server, address)
}

/// Stores a revision.
#[track_caller]
fn write(address: &str, number: u32) {
    let answer = post(address, "/v1/wiki/page/A?rev/", &format!("_rev={number}&html=words-of-the-body"));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// The complete lines of an audit log. A line that is still being written is left out.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[track_caller]
fn wait_for_lines(file: &Path, count: usize) {
    wait_until("the lines are written", || lines(file).len() == count);
}

/// The value of a metric of the audit log.
fn metric(address: &str, name: &str) -> u64 {
    let metrics = get(address, "/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&format!("rashomon_audit_{name} ")));
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[test]
fn last_lines_are_written_when_the_server_stops() {
    let (directory, server, address) = serve(&[]);
    (1..=20).for_each(|number| write(&address, number));
    get(&address, "/v1/wiki/page/A?rev/latest/html");
    server.stop().ends_with(0);
    let lines = lines(&directory.path().join("audit.log"));
    assert_eq!(lines.len(), 20);
    for line in &lines {
        assert_eq!(
            (&line["method"], &line["status"], &line["write"]),
            (&"POST".into(), &201.into(), &"done".into())
        );
        assert_eq!((&line["address"], &line["path"]), (&"127.0.0.1".into(), &"/v1/wiki/page/A?rev/".into()));
        assert!(!line.to_string().contains("words-of-the-body"), "{line}");
    }
}

#[test]
fn aborted_import_has_a_line() {
    let (directory, server, address) = serve(&["--shutdown-grace", "1s"]);
    let mut stream = TcpStream::connect(&address).unwrap();
    let part = "<mediawiki><page>";
    write!(stream, "POST /v1/wiki/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{part}")
        .unwrap();
    let received = format!("rashomon_http_received_bytes_total {}", part.len());
    wait_until("the import has begun", || get(&address, "/metrics").contains(&received));
    server.stop().ends_with(0);
    let lines = lines(&directory.path().join("audit.log"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["status"], &lines[0]["write"]), (&Value::Null, &"begun".into()));
    assert_eq!(lines[0]["bytes"], part.len());
}

#[test]
fn renamed_file_is_opened_again_at_sighup() {
    let (directory, server, address) = serve(&[]);
    let (file, old) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
    write(&address, 1);
    wait_for_lines(&file, 1);
    fs::rename(&file, &old).unwrap();
    server.signal(Signal::HUP);
    wait_until("the file is created", || file.exists());
    write(&address, 2);
    wait_for_lines(&file, 1);
    // The file is renamed a second time.
    fs::rename(&file, directory.path().join("audit.log.2")).unwrap();
    server.signal(Signal::HUP);
    wait_until("the file is created", || file.exists());
    write(&address, 3);
    wait_for_lines(&file, 1);
    assert_eq!(lines(&old).len(), 1);
    assert_eq!(metric(&address, "lines_total"), 3);
    server.stop().ends_with(0).stderr_contains(&["SIGHUP", "the audit log was opened again"]);
}

#[test]
fn sighup_does_not_end_a_server_without_an_audit_log() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server =
        RunningProcess::start(command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]));
    let address = server.address();
    server.signal(Signal::HUP);
    server.signal(Signal::HUP);
    write(&address, 1);
    assert!(!get(&address, "/metrics").contains("rashomon_audit"));
    server.stop().ends_with(0).stderr_contains(&["SIGHUP"]);
}

#[test]
fn full_disk_stops_no_write_and_is_counted() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("audit.log");
    symlink("/dev/full", &file).unwrap();
    let (server, address) = serve_in(&directory, &[]);
    (1..=3).for_each(|number| write(&address, number));
    let lost = || metric(&address, "lost_lines_total{reason=\"write_failed\"}");
    wait_until("the lost lines are counted", || lost() == 3);
    assert_eq!(metric(&address, "lines_total"), 0);
    fs::remove_file(&file).unwrap();
    write(&address, 4);
    wait_for_lines(&file, 1);
    assert_eq!((lost(), metric(&address, "lines_total")), (3, 1));
    let ran = server.stop().ends_with(0);
    let warnings = ran.stderr.lines().filter(|line| line.contains("the audit log cannot be written")).count();
    assert_eq!(warnings, 1, "the failure is logged once a minute: {}", ran.stderr);
    ran.stderr_contains(&["No space left", "free disk space", "the audit log is written again", "lost=3"]);
}

#[cfg(target_os = "linux")]
#[test]
fn blocked_pipe_stops_no_request_and_takes_bounded_memory() {
    const REQUESTS: u64 = 12_000;
    let directory = tempdir().unwrap();
    let pipe = directory.path().join("audit.log");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (server, address) = serve_in(&directory, &["--access-log", "off"]);
    write(&address, 1);
    let memory = |field: &str| {
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
    };
    let before = memory("VmRSS:");
    let stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut requests = &stream;
    let refused = format!("DELETE /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(2_000));
    for _ in 0..REQUESTS {
        requests.write_all(refused.as_bytes()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 404"), "{line}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
    write(&address, 2);
    let lost = metric(&address, "lost_lines_total{reason=\"queue_full\"}");
    assert!(lost > 0 && lost < REQUESTS, "{lost}");
    let more = memory("VmHWM:") - before;
    assert!(more < 64 << 20, "{} MiB more than before", more >> 20);
    // The server also stops although nobody reads the lines.
    server.stop().ends_with(0).stderr_contains(&["the audit log is written too slowly", "the last lines"]);
}

/// The audit log is closed last, and waits a few seconds for the blocked pipe.
#[cfg(target_os = "linux")]
#[test]
fn second_signal_ends_a_server_at_once_while_the_audit_log_is_closed() {
    // More bytes than a pipe takes.
    const REQUESTS: usize = 1_000;
    let directory = tempdir().unwrap();
    let (pipe, log) = (directory.path().join("audit.log"), directory.path().join("log"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut command = rashomon(directory.path());
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--audit-log", "audit.log"]);
    let mut server = RunningProcess::start_with_log(command.args(["--access-log", "off"]), &log);
    let address = server.address();
    let path = format!("/{}", "x".repeat(2_000));
    for _ in 0..REQUESTS {
        let answer = request(&address, "DELETE", &path, "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let logged = || fs::read_to_string(&log).unwrap();
    server.signal(Signal::TERM);
    wait_until("the store is closed", || logged().contains("the store is closed"));
    // Meanwhile the threads of the server end.
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::INT);
    server.wait().ends_with(130);
    assert!(logged().contains("ended at once by the second signal"), "{}", logged());
}

#[test]
fn file_that_cannot_be_opened_is_an_error_that_names_the_cure() {
    let directory = tempdir().unwrap();
    let words =
        ["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--audit-log", "missing/audit.log"];
    run(directory.path(), &words).ends_with(1).stderr_contains(&[
        "missing/audit.log",
        "No such file or directory",
        "create its directory",
    ]);
    let mut command = rashomon(directory.path());
    command.env("RASHOMON_AUDIT_LOG", "");
    finish(command.args(["serve", "--store", "memory:"]))
        .ends_with(2)
        .stderr_contains(&["RASHOMON_AUDIT_LOG"]);
}

#[test]
fn lines_on_standard_error_are_beside_the_log() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    command.env("RASHOMON_AUDIT_LOG", "stderr");
    let mut server =
        RunningProcess::start(command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]));
    let address = server.address();
    write(&address, 1);
    server.signal(Signal::HUP);
    let answer = request(&address, "DELETE", "/v1/wiki/page/A", "");
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    let ran = server.stop().ends_with(0);
    let lines: Vec<Value> = (ran.stderr.lines().filter(|line| line.starts_with("{\"time\":")))
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses, [201, 405], "{}", ran.stderr);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
