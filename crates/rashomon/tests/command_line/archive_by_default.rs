//! A new SQLite store records whether its archive is on. So the same configuration has the same effect at every later
//! start.

use std::{fs, path::Path, thread};

use rashomon_clock::{Clock as _, SystemClock};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::{
    kills::kill_rounds,
    process::{ProcessOutput, RunningProcess, rashomon, run},
    wiki::dump,
};

/// A directory with a dump and a file for each configuration.
fn directory() -> TempDir {
    let directory = tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("none.toml", "");
    write("off.toml", "archive = false\n");
    write("on.toml", "[archive]\n");
    write("retention.toml", "[retention]\n");
    write("both.toml", "[retention]\n[archive]\n");
    write("dump.xml", &dump("A", &[("1", "one"), ("2", "two"), ("3", "three")]));
    directory
}

fn import(directory: &Path, data: &str, words: &[&str]) -> ProcessOutput {
    run(directory, &[&["import", "--domain", "wiki", "--data", data, "dump.xml"], words].concat())
}

/// Starts a server of a store, stops it, and returns its first log line.
fn serve(directory: &Path, data: &str, config: &str) -> String {
    let mut command = rashomon(directory);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", data, "--config", config]);
    let mut server = RunningProcess::start(&mut command);
    server.address();
    let ran = server.stop().ends_with(0);
    ran.stderr.lines().next().unwrap().to_owned()
}

fn stats(directory: &Path, data: &str, config: &str) -> Value {
    let ran = run(directory, &["stats", "--json", "--data", data, "--config", config]).ends_with(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Whether the archive of a store is on, and why.
fn archive(directory: &Path, data: &str, config: &str) -> Value {
    stats(directory, data, config)["archive"].clone()
}

fn on_by(because: &str) -> Value {
    json!({"on": true, "because": because})
}

fn off_by(because: &str) -> Value {
    json!({"on": false, "because": because})
}

#[test]
fn first_start_decides_for_all_later_starts() {
    let directory = directory();
    let directory = directory.path();
    for (data, config, decided) in [
        ("a", "none.toml", on_by("store")),
        ("b", "off.toml", off_by("store")),
        ("c", "retention.toml", off_by("store")),
        ("d", "on.toml", on_by("store")),
        ("e", "both.toml", on_by("store")),
    ] {
        let first = serve(directory, data, config);
        let state = if decided["on"] == true { "on, " } else { "off, " };
        assert!(first.contains("the store is open") && first.contains(state), "{first}");
        assert_eq!(serve(directory, data, config).contains(state), first.contains(state));
        assert_eq!(archive(directory, data, "none.toml"), decided, "{config}");
        let shown = if decided["on"] == true { "archive: on, " } else { "archive: off, " };
        run(directory, &["stats", "--data", data])
            .ends_with(0)
            .stdout_contains(&[shown, "as recorded in the store when it was made"]);
    }
    // The configuration takes precedence, and changes no record.
    assert_eq!(archive(directory, "a", "off.toml"), off_by("configuration"));
    assert_eq!(archive(directory, "a", "none.toml"), on_by("store"));
    assert_eq!(archive(directory, "b", "on.toml"), on_by("configuration"));
    assert_eq!(archive(directory, "b", "none.toml"), off_by("store"));
    assert!(serve(directory, "a", "off.toml").contains("off, by the configuration"));
}

/// Checks each row of the table in docs/configuration.md: a configuration, the record of a new store with it, and the
/// outcome for a store that has recorded `on`, `off` or nothing. `None`: the combination is refused.
#[test]
fn every_combination_of_store_and_configuration_has_its_outcome() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "on", &["--rows"]).ends_with(0);
    import(directory, "off", &["--config", "off.toml"]).ends_with(0);
    unpack_earlier_store(&directory.join("earlier"));
    let by = |because: &str| [on_by(because), off_by(because)].map(Some);
    let ([on, off], [store_on, store_off]) = (by("configuration"), by("store"));
    let default_off = Some(off_by("default"));
    let bucket = "[domains.a.buckets.page.retention]\n";
    let keeping = "[retention]\nstrategy = 'keep-everything'\n";
    for (number, (configuration, new_store, expected)) in [
        ("", &store_on, [&store_on, &store_off, &default_off]),
        ("[archive]\n", &on, [&on; 3]),
        ("archive = true\n", &on, [&on; 3]),
        ("archive = false\n", &off, [&off; 3]),
        ("[archive]\nenabled = false\n", &off, [&off; 3]),
        ("[retention]\n", &store_off, [&None, &store_off, &default_off]),
        (bucket, &store_off, [&None, &store_off, &default_off]),
        (keeping, &store_off, [&None, &store_off, &default_off]),
        ("[retention]\n[archive]\n", &on, [&on; 3]),
        (&format!("archive = true\n{bucket}"), &on, [&on; 3]),
        ("archive = false\n[retention]\n", &off, [&None, &off, &off]),
        (&format!("archive = false\n{bucket}"), &off, [&None, &off, &off]),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(directory.join("c.toml"), configuration).unwrap();
        for (data, expected) in ["on", "off", "earlier"].into_iter().zip(expected) {
            let ran = run(directory, &["stats", "--json", "--data", data, "--config", "c.toml"]);
            match expected {
                Some(expected) => {
                    let stats: Value = serde_json::from_str(&ran.ends_with(0).stdout).unwrap();
                    assert_eq!(stats["archive"], *expected, "{configuration} on {data}");
                }
                None => drop(ran.ends_with(2).stderr_contains(&["add [archive]", "rashomon export"])),
            }
        }
        // The configuration that makes a store has the same effect at every later start.
        let new = format!("new-{number}");
        import(directory, &new, &["--config", "c.toml"]).ends_with(0);
        assert_eq!(archive(directory, &new, "c.toml"), *new_store.as_ref().unwrap(), "{configuration}");
        let recorded = archive(directory, &new, "none.toml");
        assert_eq!(recorded["on"], new_store.as_ref().unwrap()["on"], "{configuration}");
        assert_eq!(recorded["because"], "store", "{configuration}");
    }
}

