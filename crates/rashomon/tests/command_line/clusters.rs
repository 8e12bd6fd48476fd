//! Unreachable clusters, and commands that need no connection to a cluster.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, thread, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use tempfile::tempdir;

use crate::{
    http::{get, post},
    process::{ProcessOutput, RunningProcess, finish, rashomon, run},
    wiki::dump,
};

/// The time within which an unreachable cluster must be reported, on a busy machine. On an idle machine, five seconds
/// are enough: `connect_timeout` is four.
const MAX_ERROR_DELAY: Duration = Duration::from_secs(30);

/// An address on which no process listens.
fn unused_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Runs all commands concurrently, and expects that each ends soon.
fn run_soon(address: &str, all: &[&[&str]]) -> Vec<ProcessOutput> {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    let url = format!("cassandra://{address}/wiki");
    let clock = SystemClock::new();
    thread::scope(|scope| {
        let running: Vec<_> = all
            .iter()
            .map(|words| {
                let mut command = rashomon(directory.path());
                command.args(*words).args(["--store", &url]);
                let (clock, started) = (&clock, clock.monotonic());
                scope.spawn(move || {
                    let ran = finish(&mut command);
                    let took = clock.monotonic() - started;
                    assert!(took < MAX_ERROR_DELAY, "{took:?}: {ran:#?}");
                    ran
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn unreachable_cluster_is_reported_soon() {
    let nobody = unused_address();
    // A listener that accepts connections and never sends anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [nobody, silent.local_addr().unwrap().to_string()] {
        let commands: &[&[&str]] = &[
            &["import", "--domain", "wiki", "dump.xml"],
            &["export", "--domain", "wiki"],
            &["verify"],
            &["stats"],
            &["demo"],
        ];
        for ran in run_soon(&address, commands) {
            let expected = format!("error: no cluster at {address}: ");
            ran.ends_with(1).stderr_contains(&[
                &expected,
                "Check that Cassandra runs there",
                "contact_points",
            ]);
        }
    }
}

#[test]
fn server_reports_an_unreachable_cluster_and_waits() {
    let directory = tempdir().unwrap();
    let address = unused_address();
    let mut command = rashomon(directory.path());
    let clock = SystemClock::new();
    let started = clock.monotonic();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &format!("cassandra://{address}/wiki")]);
    let mut server = RunningProcess::start(&mut command);
    let line = server.line();
    let took = clock.monotonic() - started;
    assert!(took < MAX_ERROR_DELAY, "{took:?}");
    let listening = line.split(['/', ',']).nth(2).unwrap().to_owned();
    assert!(get(&listening, "/healthz").starts_with("HTTP/1.1 200"));
    let page = "/v1/wiki/page/Night";
    for answer in [
        get(&listening, "/readyz"),
        get(&listening, &format!("{page}?rev/latest/html")),
        post(&listening, &format!("{page}?rev/"), "_rev=1&html=x"),
    ] {
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        let answer = answer.to_lowercase();
        assert!(answer.contains("retry-after: ") && answer.contains("application/problem+json"), "{answer}");
    }
    let ran = server.stop().ends_with(0);
    ran.stderr_contains(&[
        &format!("no cluster at {address}: "),
        "until the store answers; trying again",
        "the store is closed",
    ]);
}

#[test]
fn the_settings_of_a_cluster_are_checked_and_printed() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    let file = "[store]\nurl = 'cassandra://db1,db2:9043/wiki'\nuser = 'me'\npassword_file = 'password'\n";
    fs::write(path.join("c.toml"), file).unwrap();
    let ran = run(path, &["check-config", "c.toml"]).ends_with(2);
    ran.stderr_contains(&["error: cannot read password_file password: No such file"]);
    fs::write(path.join("password"), "secret\n").unwrap();
    fs::set_permissions(path.join("password"), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = run(path, &["check-config", "c.toml"]).ends_with(0);
    let ran = ran.stderr_contains(&["warning: everybody on this machine can read the password in password"]);
    let ran =
        ran.stdout_contains(&["[store]\ncontact_points = [\"db1\", \"db2:9043\"]\nkeyspace = \"wiki\"\n"]);
    assert!(!format!("{ran:?}").contains("secret"), "{ran:#?}");
    // The printed configuration has the same effect.
    fs::write(path.join("printed.toml"), &ran.stdout).unwrap();
    let again = run(path, &["check-config", "printed.toml"]).ends_with(0);
    assert_eq!(again.stdout, ran.stdout);

    let mut command = rashomon(path);
    command.args(["check-config", "c.toml"]).env("RASHOMON_STORE", "cassandra://db3/other");
    finish(&mut command)
        .ends_with(0)
        .stdout_contains(&["contact_points = [\"db3\"]", "keyspace = \"other\""]);
    fs::write(path.join("c.toml"), "[store]\ncontact_point = ['db1']\n").unwrap();
    for command in [&["check-config", "c.toml"][..], &["stats", "--config", "c.toml"]] {
        let expected = "c.toml:2:1: there is no setting 'contact_point'; did you mean 'contact_points'?";
        run(path, command).ends_with(2).stderr_contains(&[expected]);
    }
}

#[test]
fn the_schema_is_printed_without_a_cluster() {
    let directory = tempdir().unwrap();
    let schema = |words: &[&str]| run(directory.path(), &[&["cassandra", "schema"], words].concat());
    let plain = schema(&[]).ends_with(0);
    let plain = plain.stdout_contains(&[
        "CREATE KEYSPACE IF NOT EXISTS rashomon WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 3};",
        "CREATE TABLE IF NOT EXISTS rashomon.revisions (",
    ]);
    assert_eq!(plain.stdout, schema(&[]).stdout);
    let store = ["--store", "cassandra://db1/wiki?replication=2"];
    schema(&store).ends_with(0).stdout_contains(&["KEYSPACE IF NOT EXISTS wiki", "'replication_factor': 2"]);
    let above = [&store[..], &["--replication", "east:3,west:2"]].concat();
    schema(&above).ends_with(0).stdout_contains(&["'NetworkTopologyStrategy', 'east': 3, 'west': 2"]);
    schema(&["--replication", "many"])
        .ends_with(2)
        .stderr_contains(&["--replication", "as in east:3,west:2"]);
    schema(&["--store", "sqlite:d"])
        .ends_with(2)
        .stderr_contains(&["sqlite:d is not a cluster", "cassandra://HOST"]);
}
