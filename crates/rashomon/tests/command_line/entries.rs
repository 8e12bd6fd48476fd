//! Entries and counters in migrations and backups.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tempfile::tempdir;

use crate::{
    http::put_bytes,
    process::{RunningProcess, rashomon, run, wait_until},
    serving::serve_data,
};

const COUNTERS: &str = "{\"bucket\":{\"name\":\"clicks\",\"version\":1,\"definition\":{\"type\":\"counter\"}}}\n\
                        {\"counter\":{\"key\":\"a\",\"value\":7}}\n{\"end\":{\"entries\":1}}\n";

/// A body of three megabytes, each byte of which follows from the number.
fn body(number: u64) -> Vec<u8> {
    (0..3_000_000).map(|index: u64| (index.wrapping_mul(number | 1) >> 7) as u8).collect()
}

/// Makes a store with small, large and expiring entries, and a counter.
fn fill(at: &Path) {
    fs::write(at.join("counters.jsonl"), COUNTERS).unwrap();
    fs::write(at.join("large"), body(5)).unwrap();
    fs::write(at.join("small"), "small body").unwrap();
    run(at, &["import", "--data", "data", "--domain", "wiki", "--bucket", "clicks", "counters.jsonl"])
        .ends_with(0);
    let bucket = |words: &[&str]| run(at, &[&["bucket"], words, &["--data", "data"]].concat()).ends_with(0);
    bucket(&["create", "wiki/files", "--type", "ordered-blob"]);
    bucket(&["create", "wiki/sessions", "--type", "blob", "--ttl", "10d"]);
    for key in ["wiki/files/large", "wiki/files/replaced", "wiki/sessions/large"] {
        bucket(&["put", key, "large"]);
    }
    for key in ["wiki/files/small", "wiki/files/replaced", "wiki/files/deleted", "wiki/sessions/small"] {
        bucket(&["put", key, "small", "--content-type", "text/plain"]);
    }
    bucket(&["delete", "wiki/files/deleted"]);
}

/// The exports of all buckets, which have definitions, bodies, and times of writes and of expiry.
fn content(at: &Path, store: &str) -> Vec<String> {
    let buckets = ["clicks", "files", "sessions"];
    let export = |bucket: &&str| {
        run(at, &["export", "--data", store, "--domain", "wiki", "--bucket", bucket]).ends_with(0).stdout
    };
    let content: Vec<String> = buckets.iter().map(export).collect();
    assert!(content[0].contains("{\"key\":\"a\",\"value\":7}"), "{}", content[0]);
    assert!(content[1].contains("{\"end\":{\"entries\":3}}"));
    assert_eq!(content[2].matches("\"expires\"").count(), 2);
    content
}

#[test]
fn migration_copies_entries_and_counters() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    fill(at);
    let migrate = ["migrate", "--from", "sqlite:data", "--to", "sqlite:copy", "--verify"];
    run(at, &migrate).ends_with(0).stdout_contains(&["the same: ", "bucket_entries: "]);
    run(at, &["verify", "--data", "copy"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(content(at, "data"), content(at, "copy"));
}

#[test]
fn restored_backup_has_entries_and_counters() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    fill(at);
    run(at, &["backup", "--data", "data", "--to", "backup"]).ends_with(0);
    let before = content(at, "data");
    run(at, &["bucket", "delete", "wiki/files", "--yes", "--data", "data"]).ends_with(0);
    run(at, &["restore", "--from", "backup", "--data", "restored"]).ends_with(0);
    run(at, &["verify", "--data", "restored"]).ends_with(0).stdout_contains(&["sound"]);
    assert_eq!(content(at, "restored"), before);
}

