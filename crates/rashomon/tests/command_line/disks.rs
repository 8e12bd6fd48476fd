//! A server whose disk is full, becomes read-only, or fails: reads continue, and answers, `/readyz` and the
//! log name the file. The tests use real file systems, and need the right to mount.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use rashomon_clock::{Clock as _, SystemClock};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

use crate::{
    http::{get, post, post_bytes},
    process::{RunningProcess, rashomon, run},
};

/// The time within which a server must notice that its disk can be written again, on a busy machine.
const RECOVERY_LIMIT: Duration = Duration::from_secs(120);

/// The size of a body. Bodies do not compress well, so that some revisions fill a disk.
const BODY_BYTES: usize = 300_000;

/// The maximum number of revisions. No disk of these tests has room for them.
const MAX_REVISIONS: u32 = 1_000;

/// Parts of the log lines about a failure and about its end.
const FAILED: &str = "the store cannot be written";
const RECOVERY: &str = "the store can be written again";

/// A mounted file system, unmounted at the end.
pub(crate) struct MountedFileSystem {
    at: PathBuf,
}

impl MountedFileSystem {
    /// Mounts a file system. If this process may not mount, prints a message and returns `None`; on the build
    /// server this is a failure.
    #[allow(clippy::print_stderr)] // Skipped tests are reported.
    fn new(at: &Path, arguments: &[&str]) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        if succeeds(Command::new("mount").args(arguments).arg(at)) {
            return Some(Self { at: at.to_owned() });
        }
        assert!(
            std::env::var_os("CI").is_none(),
            "cannot mount {arguments:?}, which the build server has to"
        );
        eprintln!("no file system can be mounted here: disks with faults are not tested");
        None
    }

    /// Mounts a file system in memory.
    pub(crate) fn in_memory(at: &Path, megabytes: u32) -> Option<Self> {
        Self::new(at, &["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
    }

    /// Mounts a file system on a new block device. `options` say what the file system does after an error of
    /// the device.
    fn on_device(at: &Path, image: &Path, options: &str) -> Option<Self> {
        let image = image.to_str().unwrap();
        Self::new(at, &["-t", "ext4", "-o", &format!("loop,{options}"), image])
    }

    /// Makes the device report an error, so that the file system becomes read-only.
    fn fail(&self) {
        let source = Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.at).output().unwrap();
        let source = String::from_utf8(source.stdout).unwrap();
        let device = source.trim().rsplit('/').next().unwrap();
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }
}

impl Drop for MountedFileSystem {
    fn drop(&mut self) {
        succeeds(Command::new("umount").arg(&self.at));
    }
}

fn succeeds(command: &mut Command) -> bool {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    silent.is_ok_and(|status| status.success())
}

/// Makes an empty ext4 without a journal in a file.
fn make_image(image: &Path, megabytes: u64) {
    fs::File::create(image).and_then(|file| file.set_len(megabytes << 20)).unwrap();
    let made = succeeds(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(image));
    assert!(made, "mkfs.ext4 is in the package e2fsprogs");
}

/// Repairs the file system in a file, as administrators do after an error before they mount it again.
fn repair(image: &Path) {
    let repaired = Command::new("e2fsck").args(["-f", "-y"]).arg(image).output().unwrap();
    // Exit code 1 means that e2fsck repaired errors.
    assert!(repaired.status.code().is_some_and(|code| code <= 1), "{repaired:?}");
}

/// A server of a store, with its acknowledged revisions.
struct Server {
    running: RunningProcess,
    address: String,
    store: PathBuf,
    acknowledged: Vec<u32>,
}

impl Server {
    fn start(directory: &Path, store: &Path) -> Self {
        Self::start_with(directory, store, &[])
    }

    fn start_with(directory: &Path, store: &Path, environment: &[(&str, &Path)]) -> Self {
        let mut command = rashomon(directory);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(store);
        command.envs(environment.iter().copied());
        let mut running = RunningProcess::start(&mut command);
        let address = running.address();
        Self { running, address, store: store.to_owned(), acknowledged: Vec::new() }
    }

    /// Writes a revision, and returns the answer.
    fn write(&mut self, rev: u32) -> String {
        let form = format!("_rev={rev}&html={}", body(rev));
        let answer = post(&self.address, "/v1/wiki/page/Night?rev/", &form);
        if answer.starts_with("HTTP/1.1 201") {
            self.acknowledged.push(rev);
        }
        answer
    }