/// Unpacks a store that an earlier version of the program made, and upgrades it.
fn unpack_earlier_store(data: &Path) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stores");
    let fixture = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let file = zstd::decode_all(&*fs::read(fixture.join("rashomon.sqlite.zst")).unwrap()).unwrap();
    fs::create_dir(data).unwrap();
    fs::write(data.join("rashomon.sqlite"), file).unwrap();
    run(data, &["upgrade", "--data", "."]).ends_with(0);
}

#[test]
fn store_without_a_record_has_an_archive_only_if_configured() {
    let directory = directory();
    let directory = directory.path();
    unpack_earlier_store(&directory.join("data"));
    for _ in 0..2 {
        assert!(serve(directory, "data", "none.toml").contains("off, since neither the store"));
    }
    assert_eq!(archive(directory, "data", "none.toml"), off_by("default"));
    assert_eq!(archive(directory, "data", "on.toml"), on_by("configuration"));
}

/// The error names two ways out. Both work.
#[test]
fn retention_added_to_a_store_with_an_archive_is_refused() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "data", &[]).ends_with(0);
    let refused = |words: &[&str]| {
        run(directory, &[words, &["--data", "data", "--config", "retention.toml"]].concat())
            .ends_with(2)
            .stderr_contains(&[
                "the archive of this store is on",
                "add [archive]",
                "rashomon export --history",
            ])
    };
    refused(&["serve", "--listen", "127.0.0.1:0"]);
    refused(&["stats"]);
    refused(&["retention", "--dry-run"]);
    refused(&["import", "--domain", "wiki", "dump.xml"]);
    let history = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    let before = run(directory, &[&history[..], &["--data", "data"]].concat()).ends_with(0).stdout;

    // Retention by flags is refused as well.
    run(directory, &["retention", "--now", "--grace", "20s", "--data", "data"])
        .ends_with(2)
        .stderr_contains(&["retention deletes nothing, since the archive of the store is on"]);
    run(directory, &["retention", "--now", "--grace", "20s", "--domain", "wiki", "--data", "data"])
        .ends_with(2)
        .stderr_contains(&["retention deletes nothing, since the archive of the store is on"]);

    // The record counts, even if the configuration turns the archive off.
    run(directory, &["retention", "--now", "--grace", "20s", "--data", "data", "--config", "off.toml"])
        .ends_with(2)
        .stderr_contains(&["retention deletes nothing, since the archive of the store is on"]);

    // The first way out: add [archive].
    assert!(serve(directory, "data", "both.toml").contains("on, by the configuration"));
    assert_eq!(run(directory, &[&history[..], &["--data", "data"]].concat()).ends_with(0).stdout, before);

    // The second way out: export, and import into a new store with the configuration.
    fs::write(directory.join("history.jsonl"), &before).unwrap();
    let import =
        ["import", "--domain", "wiki", "--data", "new", "--config", "retention.toml", "history.jsonl"];
    run(directory, &import).ends_with(0).stdout_contains(&["3 stored"]);
    assert!(serve(directory, "new", "retention.toml").contains("off, as recorded"));
    run(directory, &["retention", "--dry-run", "--data", "new", "--config", "retention.toml"]).ends_with(0);
    assert_eq!(run(directory, &[&history[..], &["--data", "new"]].concat()).ends_with(0).stdout, before);
}

/// The revisions of a store that are in blocks, and those in rows.
fn counts(directory: &Path, data: &str) -> (u64, u64) {
    let ran = run(directory, &["archive", "stats", "--json", "--data", data]).ends_with(0);
    let stats: Value = serde_json::from_str(&ran.stdout).unwrap();
    let of = |field: &str| stats["wiki"]["page"][field].as_u64().unwrap();
    (of("revisions"), of("open_revisions"))
}

