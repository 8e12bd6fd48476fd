//! `rashomon vacuum`, and the vacuum of a running server.

use std::{fs, path::Path, thread, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{
    disks::MountedFileSystem,
    http::post,
    kills::{Kills, kill_rounds},
    process::{ProcessOutput, RunningProcess, rashomon, run},
    serving::serve_data,
    wiki::{dump, large_dump},
};

const PAGE_BYTES: u64 = rashomon_tables_sqlite::PAGE_BYTES as u64;

const EXPORT: [&str; 6] = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];

/// Opens the file of a store as another program does.
fn open_file(store: &Path) -> Connection {
    Connection::open(store.join("rashomon.sqlite")).unwrap()
}

/// The number of free pages.
fn free_pages(store: &Path) -> u64 {
    count(store, "freelist_count")
}

/// Returns a number of pages from SQLite, also while a server has the store open.
fn count(store: &Path, pragma: &str) -> u64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let file = Connection::open_with_flags(store.join("rashomon.sqlite"), flags).unwrap();
    file.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0)).unwrap().into()
}

fn import(directory: &Path, dump: &str) {
    fs::write(directory.join("dump.xml"), dump).unwrap();
    run(directory, &["import", "--rows", "--data", "data", "--domain", "wiki", "dump.xml"]).ends_with(0);
}

/// Creates the store `data` with at least this many free pages, and with about 6 MB of rows behind them.
fn store_with_free_pages(pages: u32) -> TempDir {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("First", &[("1", "one"), ("2", "two")]));
    let store = directory.path().join("data");
    // Each of these rows takes about four pages.
    let fill = format!(
        "CREATE TABLE ballast (bytes BLOB);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {pages})
         INSERT INTO ballast SELECT zeroblob(16300) FROM n;"
    );
    open_file(&store).execute_batch(&fill).unwrap();
    import(directory.path(), &large_dump(200, 50_000));
    open_file(&store).execute_batch("DROP TABLE ballast").unwrap();
    assert!(free_pages(&store) >= pages.into());
    directory
}

/// Copies the closed store `data`.
fn copy(directory: &Path, name: &str) {
    let _ = fs::remove_dir_all(directory.join(name));
    fs::create_dir_all(directory.join(name)).unwrap();
    let file = Path::new(name).join("rashomon.sqlite");
    fs::copy(directory.join("data/rashomon.sqlite"), directory.join(file)).unwrap();
}

fn on(directory: &Path, store: &str, words: &[&str]) -> ProcessOutput {
    run(directory, &[words, &["--data", store]].concat())
}

/// Bytes of the file of a store.
fn file_bytes(store: &Path) -> u64 {
    fs::metadata(store.join("rashomon.sqlite")).unwrap().len()
}

#[test]
fn free_space_is_given_back_and_reported() {
    let directory = store_with_free_pages(1_500);
    let home = directory.path();
    let export = on(home, "data", &EXPORT).ends_with(0).stdout;
    copy(home, "other");
    let before = file_bytes(&home.join("data"));
    let ran = on(home, "data", &["vacuum"]).ends_with(0);
    ran.stdout_contains(&["before: ", " and a log of 0 B; ", "after: ", "; 0 B are free; ", " given back"]);
    let after = file_bytes(&home.join("data"));
    assert!(after + 1_500 * PAGE_BYTES <= before, "{before} and {after} bytes");
    assert!(!home.join("data/rashomon.sqlite-wal").exists());
    on(home, "data", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(on(home, "data", &EXPORT).ends_with(0).stdout, export);

    let ran = on(home, "other", &["vacuum", "--json"]).ends_with(0);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["before"]["file_bytes"], before, "{report}");
    assert_eq!(report["after"]["file_bytes"], after, "{report}");
    assert!(report["before"]["free_bytes"].as_u64().unwrap() >= 1_500 * PAGE_BYTES, "{report}");
    assert_eq!((&report["after"]["free_bytes"], &report["after"]["log_bytes"]), (&0.into(), &0.into()));
    on(home, "other", &["vacuum"]).ends_with(0).stdout_contains(&["; 0 B given back"]);
}