    /// Writes until a write fails. Returns that answer and the number of the next revision.
    fn write_until_failure(&mut self, first: u32) -> (String, u32) {
        for rev in first..MAX_REVISIONS {
            let answer = self.write(rev);
            if !answer.starts_with("HTTP/1.1 201") {
                return (answer, rev + 1);
            }
        }
        panic!("the disk has room for {MAX_REVISIONS} revisions");
    }

    /// Checks that all acknowledged revisions can be read.
    #[track_caller]
    fn check_reads(&self) {
        for &rev in &self.acknowledged {
            let answer = get(&self.address, &format!("/v1/wiki/page/Night?rev/{rev}/html"));
            let target = answer.lines().find_map(|line| line.strip_prefix("location: ")).expect(&answer);
            assert!(get(&self.address, target.trim()).ends_with(&body(rev)), "revision {rev}");
        }
    }

    /// Checks that the answer to a write and `/readyz` describe the failure and name the file.
    #[track_caller]
    fn check_failure(&self, answer: &str, status: &str, kind: &str, word: &str) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let file = self.store.join("rashomon.sqlite").display().to_string();
        let ready = get(&self.address, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(answer.contains(&format!("urn:rashomon:problem:{kind}")), "{answer}");
        for answer in [answer, &ready] {
            assert!(answer.contains(word) && answer.contains(&file), "no {word:?} or {file} in {answer}");
        }
    }

    /// Ends the server, and checks that its log has this many failures and recoveries, and names the file.
    #[track_caller]
    fn stop(self, failures: usize, recoveries: usize) -> Vec<u32> {
        let ran = self.running.stop().ends_with(0);
        let count = |text: &str| ran.stderr.lines().filter(|line| line.contains(text)).count();
        assert_eq!((count(FAILED), count(RECOVERY)), (failures, recoveries), "{}", ran.stderr);
        let file = self.store.join("rashomon.sqlite").display().to_string();
        assert!(
            ran.stderr.lines().any(|line| line.contains(FAILED) && line.contains(&file)),
            "{}",
            ran.stderr
        );
        self.acknowledged
    }
}

/// A body of letters and digits that looks random.
fn body(rev: u32) -> String {
    let mut state = u64::from(rev) + 1;
    let digits = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((state >> 59) as u32, 36).unwrap()
    });
    digits.take(BODY_BYTES).collect()
}

/// Restarts the server. It must have all acknowledged revisions, and a sound store.
#[track_caller]
fn check_restarted(directory: &Path, store: &Path, acknowledged: Vec<u32>) {
    let mut server = Server { acknowledged, ..Server::start(directory, store) };
    assert!(get(&server.address, "/readyz").starts_with("HTTP/1.1 200"));
    server.check_reads();
    assert!(server.write(MAX_REVISIONS).starts_with("HTTP/1.1 201"));
    server.running.stop().ends_with(0);
    run(directory, &["verify", "--data", store.to_str().unwrap()]).ends_with(0);
}

/// Returns a new directory, and the path of a mount point in it.
fn new_mount_point() -> (TempDir, PathBuf) {
    let directory = tempdir().unwrap();
    let mount = directory.path().join("disk");
    (directory, mount)
}

#[test]
fn full_disk_is_named_and_recovered_from_without_traffic() {
    let (directory, mount) = new_mount_point();
    let Some(_disk) = MountedFileSystem::in_memory(&mount, 16) else { return };
    let ballast = mount.join("ballast");
    fs::write(&ballast, vec![0; 8 << 20]).unwrap();
    let mut server = Server::start(directory.path(), &mount.join("store"));
    let (answer, next) = server.write_until_failure(1);
    assert!(next > 3, "{answer}");
    server.check_failure(&answer, "507", "insufficient-storage", "the disk is full");
    server.check_reads();
    // The log has one line, however many writes fail.
    for rev in next..next + 3 {
        let answer = server.write(rev);
        server.check_failure(&answer, "507", "insufficient-storage", "the disk is full");
    }

    fs::remove_file(&ballast).unwrap();
    wait_until_ready(&server);
    assert!(server.write(next + 3).starts_with("HTTP/1.1 201"));
    server.check_reads();
    let store = server.store.clone();
    let acknowledged = server.stop(1, 1);
    check_restarted(directory.path(), &store, acknowledged);
}

/// Fills the disk to its last byte.
fn fill(ballast: &Path) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(ballast).unwrap();
    for piece in [1 << 16, 4096, 512, 1] {
        while std::io::Write::write_all(&mut file, &vec![0; piece]).is_ok() {}
    }
}