#[test]
fn import_goes_into_blocks_where_the_archive_is_on() {
    let directory = directory();
    let directory = directory.path();
    for (data, words, expected) in [
        ("a", &[][..], (3, 0)),
        ("b", &["--config", "on.toml"], (3, 0)),
        ("c", &["--config", "both.toml"], (3, 0)),
        ("d", &["--rows"], (0, 3)),
        ("e", &["--config", "off.toml"], (0, 3)),
        ("f", &["--config", "retention.toml"], (0, 3)),
        ("g", &["--config", "off.toml", "--archive"], (3, 0)),
    ] {
        import(directory, data, words).ends_with(0).stdout_contains(&["3 stored"]);
        assert_eq!(counts(directory, data), expected, "{words:?}");
        run(directory, &["verify", "--data", data])
            .ends_with(0)
            .stdout_contains(&["sound: 1 page, 3 revisions"]);
    }
    // --rows does not turn the archive off, and --archive does not turn it on.
    assert_eq!(archive(directory, "d", "none.toml"), on_by("store"));
    assert_eq!(archive(directory, "g", "none.toml"), off_by("store"));
    import(directory, "x", &["--config", "retention.toml", "--archive"])
        .ends_with(2)
        .stderr_contains(&["add [archive]"]);
    import(directory, "x", &["--rows", "--archive"]).ends_with(2).stderr_contains(&["--rows", "--archive"]);
    assert!(!directory.join("x").exists());
    // Later revisions of a page go into blocks, too.
    fs::write(directory.join("dump.xml"), dump("A", &[("4", "four"), ("5", "five")])).unwrap();
    import(directory, "a", &[]).ends_with(0).stdout_contains(&["2 stored", "2 revisions in 1 block"]);
    assert_eq!(counts(directory, "a"), (5, 0));
}

#[test]
fn copies_of_a_store_have_its_record() {
    let directory = directory();
    let directory = directory.path();
    for (data, config, recorded) in
        [("on", "none.toml", on_by("store")), ("off", "off.toml", off_by("store"))]
    {
        import(directory, data, &["--config", config]).ends_with(0);
        let (from, to) = (format!("sqlite:{data}"), format!("sqlite:migrated-{data}"));
        run(directory, &["migrate", "--from", &from, "--to", &to, "--verify"]).ends_with(0);
        assert_eq!(archive(directory, &format!("migrated-{data}"), "none.toml"), recorded);
        let (backup, restored) = (format!("backup-{data}"), format!("restored-{data}"));
        run(directory, &["backup", "--data", data, "--to", &backup]).ends_with(0);
        run(directory, &["restore", "--from", &backup, "--data", &restored]).ends_with(0);
        assert_eq!(archive(directory, &restored, "none.toml"), recorded);
    }
}

#[test]
fn demo_in_a_directory_has_an_archive() {
    let directory = directory();
    let directory = directory.path();
    for _ in 0..2 {
        let mut command = rashomon(directory);
        let mut demo =
            RunningProcess::start(command.args(["demo", "--data", "data", "--listen", "127.0.0.1:0"]));
        while !demo.line().contains("Ctrl-C") {}
        demo.stop().ends_with(0);
        assert_eq!(archive(directory, "data", "none.toml"), on_by("store"));
        let stats = stats(directory, "data", "none.toml");
        let wiki = &stats["domains"]["lighthouse"];
        assert_eq!(wiki["archive"]["revisions"], wiki["revisions"], "{wiki}");
        run(directory, &["verify", "--data", "data"]).ends_with(0);
    }
}

/// A store appears with its record, or not at all.
#[test]
fn first_start_survives_kills() {
    let rounds = u32::try_from(kill_rounds(12)).unwrap();
    let directory = directory();
    let (clock, mut absent, mut made) = (SystemClock::new(), 0, 0);
    let start = |data: &str| {
        let mut command = rashomon(directory.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", data, "--config", "off.toml"]);
        RunningProcess::start(&mut command)
    };
    let started = clock.monotonic();
    let mut server = start("first");
    server.address();
    let whole_start = clock.monotonic() - started;
    server.stop().ends_with(0);
    for round in 0..rounds {
        let data = format!("data-{round}");
        let mut server = start(&data);
        // The first server is killed before it has made a store, and the last one afterwards.
        if round + 1 < rounds {
            thread::sleep(whole_start * round / rounds);
        } else {
            server.address();
        }
        server.signal(Signal::KILL);
        server.wait();
        if directory.path().join(&data).join("rashomon.sqlite").exists() {
            made += 1;
            assert_eq!(archive(directory.path(), &data, "none.toml"), off_by("store"), "round {round}");
        } else {
            absent += 1;
            // Nothing was decided, so the next start decides.
            serve(directory.path(), &data, "none.toml");
            assert_eq!(archive(directory.path(), &data, "none.toml"), on_by("store"), "round {round}");
        }
    }
    assert!(absent > 0 && made > 0, "{absent} stores were absent, and {made} were made");
}
