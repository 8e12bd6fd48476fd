//! `rashomon serve`: how it starts, how it ends, and what becomes of what it accepted.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use crate::process::{Running, rashomon, run};

/// Starts a server, and gives it with its address.
fn serve(directory: &Path, arguments: &[&str]) -> (Running, String) {
    let mut command = rashomon(directory);
    let mut server =
        Running::start(command.args(["serve", "--data", "data", "--listen", "127.0.0.1:0"]).args(arguments));
    let line = server.line();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .unwrap_or_else(|| panic!("{line}"));
    let address = address.to_owned();
    (server, address)
}

fn get(address: &str, target: &str) -> String {
    exchange(address, &format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

const BODY: &str = "_rev=1&wikitext=the+light+was+lit&html=the+light+was+out";

/// A connection over which the first half of a POST has gone, and the other half.
fn half_a_post(address: &str) -> (TcpStream, &'static str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/wiki/page/Night?rev/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        BODY.len()
    );
    let (first, second) = BODY.split_at(BODY.len() / 2);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(first.as_bytes()).unwrap();
    // Until the server has it: what it has not begun to read, it has not accepted.
    sleep(Duration::from_millis(300));
    (stream, second)
}

#[test]
fn a_server_says_where_it_listens_and_ends_well() {
    let directory = tempdir().unwrap();
    let (server, address) = serve(directory.path(), &[]);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    let ran = server.stop().ends_with(0);
    ran.tells(&["stopping: finishing what was accepted", "the store is closed"]);
}

#[test]
fn a_post_that_was_accepted_is_finished_when_the_server_is_told_to_end() {
    let directory = tempdir().unwrap();
    let (server, address) = serve(directory.path(), &[]);
    let (mut stream, rest) = half_a_post(&address);
    server.signal(Signal::TERM);
    sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(&address).is_err(), "nothing more is accepted");
    stream.write_all(rest.as_bytes()).unwrap();
    let answer = answer(stream);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    server.wait().ends_with(0);

    let (server, address) = serve(directory.path(), &[]);
    let stored = get(&address, "/v1/wiki/page/Night?rev/latest/wikitext");
    assert!(stored.ends_with("the light was lit"), "{stored}");
    server.stop().ends_with(0);
}

#[test]
fn what_never_comes_to_its_end_is_not_waited_for_for_ever() {
    let directory = tempdir().unwrap();
    let (server, address) = serve(directory.path(), &["--shutdown-grace", "1s"]);
    let (stream, _) = half_a_post(&address);
    server.stop().ends_with(0).tells(&["cut off"]);
    drop(stream);
    run(directory.path(), &["verify", "--data", "data"]).ends_with(0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let directory = tempdir().unwrap();
    let (server, address) = serve(directory.path(), &["--shutdown-grace", "1h"]);
    let (_stream, _) = half_a_post(&address);
    server.signal(Signal::TERM);
    sleep(Duration::from_millis(300));
    server.signal(Signal::INT);
    server.wait().ends_with(130).tells(&["ended at once"]);
    run(directory.path(), &["verify", "--data", "data"]).ends_with(0);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let directory = tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(directory.path(), &["serve", "--data", "data", "--listen", &address]).ends_with(1);
    ran.tells(&[&address, "something listens there already", "--listen"]);
    let ran = run(
        directory.path(),
        &["serve", "--store", "memory:", "--access", "open", "--listen", "192.0.2.1:7231"],
    );
    ran.ends_with(1).tells(&["192.0.2.1:7231", "no such address"]);
}

#[test]
fn a_second_server_of_one_store_is_refused_by_name() {
    let directory = tempdir().unwrap();
    let (server, _) = serve(directory.path(), &[]);
    let ran = run(directory.path(), &["serve", "--data", "data", "--listen", "127.0.0.1:0"]).ends_with(1);
    ran.tells(&["data", &format!("process {}", server.id())]);
    server.stop().ends_with(0);
}

#[test]
fn logs_are_json_where_that_is_asked_for() {
    let directory = tempdir().unwrap();
    let (server, address) = serve(directory.path(), &["--log-format", "json", "--access-log", "all"]);
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

#[test]
fn a_store_in_memory_is_gone_at_the_end() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server = Running::start(command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]));
    assert!(server.line().ends_with("its store in memory:"));
    server.stop().ends_with(0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
