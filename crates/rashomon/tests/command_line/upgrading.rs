//! `rashomon upgrade`, on stores that the program wrote before format version 2.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{
    disks::MountedFileSystem,
    earlier_stores::{fixtures, unpack},
    http::{get, post},
    kills::kill_rounds,
    process::{ProcessOutput, RunningProcess, finish, rashomon, run},
    serving::serve_data,
    wiki::dump,
};

const UPGRADE: [&str; 3] = ["upgrade", "--data", "data"];

/// A store of format version 1, `data`, and its configuration.
fn earlier_store() -> TempDir {
    unpack(&fixtures().join("plain"))
}

/// The names and the contents of the files in a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// All rows of the store in a directory, and the number of its format. Reads a copy of the file and its log,
/// as a program does that opens the store.
fn rows(directory: &Path) -> (Vec<String>, i64) {
    let copy = tempdir().unwrap();
    for name in ["rashomon.sqlite", "rashomon.sqlite-wal"] {
        let _ = fs::copy(directory.join(name), copy.path().join(name));
    }
    let file = Connection::open(copy.path().join("rashomon.sqlite")).unwrap();
    let mut rows = Vec::new();
    for sql in [
        "SELECT hex(key) || '|' || written_at || '|' || ifnull(expires_at, '') || '|' || ifnull(large, '')
            || '|' || ifnull(hex(value), '') FROM rows ORDER BY key",
        "SELECT id || '|' || hex(value) FROM large_values ORDER BY id",
        "SELECT name FROM schemas ORDER BY number",
    ] {
        let mut select = file.prepare(sql).unwrap();
        rows.extend(select.query_map((), |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap));
    }
    let checked: String = file.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
    (rows, file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap())
}

#[test]
fn every_command_refuses_an_earlier_store_and_names_the_upgrade() {
    let directory = earlier_store();
    let home = directory.path();
    fs::write(home.join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    let before = files(&home.join("data"));
    for words in [
        &["serve", "--listen", "127.0.0.1:0", "--data", "data"][..],
        &["demo", "--listen", "127.0.0.1:0", "--data", "data"],
        &["import", "--domain", "wiki", "--data", "data", "dump.xml"],
        &["import", "--archive", "--domain", "wiki", "--data", "data", "dump.xml"],
        &["export", "--domain", "enwiki", "--data", "data"],
        &["stats", "--data", "data"],
        &["verify", "--data", "data"],
        &["verify", "--repair", "--data", "data"],
        &["vacuum", "--data", "data"],
        &["vacuum", "--full", "--data", "data"],
        &["backup", "--data", "data", "--to", "backup"],
        &["migrate", "--from", "sqlite:data", "--to", "sqlite:new"],
        &["migrate", "--from", "sqlite:new", "--to", "sqlite:data"],
        &["retention", "--dry-run", "--data", "data"],
        &["retention", "--now", "--grace", "1d", "--data", "data"],
        &["archive", "seal", "--data", "data"],
        &["archive", "merge", "--data", "data"],
        &["archive", "stats", "--data", "data"],
        &["archive", "verify", "--data", "data"],
    ] {
        if words.contains(&"sqlite:new") {
            let _ = fs::remove_dir_all(home.join("new"));
            run(home, &["import", "--domain", "wiki", "--data", "new", "dump.xml"]).ends_with(0);
        }
        let ran = run(home, words).ends_with(1);
        ran.stderr_contains(&[
            "data/rashomon.sqlite is a store of the earlier format version 1",
            "run `rashomon upgrade --data data`",
        ]);
        assert!(files(&home.join("data")) == before, "{words:?} has changed the store");
    }
    assert!(!home.join("backup").exists());
}

#[test]
fn upgraded_store_is_served_and_the_sizes_are_printed() {
    let directory = earlier_store();
    let home = directory.path();
    let (before, _) = rows(&home.join("data"));
    let ran = run(home, &UPGRADE).ends_with(0);
    ran.stdout_contains(&[
        "upgraded from format version 1 to 2: 209 rows, copied and compared",
        "before: 213.0 kB",
    ]);
    let (after, format) = rows(&home.join("data"));
    assert!(after == before && format == 2);
    let upgraded = files(&home.join("data"));
    run(home, &UPGRADE).ends_with(0).stdout_contains(&["has format version 2 already: nothing was changed"]);
    assert!(files(&home.join("data")) == upgraded);

    run(home, &["verify", "--data", "data"]).ends_with(0).stdout_contains(&["sound"]);
    let (server, address) = serve_data(home);
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(post(&address, "/v1/wiki/page/New?rev/", "_rev=1&html=x").starts_with("HTTP/1.1 201"));
    // A server has the store open.
    let refused = run(home, &UPGRADE).ends_with(1);
    refused.stderr_contains(&[&format!("in use by process {}", server.id())]);
    server.stop().ends_with(0);
}

#[test]
fn old_file_is_kept_and_the_result_is_printed_as_json() {
    let directory = unpack(&fixtures().join("archive"));
    let home = directory.path();
    let old = fs::read(home.join("data/rashomon.sqlite")).unwrap();
    let ran = run(home, &["upgrade", "--data", "data", "--keep-old", "--json"]).ends_with(0);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&result["from"], &result["to"], &result["rows"]), (&1.into(), &2.into(), &86.into()));
    assert_eq!((&result["before_bytes"], &result["damaged_rows"]), (&old.len().into(), &0.into()));
    assert_eq!(result["changed_tables"], serde_json::json!(["archive_index"]));
    assert_eq!(result["old_file"], "data/rashomon.sqlite-format-1");
    assert!(fs::read(home.join("data/rashomon.sqlite-format-1")).unwrap() == old);
    let ran = run(home, &["upgrade", "--data", "data", "--json"]).ends_with(0);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&result["from"], &result["to"]), (&2.into(), &2.into()));
}