/// A server replaces entries all the time. The restored store has every entry that was acknowledged before the
/// backup began, and whole bodies only.
#[test]
fn entries_that_are_written_beside_a_backup_are_whole_after_the_restore() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    run(at, &["bucket", "create", "wiki/files", "--type", "ordered-blob", "--data", "data"]).ends_with(0);
    let (server, address) = serve_data(at);
    let (acknowledged, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = thread::spawn({
        let (acknowledged, stops) = (Arc::clone(&acknowledged), Arc::clone(&stops));
        move || {
            for number in 1_u64.. {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                let lines = format!("X-Number: {number}\r\n");
                for key in ["replaced".to_owned(), format!("new/{number:09}")] {
                    let answer = put_bytes(&address, &format!("/v1/wiki/files/{key}"), &lines, &body(number));
                    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
                }
                acknowledged.store(number, Ordering::SeqCst);
            }
        }
    });
    wait_until("the server writes", || acknowledged.load(Ordering::SeqCst) > 3);
    let count = acknowledged.load(Ordering::SeqCst);
    run(at, &["backup", "--data", "data", "--to", "backup", "--rate", "20MB"]).ends_with(0);
    stops.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    server.stop().ends_with(0);
    run(at, &["restore", "--from", "backup", "--data", "restored"]).ends_with(0);
    run(at, &["verify", "--data", "restored"]).ends_with(0).stdout_contains(&["sound"]);
    let list = run(at, &["bucket", "list", "wiki/files", "--data", "restored"]).ends_with(0).stdout;
    let keys: Vec<&str> = list.lines().map(|line| line.split('\t').next().unwrap()).collect();
    for number in 1..=count {
        assert!(keys.contains(&&*format!("new/{number:09}")), "{number} of {count}: {list}");
    }
    for key in keys {
        let get = ["bucket", "get", &format!("wiki/files/{key}"), "--data", "restored", "--output", "copy"];
        run(at, &get).ends_with(0);
        let copy = fs::read(at.join("copy")).unwrap();
        match key.strip_prefix("new/") {
            Some(number) => assert!(copy == body(number.parse().unwrap()), "{key}"),
            None => assert!(
                (1..=count + 500).any(|number| copy[..100] == body_start(number) && copy == body(number))
            ),
        }
    }
}

/// The first bytes of a body.
fn body_start(number: u64) -> [u8; 100] {
    std::array::from_fn(|index| ((index as u64).wrapping_mul(number | 1) >> 7) as u8)
}

const SERVE: [&str; 7] = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--config", "rashomon.toml"];

#[test]
fn server_makes_the_buckets_of_its_configuration() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let configure = |definition: &str| {
        let table = format!("[domains.wiki.buckets.files]\n{definition}\n");
        fs::write(at.join("rashomon.toml"), table).unwrap();
    };
    let list = || run(at, &["bucket", "list", "wiki", "--data", "data"]).ends_with(0).stdout;
    let delete = ["bucket", "delete", "wiki/files", "--yes", "--data", "data"];
    configure("type = 'blob'\nttl = '1d'");
    run(at, &["check-config", "rashomon.toml"])
        .ends_with(0)
        .stdout_contains(&["type = \"blob\"", "ttl = \"24h\""]);
    // A bucket that was deleted is made again at the next start.
    for _ in 0..2 {
        let mut server = RunningProcess::start(rashomon(at).args(SERVE));
        server.address();
        server.stop().ends_with(0);
        assert_eq!(list(), "files\t{\"type\":\"blob\",\"public\":false,\"ttl\":86400}\n");
        run(at, &delete).ends_with(0);
        assert_eq!(list(), "");
    }
    run(at, &["bucket", "create", "wiki/files", "--type", "blob", "--data", "data"]).ends_with(0);
    let refused = run(at, &SERVE).ends_with(2);
    refused.stderr_contains(&[
        "the bucket files of wiki is stored with another definition",
        "86400",
        "--replace",
    ]);
    configure("type = 'blobb'");
    run(at, &["check-config", "rashomon.toml"]).ends_with(2).stderr_contains(&["rashomon.toml:2:8: 'blobb'"]);
}