/// A store that was closed has neither a log nor its index, and a full disk has no room for them.
#[test]
fn closed_store_is_served_on_a_full_disk() {
    let (directory, mount) = new_mount_point();
    let Some(_disk) = MountedFileSystem::in_memory(&mount, 16) else { return };
    let mut server = Server::start(directory.path(), &mount.join("store"));
    for rev in 1..=3 {
        assert!(server.write(rev).starts_with("HTTP/1.1 201"));
    }
    let (store, acknowledged) = (server.store.clone(), std::mem::take(&mut server.acknowledged));
    server.running.stop().ends_with(0);
    let ballast = mount.join("ballast");
    for _ in 0..2 {
        fill(&ballast);
        run(directory.path(), &["verify", "--data", store.to_str().unwrap()]).ends_with(0);
        let acknowledged = acknowledged.clone();
        let server = Server { acknowledged, ..Server::start(directory.path(), &store) };
        let ready = get(&server.address, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("the disk is full"), "{ready}");
        server.check_reads();
        let ran = server.running.stop().ends_with(0);
        assert!(ran.stderr.contains("the disk is full"), "{}", ran.stderr);
    }
    fs::remove_file(&ballast).unwrap();
    check_restarted(directory.path(), &store, acknowledged);
}

/// The start header of a 7z archive of 8 MiB.
const ARCHIVE_OF_8_MIB: &[u8] = b"7z\xbc\xaf\x27\x1c\x00\x04\x0c\x7d\xbe\xa1\x00\x00\x80\x00\x00\
    \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

#[test]
fn full_disk_for_temporary_files_is_named() {
    let (directory, mount) = new_mount_point();
    let Some(_disk) = MountedFileSystem::in_memory(&mount, 2) else { return };
    let mut command = rashomon(directory.path());
    command.env("TMPDIR", &mount).args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let mut running = RunningProcess::start(&mut command);
    let address = running.line().split(['/', ',']).nth(2).unwrap().to_owned();
    let import = || post_bytes(&address, "/v1/wiki/import", "", &[ARCHIVE_OF_8_MIB, &[0; 8 << 20]].concat());
    let answer = import();
    assert!(answer.starts_with("HTTP/1.1 507"), "{answer}");
    assert!(answer.contains("A disk of the server is full") && answer.contains("TMPDIR"), "{answer}");
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));

    let mut command = rashomon(directory.path());
    command.env("TMPDIR", mount.join("missing"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let mut running = RunningProcess::start(&mut command);
    let address = running.line().split(['/', ',']).nth(2).unwrap().to_owned();
    let answer = post_bytes(&address, "/v1/wiki/import", "", ARCHIVE_OF_8_MIB);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("storage-fault"), "{answer}");
}

#[test]
fn read_only_file_system_is_named() {
    let (directory, mount) = new_mount_point();
    let image = directory.path().join("image");
    make_image(&image, 64);
    let Some(disk) = MountedFileSystem::on_device(&mount, &image, "errors=remount-ro") else { return };
    let mut server = Server::start(directory.path(), &mount.join("store"));
    for rev in 1..=3 {
        assert!(server.write(rev).starts_with("HTTP/1.1 201"));
    }
    disk.fail();
    for rev in 4..=6 {
        let answer = server.write(rev);
        server.check_failure(&answer, "503", "storage-fault", "the file system is read-only");
    }
    server.check_reads();
    let store = server.store.clone();
    let acknowledged = server.stop(1, 0);
    drop(disk);
    repair(&image);
    let Some(_disk) = MountedFileSystem::on_device(&mount, &image, "errors=remount-ro") else { return };
    check_restarted(directory.path(), &store, acknowledged);
}

/// Waits until the server is ready again.
#[track_caller]
fn wait_until_ready(server: &Server) {
    let clock = SystemClock::new();
    let started = clock.monotonic();
    while !get(&server.address, "/readyz").starts_with("HTTP/1.1 200") {
        assert!(clock.monotonic() - started < RECOVERY_LIMIT, "{}", get(&server.address, "/readyz"));
        sleep(Duration::from_millis(100));
    }
}

/// What the flag of faulty reads contains if all reads of the store fail, or only those of the log.
const ALL_FILES: &str = "";
const LOG: &str = "log";

