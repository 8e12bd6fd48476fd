//! `rashomon serve`: the outcome of accepted requests.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rustix::process::Signal;

use crate::{
    home::Home,
    http::{answer, get, post},
    process::wait_until,
};

const PAGE: &str = "/v1/wiki/page/Night";
const BODY: &str = "_rev=1&wikitext=the+light+was+lit&html=the+light+was+out";

/// Sends the first half of a POST, which the server begins to read. Returns the connection and the other
/// half.
fn send_half_of_a_post(address: &str) -> (TcpStream, &'static str) {
    /// The interim answer of a server that reads the body (RFC 9110, section 10.1.1).
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        BODY.len()
    );
    let (first, second) = BODY.split_at(BODY.len() / 2);
    stream.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; CONTINUE.len()];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(interim, CONTINUE, "{}", String::from_utf8_lossy(&interim));
    stream.write_all(first.as_bytes()).unwrap();
    (stream, second)
}

/// Waits until the server accepts no more connections.
fn wait_until_connections_are_refused(address: &str) {
    wait_until("the server accepts no more connections", || TcpStream::connect(address).is_err());
}

#[test]
fn server_prints_its_address_and_exits_with_success() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let written = post(&address, &format!("{PAGE}?rev/"), BODY);
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    let ran = server.stop().ends_with(0);
    ran.stderr_contains(&["stopping: finishing accepted requests", "the store is closed"]);
}

#[test]
fn accepted_post_is_finished_at_shutdown() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let (mut stream, rest) = send_half_of_a_post(&address);
    server.signal(Signal::TERM);
    wait_until_connections_are_refused(&address);
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
fn shutdown_does_not_wait_forever() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&["--shutdown-grace", "1s"]);
    let (stream, _) = send_half_of_a_post(&address);
    server
        .stop()
        .ends_with(0)
        .stderr_contains(&["shutdown continues although some requests have not finished in time"]);
    drop(stream);

    let (server, address) = home.serve(&["--shutdown-grace", "1h"]);
    let (_stream, _) = send_half_of_a_post(&address);
    server.signal(Signal::TERM);
    wait_until_connections_are_refused(&address);
    server.signal(Signal::INT);
    server.wait().ends_with(130).stderr_contains(&["ended at once"]);
    home.run(&["verify"]).ends_with(0);
}
