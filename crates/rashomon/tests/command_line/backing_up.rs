//! `rashomon backup` and `rashomon restore`: beside a server, killed, and with wrong arguments.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use crate::{
    http::post,
    process::{ProcessOutput, RunningProcess, rashomon, run, wait_until},
    serving::serve_data,
};

/// A text that does not compress well.
fn text(rev: u64, words: u64) -> String {
    let word = |word: u64| format!("{:x} ", (rev * 1_000_003 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..words).map(word).collect()
}

/// Creates a store with this many pages, each with one revision.
fn wiki(directory: &Path, pages: u64) {
    let mut dump = String::from(
        "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">",
    );
    for page in 1..=pages {
        dump.push_str(&format!(
            "<page><title>P{page}</title><ns>0</ns><id>{page}</id><revision><id>{page}</id>\
             <timestamp>2020-01-01T00:00:00Z</timestamp><contributor><username>Ann</username></contributor>\
             <model>wikitext</model><format>text/x-wiki</format><text>{}</text></revision></page>",
            text(page, 2_000)
        ));
    }
    dump.push_str("</mediawiki>");
    fs::write(directory.join("wiki.xml"), dump).unwrap();
    run(directory, &["import", "--data", "data", "--domain", "wiki", "wiki.xml"]).ends_with(0);
}

fn export(directory: &Path, store: &str) -> String {
    let words = ["export", "--data", store, "--domain", "wiki", "--history", "--format", "jsonl"];
    run(directory, &words).ends_with(0).stdout
}

fn json(ran: &ProcessOutput) -> Value {
    serde_json::from_str(&ran.stdout).expect(&ran.stdout)
}

/// A server writes all the time, and is killed at the end. Each state has every revision that was
/// acknowledged before its backup began, and whole revisions only.
#[test]
fn backup_beside_a_server_has_every_acknowledged_revision() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    wiki(at, 300);
    let (server, address) = serve_data(at);
    let (acknowledged, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = thread::spawn({
        let (acknowledged, stops) = (Arc::clone(&acknowledged), Arc::clone(&stops));
        move || {
            for rev in 1.. {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                let form = format!("_rev={rev}&html={}&data={}", text(rev, 300), text(rev + 7, 50));
                let answer = post(&address, "/v1/wiki/page/Written?rev/", &form);
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                acknowledged.store(rev, Ordering::SeqCst);
            }
        }
    });
    let mut counts = Vec::new();
    for state in 1..=3 {
        wait_until("the server writes", || acknowledged.load(Ordering::SeqCst) > 40 * state);
        counts.push(acknowledged.load(Ordering::SeqCst));
        let backup = run(at, &["backup", "--data", "data", "--to", "backup", "--rate", "10MB", "--json"]);
        assert_eq!(json(&backup.ends_with(0))["state"], state);
    }
    stops.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    server.signal(Signal::KILL);
    server.wait();
    for (state, count) in (1..).zip(counts) {
        let (restored, number) = (format!("restored-{state}"), format!("{state}"));
        run(at, &["restore", "--from", "backup", "--data", &restored, "--state", &number]).ends_with(0);
        run(at, &["verify", "--data", &restored]).ends_with(0).stdout_contains(&["sound"]);
        let lines = export(at, &restored);
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let written = lines.skip_while(|line| line["title"] != "Written").skip(1);
        let written = written.take_while(|line| line["kind"] != "page");
        let renders: Vec<_> = written.filter(|line| line["kind"] == "render").collect();
        assert!(renders.len() as u64 >= count, "{} of {count} revisions", renders.len());
        for render in renders {
            let properties = render["properties"].as_object().unwrap();
            assert!(properties.contains_key("html") && properties.contains_key("data"), "{render}");
        }
    }
    let list = run(at, &["restore", "--from", "backup", "--list"]).ends_with(0);
    assert_eq!(list.stdout.lines().count(), 3, "{list:?}");
}

/// The server stops, or is killed, and starts again several times while a slow backup runs.
#[test]
fn backup_continues_while_the_server_restarts() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    wiki(at, 300);
    for state in 1..=3 {
        let mut backup = rashomon(at);
        backup.args(["backup", "--data", "data", "--to", "backup", "--rate", "4MB"]);
        let backup = RunningProcess::start(&mut backup);
        for restart in 0..4 {
            let (server, address) = serve_data(at);
            for rev in 1..=20 {
                let number = state * 1_000 + restart * 100 + rev;
                let form = format!("_rev={number}&html={}", text(number, 300));
                let answer = post(&address, &format!("/v1/wiki/page/Written_{}?rev/", rev % 5), &form);
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
            }
            if restart % 2 == 0 {
                server.stop().ends_with(0);
            } else {
                server.signal(Signal::KILL);
                server.wait();
            }
        }
        backup.wait().ends_with(0);
        let restored = format!("restored-{state}");
        run(at, &["restore", "--from", "backup", "--data", &restored]).ends_with(0);
        run(at, &["verify", "--data", &restored]).ends_with(0).stdout_contains(&["sound"]);
    }
}