/// Makes the reads of a server with the preloaded library fail. A commit of this process then makes each
/// connection of the server drop its cached pages. Background reads may have filled these caches at any moment. With
/// `LOG`, only reads of the log fail.
fn break_reads(flag: &Path, store: &Path, which: &str) {
    fs::write(flag, which).unwrap();
    let file = Connection::open(store.join("rashomon.sqlite")).unwrap();
    file.busy_timeout(RECOVERY_LIMIT).unwrap();
    let version: u32 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    file.pragma_update(None, "user_version", version).unwrap();
}

/// If the disk cannot read a database page, SQLite reports a damaged file. The answers must report the disk, and not
/// suggest a backup.
#[test]
fn io_errors_of_reads_are_named_and_are_not_damage() {
    let directory = tempdir().unwrap();
    let (library, flag) = (directory.path().join("faulty_reads.so"), directory.path().join("faulty"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command_line/faulty_reads.c");
    let compiled = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .args([source, "-ldl"])
        .status();
    assert!(compiled.expect("there is cc (Debian: gcc)").success(), "the library compiles");
    let store = directory.path().join("store");
    let mut server = Server::start(directory.path(), &store);
    for rev in 1..=30 {
        assert!(server.write(rev).starts_with("HTTP/1.1 201"));
    }
    server.running.stop().ends_with(0);

    let environment = [("LD_PRELOAD", &*library), ("FAULTY_READS", &*flag)];
    let mut server = Server {
        acknowledged: (1..=30).collect(),
        ..Server::start_with(directory.path(), &store, &environment)
    };
    let file = store.join("rashomon.sqlite").display().to_string();
    for which in [ALL_FILES, LOG] {
        let revs = if which == LOG { 41..=42 } else { 31..=32 };
        break_reads(&flag, &store, which);
        for target in ["?rev/7/html", "?rev/", "?rev/latest/html"] {
            let answer = get(&server.address, &format!("/v1/wiki/page/Night{target}"));
            assert!(answer.starts_with("HTTP/1.1 503 "), "{target}: {answer}");
            assert!(answer.contains("urn:rashomon:problem:storage-fault"), "{target}: {answer}");
            assert!(answer.contains(&file) && answer.contains("cannot read or write"), "{target}: {answer}");
        }
        let answer = server.write(*revs.start());
        server.check_failure(&answer, "503", "storage-fault", "cannot read or write");
        fs::remove_file(&flag).unwrap();
        wait_until_ready(&server);
        server.check_reads();
        assert!(server.write(*revs.end()).starts_with("HTTP/1.1 201"));
    }

    // Only reads fail, and the server writes nothing.
    break_reads(&flag, &store, ALL_FILES);
    let answer = get(&server.address, "/v1/wiki/page/Night?rev/3/html");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(&file), "{answer}");
    let ready = get(&server.address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains(&file), "{ready}");
    fs::remove_file(&flag).unwrap();
    wait_until_ready(&server);
    server.check_reads();
    let acknowledged = std::mem::take(&mut server.acknowledged);
    server.running.stop().ends_with(0);
    check_restarted(directory.path(), &store, acknowledged);
}

/// The device is a file on another file system. When that file system refuses writes, writes to the device
/// fail.
#[test]
fn io_errors_of_a_block_device_are_named() {
    let (directory, mount) = new_mount_point();
    let (below, outer) = (directory.path().join("below"), directory.path().join("image"));
    make_image(&outer, 128);
    let Some(device) = MountedFileSystem::on_device(&below, &outer, "errors=remount-ro") else { return };
    let inner = below.join("image");
    make_image(&inner, 64);
    let Some(disk) = MountedFileSystem::on_device(&mount, &inner, "errors=continue") else { return };
    let mut server = Server::start(directory.path(), &mount.join("store"));
    for rev in 1..=3 {
        assert!(server.write(rev).starts_with("HTTP/1.1 201"));
    }
    device.fail();
    for rev in 4..=6 {
        let answer = server.write(rev);
        server.check_failure(&answer, "503", "storage-fault", "cannot read or write");
    }
    server.check_reads();
    let store = server.store.clone();
    let acknowledged = server.stop(1, 0);
    drop((disk, device));
    repair(&outer);
    let Some(_device) = MountedFileSystem::on_device(&below, &outer, "errors=remount-ro") else { return };
    repair(&inner);
    let Some(_disk) = MountedFileSystem::on_device(&mount, &inner, "errors=continue") else { return };
    check_restarted(directory.path(), &store, acknowledged);
}
