//! `rashomon rewrite`: all stored values of a property get a new version, also if the command is killed.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::process::Signal;

use crate::{
    home::Home,
    http::{get, post},
    process::{ProcessOutput, RunningProcess, wait_until},
};

pub(crate) const SPEC: &str = "https://example.org/html/";
pub(crate) const PAGES: usize = 40;
pub(crate) const REVISIONS: usize = 4;

/// Starts a transformer that makes version 3.0.0, or fails if the document contains `FAIL`. Returns its URL, and a counter
/// of its requests.
pub(crate) fn transformer() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, asked) =
        (format!("http://{}/html", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let counter = Arc::clone(&counter);
            // The command may have been killed.
            thread::spawn(move || drop(transform(stream.unwrap(), &counter)));
        }
    });
    (url, asked)
}

fn transform(mut stream: TcpStream, counter: &AtomicUsize) -> std::io::Result<()> {
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    let (head, length) = loop {
        let read = stream.read(&mut piece)?;
        request.extend_from_slice(&piece[..read]);
        let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            break (end + 4, length.unwrap().parse::<usize>().unwrap());
        }
        assert!(read > 0, "the head is complete");
    };
    while request.len() < head + length {
        let read = stream.read(&mut piece)?;
        assert!(read > 0, "the body is complete");
        request.extend_from_slice(&piece[..read]);
    }
    let body = [b"<i>3.0</i>", &request[head..]].concat();
    let status = if request.windows(4).any(|bytes| bytes == b"FAIL") { "500 Oops" } else { "200 OK" };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; profile=\"{SPEC}3.0.0\"\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    counter.fetch_add(1, Ordering::SeqCst);
    stream.write_all(&[answer.as_bytes(), &body].concat())
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn page(number: usize) -> String {
    format!("/v1/wiki/page/Page_{number}")
}

pub(crate) fn text(number: usize, rev: usize) -> String {
    format!("<p>page {number}, revision {rev}</p>").repeat(30)
}

/// Makes a store of pages with html of version 2.8.0. Returns the tid of each revision, by page.
pub(crate) fn fill(home: &Home) -> Vec<Vec<String>> {
    let (server, address) = home.serve(&[]);
    let headers = encoded(&format!("{{\"content-type\": \"text/html; profile=\\\"{SPEC}2.8.0\\\"\"}}"));
    let mut tids = Vec::new();
    for number in 0..PAGES {
        let mut of_page = Vec::new();
        for rev in 1..=REVISIONS {
            let html = encoded(&text(number, rev));
            let form = format!("_rev={rev}&wikitext=x{rev}&html={html}&_http-equiv.html={headers}");
            let answer = post(&address, &format!("{}?rev/", page(number)), &form);
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
            let json = answer.rsplit("\r\n\r\n").next().unwrap();
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            of_page.push(json["tid"].as_str().unwrap().to_owned());
        }
        tids.push(of_page);
    }
    server.stop().ends_with(0);
    tids
}

/// Reads every render, and checks that its value is whole and has the ETag of its version. Returns the number of
/// renders with the new version.
pub(crate) fn check(home: &Home, tids: &[Vec<String>]) -> usize {
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound"]);
    let (server, address) = home.serve(&[]);
    let mut new = 0;
    for (number, of_page) in tids.iter().enumerate() {
        for (index, tid) in of_page.iter().enumerate() {
            let rev = index + 1;
            let answer = get(&address, &format!("{}?rev/{tid}/html", page(number)));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let text = text(number, rev);
            if body == text {
                assert!(head.contains("2.8.0") && head.contains(&format!("etag: \"{rev}/{tid}\"")), "{head}");
            } else {
                assert_eq!(body, format!("<i>3.0</i>{text}"));
                assert!(head.contains("3.0.0") && head.contains(&format!("etag: \"{rev}/{tid}/")), "{head}");
                new += 1;
            }
        }
    }
    server.stop().ends_with(0);
    new
}

pub(crate) fn rewrite(home: &Home, url: &str, words: &[&str]) -> ProcessOutput {
    let version = format!("{SPEC}3.0.0");
    let own = ["rewrite", "--property", "html", "--with", url, "--to-version", &version];
    home.run(&[&own, words].concat())
}

#[test]
fn stored_values_are_rewritten_and_a_second_run_changes_nothing() {
    let Some(home) = Home::new() else { return };
    let tids = fill(&home);
    let (url, asked) = transformer();
    let ran = rewrite(&home, &url, &[]).ends_with(0);
    ran.stdout_contains(&["160 values of 40 pages rewritten, ", "left alone: 0 of the current version"]);
    assert_eq!(check(&home, &tids), PAGES * REVISIONS);
    let ran = rewrite(&home, &url, &["--archived"]).ends_with(0);
    ran.stdout_contains(&["0 values of 40 pages rewritten", "160 of the current version"]);
    assert_eq!(asked.load(Ordering::SeqCst), PAGES * REVISIONS);
}

/// Kills the command after some answers of the transformer, and continues, until all values are new.
fn survives_kills(words: &[&str], seal: bool) {
    let Some(home) = Home::archiving() else { return };
    let tids = fill(&home);
    if seal {
        home.seal().ends_with(0).stdout_contains(&["120 revisions"]);
    }
    let (url, asked) = transformer();
    let version = format!("{SPEC}3.0.0");
    let mut last = 0;
    for kill_after in [1, 13, 40, 70, 159, 161] {
        let begin = asked.load(Ordering::SeqCst);
        let mut command = home.command(&["rewrite", "--property", "html", "--with", &url]);
        command.args(["--to-version", &version]).args(words);
        let log = home.path().join("log");
        let process = RunningProcess::start_with_log(&mut command, &log);
        let id = process.id();
        wait_until("the transformer is asked", || {
            asked.load(Ordering::SeqCst) >= begin + kill_after || has_ended(id)
        });
        process.signal(Signal::KILL);
        process.wait();
        let new = check(&home, &tids);
        assert!(new >= last, "{new} of {last} values are new");
        last = new;
    }
    rewrite(&home, &url, words).ends_with(0);
    assert_eq!(check(&home, &tids), PAGES * REVISIONS);
    rewrite(&home, &url, words).ends_with(0).stdout_contains(&["0 values of 40 pages rewritten"]);
}

/// Whether a child process has ended, even if its parent has not read the exit code yet.
fn has_ended(id: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
}

#[test]
fn rewrite_of_tables_survives_kills() {
    survives_kills(&["--concurrency", "2"], false);
}

#[test]
fn rewrite_of_blocks_survives_kills() {
    survives_kills(&["--archived"], true);
}
