//! `rashomon serve`: what becomes of what it accepted.

use std::{io::Write as _, net::TcpStream, thread::sleep, time::Duration};

use rustix::process::Signal;

use crate::{
    home::Home,
    http::{answer, get, post},
};

const PAGE: &str = "/v1/wiki/page/Night";
const BODY: &str = "_rev=1&wikitext=the+light+was+lit&html=the+light+was+out";

/// A connection over which the first half of a POST has gone, and the other half.
fn half_a_post(address: &str) -> (TcpStream, &'static str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
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
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let written = post(&address, &format!("{PAGE}?rev/"), BODY);
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    let ran = server.stop().ends_with(0);
    ran.tells(&["stopping: finishing what was accepted", "the store is closed"]);
}

#[test]
fn a_post_that_was_accepted_is_finished_when_the_server_is_told_to_end() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let (mut stream, rest) = half_a_post(&address);
    server.signal(Signal::TERM);
    sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(&address).is_err(), "nothing more is accepted");
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
    server.stop().ends_with(0).tells(&["cut off"]);
    drop(stream);

    let (server, address) = home.serve(&["--shutdown-grace", "1h"]);
    let (_stream, _) = half_a_post(&address);
    server.signal(Signal::TERM);
    sleep(Duration::from_millis(300));
    server.signal(Signal::INT);
    server.wait().ends_with(130).tells(&["ended at once"]);
    home.run(&["verify"]).ends_with(0);
}