#[test]
fn damaged_rows_are_named_and_the_upgrade_ends_with_3() {
    let directory = earlier_store();
    let home = directory.path();
    let file = Connection::open(home.join("data/rashomon.sqlite")).unwrap();
    let sql = "UPDATE rows SET written_at = written_at + 1 WHERE key IN (SELECT key FROM rows LIMIT 2)";
    file.execute_batch(sql).unwrap();
    file.close().unwrap();
    let (before, _) = rows(&home.join("data"));
    let ran = run(home, &UPGRADE).ends_with(3);
    ran.stderr_contains(&[
        "damaged, and copied as it is: the row ",
        "2 damaged rows were copied",
        "rashomon verify",
    ]);
    let (after, format) = rows(&home.join("data"));
    assert!(after == before && format == 2);
    run(home, &["verify", "--data", "data"]).ends_with(1).stdout_contains(&["NOT SOUND"]);
}

/// The upgrade may run as another user than the server, such as root.
#[test]
fn new_file_has_the_owner_and_the_mode_of_the_old_one() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let directory = earlier_store();
    let file = directory.path().join("data/rashomon.sqlite");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root may give files away.
    let is_root = chown(&file, Some(1234), Some(5678)).is_ok();
    let of = |file: &Path| {
        let found = fs::metadata(file).unwrap();
        (found.mode() & 0o777, found.uid(), found.gid())
    };
    let before = of(&file);
    assert!(before.0 == 0o640 && (!is_root || before.1 == 1234));
    run(directory.path(), &UPGRADE).ends_with(0);
    assert_eq!(of(&file), before);
}

#[test]
fn missing_store_and_wrong_arguments_are_refused() {
    let directory = tempdir().unwrap();
    let home = directory.path();
    run(home, &["upgrade"]).ends_with(2).stderr_contains(&["there is no store in ./rashomon-data"]);
    run(home, &["upgrade", "--store", "memory:"]).ends_with(2).stderr_contains(&["memory:"]);
    let cluster = run(home, &["upgrade", "--store", "cassandra://127.0.0.1:1/wiki"]).ends_with(1);
    cluster.stderr_contains(&["no cluster at 127.0.0.1:1", "Check that Cassandra runs there"]);
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
}

/// The library of `faulty_writes.c`, and a store of format version 1 with a log, as a killed program leaves it.
struct Faulty {
    directory: TempDir,
    rows: Vec<String>,
}

