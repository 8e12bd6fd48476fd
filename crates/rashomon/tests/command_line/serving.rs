//! `rashomon serve`: its start and its output.

use std::{io::Write as _, net::TcpStream, path::Path, time::Duration};

use serde_json::Value;
use tempfile::tempdir;

use crate::{
    home::Home,
    http::{answer, get, request},
    process::{RunningProcess, rashomon, run},
};

/// Starts a server of the store `data`. Returns it with its address.
pub(crate) fn serve_data(directory: &Path) -> (RunningProcess, String) {
    let mut command = rashomon(directory);
    let mut server =
        RunningProcess::start(command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]));
    let address = server.address();
    (server, address)
}

#[test]
fn address_in_use_is_reported() {
    let directory = tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(directory.path(), &["serve", "--data", "data", "--listen", &address]).ends_with(1);
    ran.stderr_contains(&[&address, "another process already listens there", "--listen"]);
    let ran = run(
        directory.path(),
        &["serve", "--store", "memory:", "--access", "open", "--listen", "192.0.2.1:7231"],
    );
    ran.ends_with(1).stderr_contains(&["192.0.2.1:7231", "no such address"]);
}

#[test]
fn a_second_server_of_one_store_is_refused_and_the_first_is_named() {
    let Some(home) = Home::new() else { return };
    let (server, _) = home.serve(&[]);
    let ran = home.run(&["serve", "--listen", "127.0.0.1:0"]).ends_with(1);
    ran.stderr_contains(&["data", &format!("process {}", server.id())]);
    server.stop().ends_with(0);
}

#[test]
fn logs_are_json_if_configured() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&["--log-format", "json", "--access-log", "all"]);
    let answer = get(&address, "/v1/wiki/page/None?rev/latest/html");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    let ran = server.stop().ends_with(0);
    let lines: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(
        lines.iter().any(|line| line["message"]
            .as_str()
            .is_some_and(|message| message.contains("the store is closed")))
    );
    assert!(ran.stderr.lines().any(|line| line.contains(&id) && line.contains("404")), "{}", ran.stderr);
}

/// A pipe has 64 KiB, and a line here is longer than 300 bytes.
#[test]
fn unread_log_does_not_block_the_server() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&["--access-log", "all"]);
    let path = format!("/v1/wiki/page/{}?rev/latest/html", "None".repeat(60));
    for _ in 0..500 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        assert!(answer(stream).starts_with("HTTP/1.1 404"));
    }
    let ran = server.stop().ends_with(0);
    let logged = ran.stderr.lines().filter(|line| line.contains("NoneNone")).count();
    assert_eq!(logged, 500, "all lines are there when the log is read");
}

#[test]
fn long_url_is_shortened_in_the_log() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--access-log", "all"]);
    let mut server = RunningProcess::start(&mut command);
    let address = server.line().split(['/', ',']).nth(2).unwrap().to_owned();
    let answer = get(&address, &format!("/v1/wiki/page/A?{}end", "x".repeat(10_000)));
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let ran = server.stop().ends_with(0);
    let line = ran.stderr.lines().find(|line| line.contains("xxx")).unwrap();
    assert!(line.len() < 3_000 && line.contains("xend ") && line.contains("status=404"), "{line}");
}

#[test]
fn control_characters_of_a_url_and_long_methods_are_not_written_to_the_log() {
    for format in ["text", "json"] {
        let directory = tempdir().unwrap();
        let mut command = rashomon(directory.path());
        let serve = ["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--access-log", "all"];
        command.args([&serve[..], &["--log-format", format]].concat());
        let mut server = RunningProcess::start(&mut command);
        let address = server.line().split(['/', ',']).nth(2).unwrap().to_owned();
        get(&address, "/v1/wiki/page/A\u{9b}2J\u{202e}\u{2066}B?rev/latest/html");
        request(&address, &"M".repeat(120_000), "/v1/wiki/page/C", "");
        let ran = server.stop().ends_with(0);
        let raw = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{2066}'));
        assert!(!ran.stderr.contains(raw), "{}", ran.stderr);
        assert!(ran.stderr.contains("202e"), "{}", ran.stderr);
        let longest = ran.stderr.lines().map(str::len).max().unwrap();
        assert!(longest < 2_000, "{longest}");
        if format == "json" {
            let lines: Vec<Value> =
                ran.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
            let has_url =
                |line: &Value| line["url"].as_str().is_some_and(|url| url.contains("A\u{9b}2J\u{202e}"));
            assert!(lines.iter().any(has_url), "{}", ran.stderr);
        }
    }
}

#[test]
fn store_in_memory_leaves_no_files() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server =
        RunningProcess::start(command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]));
    assert!(server.line().ends_with("its store in memory:"));
    server.stop().ends_with(0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