/// Both commands are killed several times, and continue.
#[test]
fn killed_backups_and_restores_continue() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    wiki(at, 400);
    let original = export(at, "data");
    // The first runs are killed before they write pages, and later runs when they have written some.
    for milliseconds in [5, 40, 200, 400] {
        let mut backup = rashomon(at);
        backup.args(["backup", "--data", "data", "--to", "backup", "--rate", "4MB"]);
        let backup = RunningProcess::start(&mut backup);
        thread::sleep(Duration::from_millis(milliseconds));
        backup.signal(Signal::KILL);
        assert_eq!(backup.wait().code, None);
        run(at, &["restore", "--from", "backup", "--data", "early"])
            .ends_with(2)
            .stderr_contains(&["no complete backup"]);
    }
    let backup = json(&run(at, &["backup", "--data", "data", "--to", "backup", "--json"]).ends_with(0));
    assert!(backup["written_pages"].as_u64() < backup["pages"].as_u64(), "{backup}");
    let mut killed = 0;
    for milliseconds in [2, 5, 10, 20, 40] {
        let mut restore = rashomon(at);
        restore.args(["restore", "--from", "backup", "--data", "restored"]);
        let restore = RunningProcess::start(&mut restore);
        thread::sleep(Duration::from_millis(milliseconds));
        restore.signal(Signal::KILL);
        let ran = restore.wait();
        if ran.code == Some(0) {
            break;
        }
        killed += 1;
        if !at.join("restored/rashomon.sqlite").exists() {
            run(at, &["verify", "--data", "restored"]).ends_with(2).stderr_contains(&["there is no store"]);
        }
    }
    assert!(killed > 0, "every restore was faster than its kill");
    // A restore that is complete has deleted its mark, and refuses to be repeated.
    let mark = at.join("restored/rashomon-restore.state");
    if mark.exists() || !at.join("restored/rashomon.sqlite").exists() {
        run(at, &["restore", "--from", "backup", "--data", "restored"]).ends_with(0);
    }
    run(at, &["verify", "--data", "restored"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(export(at, "restored"), original);
    assert!(!mark.exists());
}

#[test]
fn sigterm_ends_a_backup_that_can_be_continued() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    wiki(at, 200);
    let mut backup = rashomon(at);
    backup.args(["backup", "--data", "data", "--to", "backup", "--rate", "1MB"]);
    let backup = RunningProcess::start(&mut backup);
    wait_until("the backup has begun", || at.join("backup/pages/000001.pages").exists());
    let ran = backup.stop().ends_with(143);
    assert!(ran.stderr.contains("run the same command again to continue"), "{ran:?}");
    run(at, &["backup", "--data", "data", "--to", "backup"])
        .ends_with(0)
        .stdout_contains(&["state 1, of 20", "read again and compared"]);
}

#[test]
fn wrong_arguments_change_nothing() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let ran = run(at, &["backup", "--data", "data", "--to", "backup"]).ends_with(2);
    ran.stderr_contains(&["there is no store in data"]);
    let ran = run(at, &["backup", "--store", "memory:", "--to", "backup"]).ends_with(2);
    ran.stderr_contains(&["name a store with --data DIR"]);
    let ran = run(at, &["backup", "--store", "cassandra://127.0.0.1/none", "--to", "backup"]).ends_with(2);
    ran.stderr_contains(&["nodetool snapshot", "docs/cassandra-backup.md"]);
    let ran = run(at, &["restore", "--from", "backup", "--data", "restored"]).ends_with(2);
    ran.stderr_contains(&["has no complete backup"]);
    let ran = run(at, &["restore", "--from", "backup"]).ends_with(2);
    ran.stderr_contains(&["--data"]);
    assert_eq!(fs::read_dir(at).unwrap().count(), 0);

    wiki(at, 2);
    fs::create_dir(at.join("letters")).unwrap();
    fs::write(at.join("letters/one"), "Dear").unwrap();
    let ran = run(at, &["backup", "--data", "data", "--to", "letters"]).ends_with(2);
    ran.stderr_contains(&["letters is not empty, and is not a backup"]);
    run(at, &["backup", "--data", "data", "--to", "backup"]).ends_with(0);
    let ran = run(at, &["restore", "--from", "backup", "--data", "letters"]).ends_with(2);
    ran.stderr_contains(&["letters is not empty: name a new directory"]);
    let ran = run(at, &["restore", "--from", "backup", "--data", "data"]).ends_with(2);
    ran.stderr_contains(&["data is not empty"]);
    let ran = run(at, &["restore", "--from", "backup", "--data", "new", "--state", "7"]).ends_with(2);
    ran.stderr_contains(&["backup has no state 7; it has 1"]);
    let ran = run(at, &["backup", "--data", "data", "--to", "backup", "--rate", "fast"]).ends_with(2);
    ran.stderr_contains(&["'fast' is not a size"]);
    run(at, &["backup", "--data", "data", "--to", "backup", "--rate", "0B"]).ends_with(0);
    assert!(!at.join("new").exists());
    assert_eq!(fs::read_dir(at.join("letters")).unwrap().count(), 1);
}
