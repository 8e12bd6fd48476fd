//! Audit logs with real targets.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rashomon_clock::{SystemClock, Timestamp};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::tempdir;

use super::*;

/// A time limit that no step of a test reaches on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(path: &Path) -> AuditLog {
    AuditLog::open(Target::File(path.to_owned()), Arc::new(SystemClock::new())).unwrap()
}

fn add(log: &AuditLog, path: &str) {
    log.write(&Entry {
        time: Timestamp::EPOCH,
        request_id: "1",
        token: None,
        address: None,
        method: "POST",
        path,
        status: Some(201),
        write: Some(WriteState::Done),
        bytes: 0,
        microseconds: 0,
    });
}

/// Adds an entry, and waits until it was written or lost.
#[track_caller]
fn add_and_wait(log: &AuditLog, path: &str) {
    add(log, path);
    assert!(log.0.lines.wait_until_empty(PATIENCE), "lines wait that nobody writes");
}

/// The paths of the entries in a file. A line that is not an entry is shown as it is.
fn paths(file: &Path) -> Vec<String> {
    let path = |line: &str| {
        serde_json::from_str(line).map_or_else(
            |_| line.to_owned(),
            |entry: serde_json::Value| entry["path"].as_str().unwrap().to_owned(),
        )
    };
    fs::read_to_string(file).unwrap().lines().map(path).collect()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn counts(written: u64, lost_to_failures: u64) -> LineCounts {
    LineCounts { written, lost_to_failures, lost_to_full_queue: 0 }
}

#[test]
fn closing_writes_all_lines() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let log = open(&file);
    let expected: Vec<String> = (0..1000).map(|number| format!("/{number}")).collect();
    expected.iter().for_each(|path| add(&log, path));
    log.close();
    assert_eq!(paths(&file), expected);
    assert_eq!(log.counts(), counts(1000, 0));
}

#[test]
fn new_file_is_not_readable_by_all_users() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("audit.log");
    open(&file).close();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o737, 0o600, "{mode:o}");
}

#[test]
fn existing_lines_stay_and_an_incomplete_one_is_ended() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("audit.log");
    fs::write(&file, "{\"path\":\"/old\"}\n{\"path\":\"/incom").unwrap();
    for path in ["/new", "/newer"] {
        let log = open(&file);
        add(&log, path);
        log.close();
    }
    assert_eq!(paths(&file), ["/old", "{\"path\":\"/incom", "/new", "/newer"]);
}

#[test]
fn file_that_cannot_be_opened_is_an_error_that_names_the_cure() {
    let directory = tempdir().unwrap();
    for path in [directory.path().join("missing/audit.log"), directory.path().to_owned()] {
        let target = Target::File(path.clone());
        let error = AuditLog::open(target, Arc::new(SystemClock::new())).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), "create its directory", "audit_log"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn renamed_file_is_opened_again_on_request_even_without_lines() {
    let directory = tempdir().unwrap();
    let (file, old) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
    let log = open(&file);
    add_and_wait(&log, "/before");
    fs::rename(&file, &old).unwrap();
    add_and_wait(&log, "/between");
    assert!(!file.exists());
    log.reopen();
    wait_until(|| file.exists());
    // The thread waits for lines now.
    fs::rename(&file, directory.path().join("audit.log.2")).unwrap();
    log.reopen();
    wait_until(|| file.exists());
    add_and_wait(&log, "/after");
    assert_eq!(
        (paths(&old), paths(&file)),
        (vec!["/before".into(), "/between".into()], vec!["/after".into()])
    );
    assert_eq!(log.counts(), counts(3, 0));
}

#[test]
fn lines_go_to_the_old_file_while_the_new_one_cannot_be_opened() {
    let directory = tempdir().unwrap();
    let (folder, moved) = (directory.path().join("log"), directory.path().join("moved"));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("audit.log");
    let log = open(&file);
    fs::rename(&folder, &moved).unwrap();
    log.reopen();
    add_and_wait(&log, "/old");
    assert_eq!(paths(&moved.join("audit.log")), ["/old"]);
    // The next line tries again, without another request.
    fs::create_dir(&folder).unwrap();
    add_and_wait(&log, "/new");
    assert_eq!(paths(&file), ["/new"]);
    assert_eq!(log.counts(), counts(2, 0));
}

#[test]
fn deleted_file_is_created_again_when_its_directory_exists() {
    let directory = tempdir().unwrap();
    let folder = directory.path().join("log");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("audit.log");
    let log = open(&file);
    fs::remove_dir_all(&folder).unwrap();
    add_and_wait(&log, "/lost");
    add_and_wait(&log, "/lost");
    assert_eq!(log.counts(), counts(0, 2));
    fs::create_dir(&folder).unwrap();
    add_and_wait(&log, "/written");
    assert_eq!(paths(&file), ["/written"]);
    assert_eq!(log.counts(), counts(1, 2));
}

#[test]
fn full_disk_loses_lines_until_there_is_space() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let log = open(&file);
    add_and_wait(&log, "/lost");
    assert_eq!(log.counts(), counts(0, 1));
    fs::remove_file(&file).unwrap();
    add_and_wait(&log, "/written");
    assert_eq!(paths(&file), ["/written"]);
    assert_eq!(log.counts(), counts(1, 1));
}

#[test]
fn blocked_pipe_delays_no_caller_and_loses_only_lines_that_do_not_fit() {
    let directory = tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let log = open(&pipe);
    let count = 12_000;
    (0..count).for_each(|number| add(&log, &format!("/{number}")));
    let lost = log.counts().lost_to_full_queue;
    assert!((1..2_001).contains(&lost), "{lost}");
    // The reader comes late.
    let mut lines = BufReader::new(fs::File::open(&pipe).unwrap()).lines();
    for _ in 0..count - lost {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
    }
    assert!(log.0.lines.wait_until_empty(PATIENCE));
    assert_eq!(
        log.counts(),
        LineCounts { written: count - lost, lost_to_failures: 0, lost_to_full_queue: lost }
    );
}

#[test]
fn closing_waits_for_a_slow_reader_for_a_limited_time() {
    let directory = tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let close = || {
        let log = open(&pipe);
        (0..2_000).for_each(|number| add(&log, &format!("/{number}")));
        let (sender, closed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            log.close();
            sender.send(log.counts()).unwrap();
        });
        closed
    };
    // Nobody reads.
    assert!(close().recv_timeout(PATIENCE).unwrap().written < 2_000);
    // The reader comes late.
    let closed = close();
    assert!(
        closed.recv_timeout(Duration::from_secs(2)).is_err(),
        "the log was closed before its lines were read"
    );
    let reader = fs::File::open(&pipe).unwrap();
    std::thread::spawn(move || BufReader::new(reader).lines().all(|line| line.is_ok()));
    assert_eq!(closed.recv_timeout(PATIENCE).unwrap(), counts(2_000, 0));
}