/// The latest revision of each page stays in its row after sealing, and most of the room around it is free.
#[test]
fn full_vacuum_closes_the_gaps_that_sealing_leaves() {
    let directory = tempdir().unwrap();
    let home = directory.path();
    let pages: Vec<_> = (0..400).map(page_of_similar_revisions).collect();
    let (start, end) = (dump("", &[("1", "")]), "</mediawiki>");
    let start = start.split("  <page>").next().unwrap();
    import(home, &format!("{start}{}{end}", pages.concat()));
    on(home, "data", &["archive", "seal", "--after", "0s"]).ends_with(0);
    let export = on(home, "data", &EXPORT).ends_with(0).stdout;
    on(home, "data", &["vacuum"]).ends_with(0);
    let vacuumed = file_bytes(&home.join("data"));
    let ran = on(home, "data", &["vacuum", "--full"]).ends_with(0);
    ran.stdout_contains(&["before: ", "after: "]).stderr_contains(&["rewriting the file"]);
    let rewritten = file_bytes(&home.join("data"));
    assert!(rewritten * 10 < vacuumed * 9, "{vacuumed} and {rewritten} bytes");
    on(home, "data", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(on(home, "data", &EXPORT).ends_with(0).stdout, export);
}

/// The element of a page in a dump. Its revisions have 4,000 letters, and differ in a few of them.
fn page_of_similar_revisions(page: u64) -> String {
    let letter = |at: u64| {
        let mixed = (page * 10_000 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        char::from(b'a' + (mixed % 26) as u8)
    };
    let revision = |rev: u64| ((page * 10 + rev).to_string(), (rev..rev + 4_000).map(letter).collect());
    let revisions: Vec<(String, String)> = (1..=8).map(revision).collect();
    let revisions: Vec<_> = revisions.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    let dump = dump(&format!("Page {page}"), &revisions);
    let (start, end) = (dump.find("  <page>").unwrap(), dump.find("</mediawiki>").unwrap());
    dump[start..end].to_owned()
}

#[test]
fn stores_without_a_file_are_refused() {
    let directory = tempdir().unwrap();
    let home = directory.path();
    run(home, &["vacuum"])
        .ends_with(2)
        .stderr_contains(&["there is no store in ./rashomon-data", "--data DIR"]);
    let cluster = run(home, &["vacuum", "--store", "cassandra://127.0.0.1:1/wiki"]).ends_with(2);
    cluster.stderr_contains(&["is not a SQLite store", "by compaction", "docs/cassandra.md", "--data DIR"]);
    let memory = run(home, &["vacuum", "--store", "memory:"]).ends_with(2);
    memory.stderr_contains(&["memory:", "--data DIR"]);
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
}

#[test]
fn store_of_a_server_is_refused_and_the_server_is_named() {
    let directory = store_with_free_pages(100);
    let (server, _) = serve_data(directory.path());
    let ran = on(directory.path(), "data", &["vacuum"]).ends_with(1);
    ran.stderr_contains(&[
        &format!("in use by process {}", server.id()),
        "a running server gives free pages back by itself",
    ]);
    server.stop().ends_with(0);
}

#[test]
fn server_gives_free_pages_back_while_writes_continue() {
    let directory = store_with_free_pages(3_000);
    let home = directory.path();
    let (server, address) = serve_data(home);
    let clock = SystemClock::new();
    let pages = || count(&home.join("data"), "page_count");
    let mut before = pages();
    let (mut written, mut last) = (0, clock.monotonic());
    // Ends when at least 100 pages were given back, in one step or more.
    while pages() + 100 > before {
        written += 1;
        let answer = post(&address, "/v1/wiki/page/Busy?rev/", &format!("_rev={written}&wikitext=text"));
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        let now = clock.monotonic();
        assert!(now < Duration::from_secs(120), "nothing was given back in time");
        // After a second without writes, a server counts as idle. Steps before such a pause do not count.
        if now - last > Duration::from_millis(800) {
            before = pages();
        }
        last = now;
        thread::sleep(Duration::from_millis(20));
    }
    let stopped = server.stop().ends_with(0);
    assert!(!stopped.stderr.contains("WARN"), "{}", stopped.stderr);
    on(home, "data", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
}

/// Another program has locked the file, so the command is still waiting when the signal comes.
#[test]
fn signal_ends_a_vacuum_and_finished_steps_stay() {
    let directory = store_with_free_pages(1_500);
    let home = directory.path();
    let before = free_pages(&home.join("data"));
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let lock = open_file(&home.join("data"));
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut vacuum = RunningProcess::start(rashomon(home).args(["vacuum", "--data", "data"]));
        assert!(vacuum.line().starts_with("before: "));
        vacuum.signal(signal);
        thread::sleep(Duration::from_millis(100));
        lock.execute_batch("ROLLBACK").unwrap();
        let ran = vacuum.wait().ends_with(code);
        assert!(!ran.stdout.contains("after: "), "{ran:#?}");
    }
    // Each run has finished its first step.
    assert!(free_pages(&home.join("data")) < before - 2 * 1_000);
    on(home, "data", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    on(home, "data", &["vacuum"]).ends_with(0).stdout_contains(&["; 0 B are free"]);
}

#[test]
fn vacuum_survives_kills() {
    let directory = store_with_free_pages(3_000);
    let home = directory.path();
    let export = on(home, "data", &EXPORT).ends_with(0).stdout;
    let (mut kills, mut begun) = (Kills::new(kill_rounds(4), 11), 0);
    // Some run is killed between its first and its last step.
    while begun == 0 || !kills.is_enough() {
        let round = kills.next_round();
        let is_full = round % 2 == 1;
        copy(home, "killed");
        let before = free_pages(&home.join("killed"));
        let words = if is_full { &["vacuum", "--full"][..] } else { &["vacuum"] };
        let mut process = rashomon(home);
        process.args(words).args(["--data", "killed"]);
        let ran = kills.kill(if is_full { "vacuum --full" } else { "vacuum" }, &mut process);
        begun += u64::from(ran.code.is_none() && free_pages(&home.join("killed")) < before);
        on(home, "killed", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
        assert_eq!(on(home, "killed", &EXPORT).ends_with(0).stdout, export, "round {round}");
        // The next run continues.
        on(home, "killed", words).ends_with(0).stdout_contains(&["; 0 B are free"]);
        on(home, "killed", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    }
}

#[test]
fn full_disk_is_named_and_nothing_is_lost() {
    let directory = store_with_free_pages(1_500);
    let home = directory.path();
    let export = on(home, "data", &EXPORT).ends_with(0).stdout;
    let Some(_disk) = MountedFileSystem::in_memory(&home.join("disk"), 64) else { return };
    let (store, ballast) = (home.join("disk/store"), home.join("disk/ballast"));
    copy(home, "disk/store");
    let before = file_bytes(&store);
    let room = (64 << 20) - before - (1 << 20);
    fs::write(&ballast, vec![0; usize::try_from(room).unwrap()]).unwrap();
    let ran = on(home, "disk/store", &["vacuum"]).ends_with(1);
    let file = store.join("rashomon.sqlite").display().to_string();
    let file = file.strip_prefix(home.to_str().unwrap()).unwrap().trim_start_matches('/');
    ran.stderr_contains(&["the disk is full", file, "nothing is lost", "run the command again"]);
    on(home, "disk/store", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(on(home, "disk/store", &EXPORT).ends_with(0).stdout, export);
    fs::remove_file(&ballast).unwrap();
    on(home, "disk/store", &["vacuum"]).ends_with(0).stdout_contains(&["; 0 B are free"]);
    assert!(file_bytes(&store) + 1_500 * PAGE_BYTES <= before);
}

#[test]
fn rewrite_without_enough_disk_space_is_refused() {
    let directory = store_with_free_pages(1_500);
    let home = directory.path();
    let temporary = home.join("temporary");
    let Some(_disk) = MountedFileSystem::in_memory(&temporary, 2) else { return };
    let vacuum = |temporary: &Path| {
        let mut command = rashomon(home);
        command.args(["vacuum", "--full", "--data", "data"]).env("TMPDIR", temporary);
        RunningProcess::start(&mut command).wait()
    };
    let ran = vacuum(&temporary).ends_with(1);
    ran.stderr_contains(&["not enough disk space", temporary.to_str().unwrap(), "TMPDIR"]);
    on(home, "data", &["verify"]).ends_with(0).stdout_contains(&["sound"]);
    vacuum(home).ends_with(0).stdout_contains(&["; 0 B are free"]);
}