impl Faulty {
    fn new() -> Self {
        let directory = unpack(&fixtures().join("archive-positions"));
        let (home, data) = (directory.path(), directory.path().join("data"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command_line/faulty_writes.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(home.join("faulty.so")).args([source, "-ldl"]);
        assert!(compiler.status().expect("there is cc (Debian: gcc)").success(), "the library compiles");
        let (rows, _) = rows(&data);
        let file = Connection::open(data.join("rashomon.sqlite")).unwrap();
        // Some rows are only in the log.
        let sql = "PRAGMA wal_autocheckpoint = 0;
            CREATE TEMP TABLE kept AS SELECT * FROM rows WHERE large IS NULL LIMIT 20;
            DELETE FROM rows WHERE key IN (SELECT key FROM kept);
            PRAGMA wal_checkpoint(TRUNCATE);
            INSERT INTO rows SELECT * FROM kept;";
        file.execute_batch(sql).unwrap();
        fs::create_dir(home.join("killed")).unwrap();
        for name in ["rashomon.sqlite", "rashomon.sqlite-wal"] {
            fs::copy(data.join(name), home.join("killed").join(name)).unwrap();
        }
        Self { directory, rows }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("faulty-store")
    }

    /// Restores the store to its state before the upgrade.
    fn reset(&self) {
        let _ = fs::remove_dir_all(self.store());
        fs::create_dir(self.store()).unwrap();
        for (name, bytes) in files(&self.directory.path().join("killed")) {
            fs::write(self.store().join(name), bytes).unwrap();
        }
    }

    /// Runs the upgrade with a fault.
    fn upgrade(&self, fault: &str, arguments: &[&str]) -> ProcessOutput {
        let mut command = rashomon(self.directory.path());
        command.env("LD_PRELOAD", self.directory.path().join("faulty.so")).env("FAULTY_WRITES", fault);
        finish(command.args(["upgrade", "--data", "faulty-store"]).args(arguments))
    }

    /// Checks that the store is complete, in the old format or in the new one. Returns the format.
    #[track_caller]
    fn check(&self, fault: &str) -> i64 {
        let (rows, format) = rows(&self.store());
        assert!(rows == self.rows, "{fault}: the rows differ");
        assert!([1, 2].contains(&format), "{fault}: {format}");
        format
    }

    /// Checks that an unfinished new file is not a store, even under the name of a store.
    #[track_caller]
    fn check_new_file(&self, fault: &str) {
        const APPLICATION_ID: std::ops::Range<usize> = 68..72;
        let Ok(file) = fs::read(self.store().join("rashomon.sqlite-upgrading")) else { return };
        if file.get(APPLICATION_ID) == Some(b"RSHM") {
            let directory = tempdir().unwrap();
            fs::write(directory.path().join("rashomon.sqlite"), file).unwrap();
            assert!(rows(directory.path()).0 == self.rows, "{fault}: the new file is incomplete");
        }
    }

    /// Repeats the upgrade without a fault, and checks that it has finished.
    #[track_caller]
    fn finish(&self, fault: &str, arguments: &[&str]) {
        self.upgrade("", arguments).ends_with(0);
        assert_eq!(self.check(fault), 2);
        let names: Vec<_> = files(&self.store()).into_iter().map(|(name, _)| name).collect();
        let is_known = |name: &String| {
            ["rashomon.lock", "rashomon.sqlite", "rashomon.sqlite-format-1"].contains(&&**name)
        };
        assert!(names.iter().all(is_known), "{fault}: {names:?}");
    }
}

/// The number of calls before the end of an upgrade of which each one is tried. The last calls replace the old file.
const LAST_CALLS: usize = 6;

/// How many calls lie between two that are tried: all are tried if the environment sets a number of kills.
fn stride() -> usize {
    if kill_rounds(0) > 0 { 1 } else { 5 }
}

/// The process is killed before some of its calls that change a file, and before each of the last ones.
#[test]
fn upgrade_survives_a_kill_at_every_point() {
    let faulty = Faulty::new();
    for arguments in [&[][..], &["--keep-old"]] {
        let mut formats = [0, 0];
        // Returns whether the upgrade ended before its call of this number.
        let mut kill_before = |call: usize| {
            faulty.reset();
            let fault = format!("kill:{call}");
            let ran = faulty.upgrade(&fault, arguments);
            if ran.code.is_some() {
                ran.ends_with(0);
                return true;
            }
            formats[usize::try_from(faulty.check(&fault)).unwrap() - 1] += 1;
            faulty.check_new_file(&fault);
            faulty.finish(&fault, arguments);
            false
        };
        let end = (1..1_000).step_by(stride()).find(|call| kill_before(*call));
        let end = end.expect("the upgrade makes no more calls than expected");
        for call in end.saturating_sub(stride() + LAST_CALLS).max(1)..end {
            kill_before(call);
        }
        assert!(formats[0] > 20 / stride() && formats[1] > 0, "{formats:?}");
        println!("killed {formats:?} times before and after the rename");
    }
    let home = faulty.directory.path();
    run(home, &["verify", "--data", "faulty-store"]).ends_with(0).stdout_contains(&["sound"]);
}

#[test]
fn full_disk_at_any_point_leaves_the_store_as_it_was() {
    let faulty = Faulty::new();
    let mut full = 0;
    for call in (1..).step_by(stride()) {
        faulty.reset();
        let fault = format!("full:{call}");
        let ran = faulty.upgrade(&fault, &[]);
        if ran.code == Some(0) {
            break;
        }
        ran.ends_with(1).stderr_contains(&["the disk is full", "run the command again"]);
        assert_eq!(faulty.check(&fault), 1);
        assert!(!faulty.store().join("rashomon.sqlite-upgrading").exists(), "{fault}");
        full += 1;
        if call % 10 == 1 {
            faulty.finish(&fault, &[]);
        }
    }
    assert!(full > 20 / stride(), "{full}");
}

/// SQLite ignores failures when it synchronizes a directory. The old file is complete in these cases too.
#[test]
fn failed_synchronization_is_an_error_and_the_store_is_complete() {
    let faulty = Faulty::new();
    let mut failed = Vec::new();
    for call in 1.. {
        faulty.reset();
        let fault = format!("sync:{call}");
        let ran = faulty.upgrade(&fault, &[]);
        let Some(path) = ran.stderr.lines().find_map(|line| line.strip_prefix("fault: ")) else { break };
        let path = path.rsplit('/').next().unwrap().to_owned();
        let format = faulty.check(&fault);
        if ran.code != Some(0) {
            ran.ends_with(1).stderr_contains(&["cannot read or write", "run the command again"]);
            failed.push((path, format));
        }
        faulty.finish(&fault, &[]);
    }
    let has = |path: &str, format| failed.contains(&(path.to_owned(), format));
    // The new file before it is renamed, and the directory after that.
    assert!(has("rashomon.sqlite-upgrading", 1) && has("faulty-store", 2), "{failed:?}");
    // The new file is synchronized when SQLite changes the mode of the log, before the comparison, and before the
    // rename.
    let of_new_file = failed.iter().filter(|(path, _)| path == "rashomon.sqlite-upgrading");
    assert!(of_new_file.count() >= 3, "{failed:?}");
}

#[test]
fn missing_space_is_named_before_anything_is_written() {
    let directory = earlier_store();
    let home = directory.path();
    let Some(_disk) = MountedFileSystem::in_memory(&home.join("disk"), 4) else { return };
    let store = home.join("disk/store");
    fs::create_dir(&store).unwrap();
    fs::copy(home.join("data/rashomon.sqlite"), store.join("rashomon.sqlite")).unwrap();
    fs::write(home.join("disk/ballast"), vec![0; 3_200_000]).unwrap();
    let before = files(&store);
    let upgrade = || run(home, &["upgrade", "--data", "disk/store"]);
    let ran = upgrade().ends_with(1);
    ran.stderr_contains(&[
        "not enough disk space for the new file: the upgrade needs 1.3 MB",
        "Nothing was changed: free ",
    ]);
    let after: Vec<_> = files(&store).into_iter().filter(|(name, _)| name != "rashomon.lock").collect();
    assert!(after == before);
    fs::remove_file(home.join("disk/ballast")).unwrap();
    upgrade().ends_with(0);
    run(home, &["verify", "--data", "disk/store"]).ends_with(0).stdout_contains(&["sound"]);
}

#[test]
fn signal_interrupts_an_upgrade_and_the_store_is_as_it_was() {
    let directory = earlier_store();
    let home = directory.path();
    // Enough rows for some seconds.
    let file = Connection::open(home.join("data/rashomon.sqlite")).unwrap();
    let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
               INSERT INTO large_values (value) SELECT zeroblob(3000) FROM n;";
    file.execute_batch(sql).unwrap();
    file.close().unwrap();
    let before = rows(&home.join("data"));
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let upgrade = RunningProcess::start(rashomon(home).args(UPGRADE));
        let new = home.join("data/rashomon.sqlite-upgrading");
        crate::process::wait_until("a part of the new file is written", || {
            fs::metadata(&new).is_ok_and(|new| new.len() > 1_000_000)
        });
        upgrade.signal(signal);
        upgrade.wait().ends_with(code).stderr_contains(&["interrupted; the store is as it was before"]);
        assert!(!new.exists());
        assert!(rows(&home.join("data")) == before);
    }
}

/// Copies a folder of files and folders.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A backup that the program made before format version 2, with two states.
#[test]
fn earlier_backup_is_restored_upgraded_and_continued() {
    let directory = tempdir().unwrap();
    let home = directory.path();
    copy_folder(&fixtures().join("../backups/format-1"), &home.join("backup"));
    for (state, revisions) in [(1, "32 revisions"), (2, "71 revisions")] {
        let (state, data) = (state.to_string(), format!("data-{state}"));
        let restore = ["restore", "--from", "backup", "--data", &data, "--state", &state];
        let ran = run(home, &restore).ends_with(0);
        let hint = format!("the store has an earlier format: run `rashomon upgrade --data {data}`");
        ran.stdout_contains(&["each compared with its hash", &hint]);
        run(home, &["stats", "--data", &data]).ends_with(1).stderr_contains(&["earlier format version 1"]);
        run(home, &["upgrade", "--data", &data]).ends_with(0);
        run(home, &["verify", "--data", &data]).ends_with(0).stdout_contains(&["sound", revisions]);
    }
    // The next state has the new format, and the earlier states stay.
    run(home, &["backup", "--data", "data-2", "--to", "backup", "--moved"]).ends_with(0);
    let ran = run(home, &["restore", "--from", "backup", "--data", "data-3", "--json"]).ends_with(0);
    let restored: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&restored["state"], &restored["needs_upgrade"]), (&3.into(), &false.into()));
    assert!(rows(&home.join("data-3")) == rows(&home.join("data-2")));
    run(home, &["verify", "--data", "data-3"]).ends_with(0).stdout_contains(&["sound"]);
    let ran = run(home, &["restore", "--from", "backup", "--data", "data-4", "--state", "1", "--json"]);
    let restored: Value = serde_json::from_str(&ran.ends_with(0).stdout).unwrap();
    assert_eq!(restored["needs_upgrade"], true);
}

