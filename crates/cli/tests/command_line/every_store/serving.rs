//! `rashomon serve`: what becomes of what it accepted.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    home::Home,
    http::{answer, get, post},
};

const PAGE: &str = "/v1/wiki/page/Night";
const BODY: &str = "_rev=1&wikitext=the+light+was+lit&html=the+light+was+out";

/// A connection over which the first half of a POST has gone that the server has begun to read, and the other half.
fn half_a_post(address: &str) -> (TcpStream, &'static str) {
    /// What a server says that reads a body (RFC 9110, 10.1.1).
    const READS: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        BODY.len()
    );
    let (first, second) = BODY.split_at(BODY.len() / 2);
    stream.write_all(head.as_bytes()).unwrap();
    let mut said = [0; READS.len()];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said, READS, "{}", String::from_utf8_lossy(&said));
    stream.write_all(first.as_bytes()).unwrap();
    (stream, second)
}

/// Waits until the server accepts nothing more.
fn until_it_ends(address: &str) {
    for _ in 0..1_000 {
        if TcpStream::connect(address).is_err() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("it accepts still");
}

#[test]
fn a_server_says_where_it_listens_and_ends_well() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let written = post(&address, &format!("{PAGE}?rev/"), BODY);
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    let ran = server.stop().ends_with(0);
    ran.tells(&["stopping: finishing accepted requests", "the store is closed"]);
}

#[test]
fn a_post_that_was_accepted_is_finished_when_the_server_is_told_to_end() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let (mut stream, rest) = half_a_post(&address);
    server.signal(Signal::TERM);
    until_it_ends(&address);
    stream.write_all(rest.as_bytes()).unwrap();
    let answer = answer(stream);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    server.wait().ends_with(0);

    let (server, address) = home.serve(&[]);
    let stored = get(&address, &format!("{PAGE}?rev/latest/wikitext"));
    assert!(stored.ends_with("the light was lit"), "{stored}");
    server.stop().ends_with(0);
}

#[test]
fn what_never_comes_to_its_end_is_not_waited_for_for_ever() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&["--shutdown-grace", "1s"]);
    let (stream, _) = half_a_post(&address);
    server.stop().ends_with(0).tells(&["their connections are closed"]);
    drop(stream);

    let (server, address) = home.serve(&["--shutdown-grace", "1h"]);
    let (_stream, _) = half_a_post(&address);
    server.signal(Signal::TERM);
    until_it_ends(&address);
    server.signal(Signal::INT);
    server.wait().ends_with(130).tells(&["ended at once"]);
    home.run(&["verify"]).ends_with(0);
}
