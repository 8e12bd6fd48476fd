//! Superseded values are culled: by a server within its slack, and by a command at once.

use std::{fs, thread::sleep, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use rashomon_testing::stores::Redis;
use serde_json::Value;
use tempfile::tempdir;

use crate::{
    false_clock::FalseClock,
    home::Home,
    http::{get, post, request},
    process::{finish, rashomon, run},
    wiki::dump,
};

const PAGE: &str = "/v1/wiki/page/Night";

/// The grace of the configuration [`SHORT`].
const GRACE: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The number of attempts in two minutes. If a busy machine makes its clocks seem to jump, culling pauses for
/// a grace after each jump.
const MAX_POLLS: u32 = 480;

/// A configuration with [`GRACE`] and a slack of half a second.
const SHORT: &str =
    "skew = '100ms'\n[retention]\ngrace = '2s'\nttl = '2s'\nslack = '500ms'\nskew = '100ms'\n";

/// The body of an answer.
fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn list(address: &str) -> Value {
    let answer = get(address, &format!("{PAGE}?rev/"));
    serde_json::from_str(body(&answer)).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// The page is never written again, so only the sweep can cull.
#[test]
fn a_server_culls_a_page_that_is_never_written_again() {
    let Some(home) = Home::new() else { return };
    check_culling(&home, SHORT, |metrics| {
        assert!(metrics.contains("\nrashomon_retention_timeline_entries_total 1\n"), "{metrics}");
    });
}

/// A server culls with the timeline in Redis, even if Redis loses all entries at the worst time.
#[test]
fn server_culls_after_redis_lost_all_entries() {
    let Some(home) = Home::new() else { return };
    let Some(redis) = Redis::start() else { return };
    let config = format!("{SHORT}timeline = '{}'\n", redis.url());
    check_culling(&home, &config, |metrics| {
        assert!(metrics.contains("\nrashomon_retention_timeline_entries_total 1\n"), "{metrics}");
        assert_eq!(redis.command("DBSIZE"), ":1");
        assert_eq!(redis.command("FLUSHALL"), "+OK");
    });
}

/// If Redis is down, no write fails, and values are culled at the same time as usual. Entries that Redis did
/// not accept are not counted.
#[test]
fn server_culls_without_its_redis() {
    let Some(home) = Home::new() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let config = format!("{SHORT}timeline = '{}'\n", redis.url());
    redis.kill();
    check_culling(&home, &config, |metrics| {
        assert!(metrics.contains("\nrashomon_retention_timeline_entries_total 0\n"), "{metrics}");
    });
}

/// Writes two revisions. The first must be culled, but not before its grace is over. The second must stay.
fn check_culling(home: &Home, config: &str, meanwhile: impl FnOnce(&str)) {
    home.write("short.toml", config);
    let (server, address) = home.serve(&["--config", "short.toml"]);
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    for number in 1..=2 {
        let form = format!("_rev={number}&html=the+light+{number}&data-parsoid={{}}");
        let written = post(&address, &format!("{PAGE}?rev/"), &form);
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    }
    let first = list(&address)["revisions"][1]["tid"].as_str().unwrap().to_owned();
    let metrics = || get(&address, "/metrics");
    meanwhile(&metrics());
    for attempt in 0.. {
        if metrics().contains("\nrashomon_retention_culled_renders_total 1\n") {
            let waited = clock.monotonic().saturating_sub(begun);
            assert!(waited >= GRACE, "{waited:?}");
            break;
        }
        assert!(attempt < MAX_POLLS, "{}", metrics());
        sleep(POLL_INTERVAL);
    }
    let list = list(&address);
    assert_eq!(list["revisions"][1]["stored"], false, "{list}");
    assert!(list["revisions"][0].get("stored").is_none(), "{list}");
    let gone = get(&address, &format!("{PAGE}?rev/{first}/html"));
    assert!(gone.starts_with("HTTP/1.1 404") && gone.contains("superseded"), "{gone}");
    let latest = get(&address, &format!("{PAGE}?rev/latest/html"));
    assert!(latest.ends_with("the light 2"), "{latest}");
    server.stop().ends_with(0);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 2 revisions, 2 renders, 2 bodies"]);
    let exported = home.export(&["--history", "--format", "jsonl"]).ends_with(3);
    exported.stderr_contains(&["left out: revision 1 of Night"]);
}

/// Repeats a dry run with this configuration until this many bytes are eligible. Returns the report.
fn until_bytes_are_eligible(home: &Home, config: &str, bytes: u64) -> Value {
    let mut report = Value::Null;
    for _ in 0..MAX_POLLS {
        let dry = home.run(&["retention", "--dry-run", "--json", "--config", config]).ends_with(0);
        report = serde_json::from_str(&dry.stdout).unwrap();
        if report["domains"]["wiki"]["bytes_culled"] == bytes {
            return report;
        }
        sleep(POLL_INTERVAL);
    }
    panic!("{bytes} bytes are not eligible: {report}");
}

/// Imports a dump into a store whose archive is off.
#[track_caller]
fn import_without_archive(home: &Home, dump: &str) {
    home.write("off.toml", "archive = false\n");
    home.write("dump.xml", dump);
    home.run(&["import", "--config", "off.toml", "--domain", "wiki", "dump.xml"]).ends_with(0);
}

#[test]
fn command_reports_and_culls() {
    let Some(home) = Home::new() else { return };
    import_without_archive(&home, &dump("A", &[("1", "one"), ("2", "three"), ("3", "five!")]));
    let dry = home.run(&["retention", "--dry-run"]).ends_with(0);
    dry.stdout_contains(&[
        "24h after they were superseded",
        "wiki: would free 0 B of 13 B",
        "nothing was changed",
    ]);
    // Without --config there is no policy, so nothing is deleted.
    for flags in [&[][..], &["--min-keep", "2"], &["--domain", "wiki"]] {
        home.run(&[&["retention", "--now"], flags].concat()).ends_with(2).stderr_contains(&[
            "no retention policy is configured",
            "--config FILE",
            "--grace TIME",
        ]);
    }
    // The shortest grace whose slack is the default skew, five seconds.
    let short = ["--grace", "20s", "--min-keep", "2"];
    let dry = home.run(&[&["retention", "--dry-run"], &short[..]].concat()).ends_with(0);
    dry.stdout_contains(&["the newest 2 revisions of each page stay", "wiki: would free 0 B of 13 B"]);
    home.write(
        "sharp.toml",
        "[retention]\ngrace = '100ms'\nttl = '1s'\nslack = '100ms'\nskew = '0s'\nmin_keep = 2\n",
    );
    let sharp = ["--config", "sharp.toml"];
    let report = until_bytes_are_eligible(&home, "sharp.toml", 3);
    assert_eq!(report["domains"]["wiki"]["revisions_culled"], 1, "{report}");
    assert!(report.get("bytes_culled").is_none(), "{report}");
    let now = home.run(&[&["retention", "--now", "--json"], &sharp[..]].concat()).ends_with(0);
    let report: Value = serde_json::from_str(&now.stdout).unwrap();
    assert_eq!((&report["renders_culled"], &report["bytes_culled"]), (&1.into(), &3.into()), "{report}");
    assert_eq!(report["domains"]["wiki"]["bytes_culled"], 3, "{report}");
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 3 revisions, 3 renders, 2 bodies"]);
    home.write("sharper.toml", "[retention]\ngrace = '100ms'\nttl = '1s'\nslack = '100ms'\nskew = '0s'\n");
    until_bytes_are_eligible(&home, "sharper.toml", 5);
    let now = home.run(&["retention", "--now", "--config", "sharper.toml"]).ends_with(0);
    now.stdout_contains(&[
        "100ms after they were superseded",
        "wiki: frees 5 B of 10 B",
        "culled 1 render, 5 B",
    ]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 3 revisions, 3 renders, 1 body"]);
    home.run(&["retention"]).ends_with(2).stderr_contains(&["--dry-run", "--now"]);
    home.run(&["retention", "--dry-run", "--domain", "nowhere"])
        .ends_with(2)
        .stderr_contains(&["the store has no domain nowhere"]);
}

/// Editors and proxies rely on this: HEAD and 304 count as reads. A value that was read stays readable with
/// its whole render, from another process too. Values that were not read are culled.
#[test]
fn read_copy_outlives_its_grace_and_the_server() {
    let Some(home) = Home::new() else { return };
    home.write(
        "kept.toml",
        // The grace is long enough to read all values that must stay, even on a busy machine.
        "skew = '100ms'\n[retention]\ngrace = '15s'\nttl = '1h'\nslack = '1s'\nskew = '100ms'\n",
    );
    let (server, address) = home.serve(&["--config", "kept.toml"]);
    let write = |number: i32| {
        let form = format!("_rev={number}&html=the+light+{number}&data-parsoid={{\"light\":{number}}}");
        let written = post(&address, &format!("{PAGE}?rev/"), &form);
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
        let list = list(&address);
        format!("{PAGE}?rev/{}", list["revisions"][0]["tid"].as_str().unwrap())
    };
    let first = write(1);
    let second = write(2);
    // The second render is still the latest.
    let etag = etag(&get(&address, &format!("{second}/html")));
    let third = write(3);
    write(4);
    let head = request(&address, "HEAD", &format!("{first}/html"), "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let known = request(&address, "GET", &format!("{second}/html"), &format!("If-None-Match: {etag}\r\n"));
    assert!(known.starts_with("HTTP/1.1 304 "), "{known}");
    for attempt in 0.. {
        sleep(POLL_INTERVAL);
        let metrics = get(&address, "/metrics");
        if metrics.contains("\nrashomon_retention_culled_renders_total 3\n") {
            break;
        }
        assert!(attempt < MAX_POLLS, "{metrics}");
    }
    server.stop().ends_with(0);
    let (server, address) = home.serve(&["--config", "kept.toml"]);
    for (render, number) in [(&first, 1), (&second, 2)] {
        let html = get(&address, &format!("{render}/html"));
        assert!(html.starts_with("HTTP/1.1 200 ") && body(&html) == format!("the light {number}"), "{html}");
        let parsoid = get(&address, &format!("{render}/data-parsoid"));
        assert_eq!(body(&parsoid), format!("{{\"light\":{number}}}"), "{parsoid}");
    }
    assert_eq!(self::etag(&get(&address, &format!("{second}/html"))), etag);
    let gone = get(&address, &format!("{third}/html"));
    assert!(gone.starts_with("HTTP/1.1 404 ") && gone.contains("superseded"), "{gone}");
    server.stop().ends_with(0);
}

fn etag(answer: &str) -> String {
    let line = answer.lines().find(|line| line.to_lowercase().starts_with("etag: "));
    line.unwrap_or_else(|| panic!("{answer}"))[6..].to_owned()
}

/// Culled values are lost permanently, so flags must follow the same rules as a configuration.
#[test]
fn flags_with_values_that_a_configuration_may_not_have_are_refused() {
    let Some(home) = Home::new() else { return };
    import_without_archive(&home, &dump("A", &[("1", "one"), ("2", "three"), ("3", "five!")]));
    home.write("all.toml", "[retention]\nstrategy = 'table-per-query'\n");
    home.write("own.toml", "[domains.wiki.buckets.page.retention]\nstrategy = 'table-per-query'\n");
    let wrong: &[(&[&str], &[&str])] = &[
        (&["--grace", "0s"], &["--grace 0s", "longer than 0s"]),
        (&["--grace", "1ms"], &["--grace 1ms", "at least 100ms"]),
        (
            &["--grace", "19s", "--min-keep", "1"],
            &[
                "--grace 19s (slack is a quarter of it), and --min-keep 1: skew is 5s, more than slack, 4s 750ms",
            ],
        ),
        (&["--min-keep", "10", "--config", "all.toml"], &["--min-keep 10", "keeps only the latest revision"]),
        (&["--min-keep", "10", "--config", "own.toml"], &["--min-keep 10", "keeps only the latest revision"]),
    ];
    for (flags, messages) in wrong {
        for what in ["--now", "--dry-run"] {
            home.run(&[&["retention", what], *flags].concat()).ends_with(2).stderr_contains(messages);
        }
    }
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 3 revisions, 3 renders, 3 bodies"]);
}

/// If the configuration keeps everything, its times are ignored.
#[test]
fn configuration_that_keeps_everything_is_respected() {
    let Some(home) = Home::new() else { return };
    import_without_archive(&home, &dump("A", &[("1", "one"), ("2", "three"), ("3", "five!")]));
    let times = "grace = '100ms'\nttl = '1s'\nslack = '100ms'\nskew = '0s'\n";
    home.write("kept.toml", &format!("[retention]\nstrategy = 'keep-everything'\n{times}"));
    home.write("other.toml", &format!("[domains.other.buckets.page.retention]\n{times}"));
    home.write("sharp.toml", &format!("[retention]\n{times}"));
    until_bytes_are_eligible(&home, "sharp.toml", 8);
    for config in ["kept.toml", "other.toml"] {
        for what in ["--now", "--dry-run"] {
            let ran = home.run(&["retention", what, "--config", config]).ends_with(0);
            ran.stdout_contains(&["wiki: the configuration keeps everything"]);
            let ran = home.run(&["retention", what, "--json", "--config", config]).ends_with(0);
            let report: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(report["kept"][0], "wiki", "{report}");
            assert_eq!(report["domains"].as_object().unwrap().len(), 0, "{report}");
        }
    }
    for flags in [&["--grace", "20s"][..], &["--min-keep", "2"], &["--grace", "20s", "--domain", "wiki"]] {
        home.run(&[&["retention", "--now", "--config", "kept.toml"], flags].concat())
            .ends_with(2)
            .stderr_contains(&[
                "keeps everything",
                "remove the strategy from the configuration",
                "--dry-run",
            ]);
    }
    // With --dry-run these flags are allowed, so that a policy can be tried before retention is turned on.
    home.run(&["retention", "--dry-run", "--config", "kept.toml", "--min-keep", "2"])
        .ends_with(0)
        .stdout_contains(&["wiki: would free 3 B of 13 B", "the newest 2 revisions"]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 3 revisions, 3 renders, 3 bodies"]);
}

/// Each domain has its own policy, and flags apply only to the requested domain.
#[test]
fn policy_of_each_domain_is_printed() {
    let Some(home) = Home::new() else { return };
    for domain in ["v", "w", "x"] {
        home.write("dump.xml", &dump("A", &[("1", "one"), ("2", "three")]));
        home.write("off.toml", "archive = false\n");
        home.run(&["import", "--config", "off.toml", "--domain", domain, "dump.xml"]).ends_with(0);
    }
    home.write(
        "each.toml",
        "[retention]\ngrace = '2s'\nttl = '1s'\nskew = '100ms'\n\
         [domains.w.buckets.page.retention]\ngrace = '1h'\n\
         [domains.x.buckets.page.retention]\nstrategy = 'keep-everything'\n",
    );
    let each =
        |words: &[&str]| home.run(&[&["retention", "--config", "each.toml"], words].concat()).ends_with(0);
    each(&["--dry-run"]).stdout_contains(&[
        "v: superseded revisions and renders are deleted 2s after",
        "w: superseded revisions and renders are deleted 1h after",
        "x: the configuration keeps everything",
    ]);
    let ran = each(&["--dry-run", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let policy = |domain: &str| report["domains"][domain]["policy"].as_str().unwrap().to_owned();
    assert!(policy("v").contains("deleted 2s after") && policy("w").contains("deleted 1h after"), "{report}");
    assert!(report["policy"].is_null(), "{report}");
    // If all domains have the same policy, it is printed once.
    let ran = each(&["--dry-run", "--domain", "w"]);
    assert!(ran.stdout.starts_with("superseded revisions and renders are deleted 1h after"), "{ran:?}");
    let ran = each(&["--dry-run", "--domain", "w", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["policy"], report["domains"]["w"]["policy"], "{report}");
    let ran = each(&["--dry-run", "--grace", "3h"]);
    assert!(ran.stdout.starts_with("superseded revisions and renders are deleted 3h after"), "{ran:?}");
}

/// A run that culled nothing because of the clock must not look like a run that had nothing to cull.
#[test]
fn clock_that_was_set_back_ends_the_command_with_an_error() {
    let directory = tempdir().unwrap();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let [early, late] = [&first, &second].map(|folder| {
        fs::create_dir(folder).unwrap();
        FalseClock::new(folder)
    });
    late.pass(Duration::from_secs(2 * 3600));
    let run = |clock: &FalseClock, words: &[&str]| {
        let mut command = rashomon(directory.path());
        finish(command.args(words).args(["--data", "data"]).envs(clock.environment()))
    };
    fs::write(directory.path().join("off.toml"), "archive = false\n").unwrap();
    fs::write(directory.path().join("dump.xml"), dump("A", &[("1", "one"), ("2", "three")])).unwrap();
    run(&early, &["import", "--config", "off.toml", "--domain", "wiki", "dump.xml"]).ends_with(0);
    let cull = ["retention", "--now", "--grace", "20s"];
    let policy = [&cull[..], &["--min-keep", "2"]].concat();
    let trusts = ["--trust-clock"];
    run(&late, &[&policy[..], &trusts].concat()).ends_with(0).stdout_contains(&["culled 0 renders"]);
    early.pass(Duration::from_secs(3600));
    let expected = ["the clock of this machine was set", "run the command again"];
    run(&early, &cull).ends_with(1).stdout_contains(&["culled 0 renders"]).stderr_contains(&expected);
    let json = run(&early, &[&cull[..], &["--json"]].concat()).ends_with(1);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&report["paused"], &report["damaged"]), (&true.into(), &false.into()), "{report}");
    run(&late, &[&cull[..], &trusts].concat()).ends_with(0).stdout_contains(&["culled 1 render, 3 B"]);
}

/// No process has seen the two hours pass, so perhaps the clock was set ahead.
#[test]
fn clock_that_was_set_ahead_culls_nothing_unless_it_is_trusted() {
    let directory = tempdir().unwrap();
    let clock = FalseClock::new(directory.path());
    let run = |words: &[&str]| {
        let mut command = rashomon(directory.path());
        finish(command.args(words).args(["--data", "data"]).envs(clock.environment()))
    };
    fs::write(directory.path().join("off.toml"), "archive = false\n").unwrap();
    fs::write(directory.path().join("dump.xml"), dump("A", &[("1", "one"), ("2", "three")])).unwrap();
    run(&["import", "--config", "off.toml", "--domain", "wiki", "dump.xml"]).ends_with(0);
    clock.pass(Duration::from_secs(2 * 3600));
    let cull = ["retention", "--now", "--grace", "1h"];
    run(&cull)
        .ends_with(1)
        .stdout_contains(&["culled 0 renders"])
        .stderr_contains(&["--trust-clock", "no process"]);
    run(&[&cull[..], &["--trust-clock"]].concat()).ends_with(0).stdout_contains(&["culled 1 render, 3 B"]);
}

/// The command deletes the values that it can delete, and names the damaged page.
#[test]
fn damaged_page_is_not_culled_and_ends_the_command_with_an_error() {
    let directory = tempdir().unwrap();
    let clock = FalseClock::new(directory.path());
    let run = |words: &[&str]| {
        let mut command = rashomon(directory.path());
        finish(command.args(words).args(["--data", "data"]).envs(clock.environment()))
    };
    let text = "a text that is long enough to be found in the file of the store";
    fs::write(directory.path().join("off.toml"), "archive = false\n").unwrap();
    for (title, text) in [("A", text), ("B", "one")] {
        fs::write(directory.path().join("dump.xml"), dump(title, &[("1", text), ("2", "three")])).unwrap();
        run(&["import", "--config", "off.toml", "--domain", "wiki", "dump.xml"]).ends_with(0);
    }
    let path = directory.path().join("data/rashomon.sqlite");
    let mut file = fs::read(&path).unwrap();
    let found = file.windows(text.len()).position(|bytes| bytes == text.as_bytes()).expect("it is there");
    file[found] ^= 1;
    fs::write(path, file).unwrap();
    clock.pass(Duration::from_secs(3600));
    let cull = ["retention", "--now", "--grace", "20s", "--trust-clock"];
    run(&cull).ends_with(1).stdout_contains(&["culled 1 render, 3 B"]).stderr_contains(&[
        "title=A",
        "some pages could not be culled",
        "rashomon verify",
    ]);
}

/// Retention without the archive would report the revisions in blocks as deleted.
#[test]
fn retention_without_the_archive_of_the_store_is_refused() {
    let directory = tempdir().unwrap();
    let run = |words: &[&str]| run(directory.path(), &[words, &["--data", "data"]].concat());
    fs::write(directory.path().join("off.toml"), "archive = false\n").unwrap();
    fs::write(directory.path().join("dump.xml"), dump("A", &[("1", "one"), ("2", "three")])).unwrap();
    run(&["import", "--config", "off.toml", "--domain", "wiki", "dump.xml"]).ends_with(0);
    run(&["archive", "seal", "--after", "0s"]).ends_with(0).stdout_contains(&["sealed 1 revision"]);
    fs::write(directory.path().join("alone.toml"), "[retention]\n").unwrap();
    for words in [&["retention", "--dry-run"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        run(&[words, &["--config", "alone.toml"]].concat())
            .ends_with(2)
            .stderr_contains(&["the store has sealed revisions", "add [archive] to the configuration"]);
    }
}