/// SQLite counts pages of another size differently, so no page of an earlier state can be used again.
#[test]
fn state_of_a_store_with_another_page_size_is_written_whole() {
    let directory = earlier_store();
    let home = directory.path();
    run(home, &UPGRADE).ends_with(0);
    let back_up = || -> Value {
        let ran = run(home, &["backup", "--data", "data", "--to", "backup", "--json"]).ends_with(0);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    back_up();
    let before = rows(&home.join("data"));
    let file = Connection::open(home.join("data/rashomon.sqlite")).unwrap();
    let sql = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 2048; VACUUM; PRAGMA journal_mode = WAL;";
    file.execute_batch(sql).unwrap();
    file.close().unwrap();
    let state = back_up();
    assert_eq!(state["written_pages"], state["pages"]);
    let bytes = fs::metadata(home.join("data/rashomon.sqlite")).unwrap().len();
    assert_eq!((&state["bytes"], bytes / 2048), (&bytes.into(), state["pages"].as_u64().unwrap()));
    assert_eq!(back_up()["written_pages"], 0);
    for state in ["1", "2", "3"] {
        let data = format!("data-{state}");
        run(home, &["restore", "--from", "backup", "--data", &data, "--state", state]).ends_with(0);
        assert!(rows(&home.join(&data)) == before);
        run(home, &["verify", "--data", &data]).ends_with(0).stdout_contains(&["sound"]);
    }
}
