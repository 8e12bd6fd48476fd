//! `rashomon rewrite`.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::process::Signal;
use tempfile::{TempDir, tempdir};

use crate::{
    http::{get, post, request},
    process::{Ran, Running, rashomon, run, wait_until},
};

const SPEC: &str = "https://example.org/html/";
const PAGES: usize = 40;
const REVISIONS: usize = 4;

/// Starts a transformer that makes version 3.0.0, or fails if the document contains `FAIL`. Returns its URL, and a counter
/// of its requests.
fn transformer() -> (String, Arc<AtomicUsize>) {
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

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn page(number: usize) -> String {
    format!("/v1/wiki/page/Page_{number}")
}

fn text(number: usize, rev: usize) -> String {
    format!("<p>page {number}, revision {rev}</p>").repeat(30)
}

fn serve(home: &Path) -> (Running, String) {
    let mut server =
        Running::start(rashomon(home).args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]));
    let address = server.address();
    (server, address)
}

/// Makes a store of pages with html of version 2.8.0. Returns the tid of each revision, by page.
fn fill(home: &Path) -> Vec<Vec<String>> {
    let (server, address) = serve(home);
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

/// Reads every render. Returns the number of renders that have the new version. Each value is whole, and has the ETag of
/// its version.
fn check(home: &Path, tids: &[Vec<String>]) -> usize {
    run(home, &["verify", "--data", "data"]).ends_with(0).stdout_contains(&["sound"]);
    let (server, address) = serve(home);
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

fn rewrite(home: &Path, url: &str, words: &[&str]) -> Ran {
    let version = format!("{SPEC}3.0.0");
    let own = ["rewrite", "--data", "data", "--property", "html", "--with", url, "--to-version", &version];
    run(home, &[&own, words].concat())
}

/// The configuration of a transformer.
fn configuration(url: &str) -> String {
    let host = url.strip_prefix("http://").unwrap().strip_suffix("/html").unwrap();
    format!(
        "[transformers]\nhosts = ['{host}']\n[[transformers.steps]]\nfrom = '{SPEC}2.0.0'\nto = '{SPEC}3.0.0'\n\
         url = '{url}'\n"
    )
}

fn filled() -> (TempDir, Vec<Vec<String>>) {
    let directory = tempdir().unwrap();
    let tids = fill(directory.path());
    (directory, tids)
}

#[test]
fn stored_values_are_rewritten_and_a_second_run_changes_nothing() {
    let (directory, tids) = filled();
    let home = directory.path();
    let (url, asked) = transformer();
    let ran = rewrite(home, &url, &[]).ends_with(0);
    ran.stdout_contains(&["160 values of 40 pages rewritten, ", "left alone: 0 of the current version"]);
    assert_eq!(check(home, &tids), PAGES * REVISIONS);
    let ran = rewrite(home, &url, &["--archived"]).ends_with(0);
    ran.stdout_contains(&["0 values of 40 pages rewritten", "160 of the current version"]);
    assert_eq!(asked.load(Ordering::SeqCst), PAGES * REVISIONS);
}

#[test]
fn current_version_is_that_of_the_configuration() {
    let (directory, tids) = filled();
    let home = directory.path();
    let (url, _) = transformer();
    std::fs::write(home.join("made.toml"), configuration(&url)).unwrap();
    let common = ["rewrite", "--data", "data", "--config", "made.toml", "--property", "html"];
    let version = format!("{SPEC}3.0.0");
    let with = |words: &[&str]| run(home, &[&common, words].concat());
    with(&["--with", "http://127.0.0.1:1/other"]).ends_with(2).stderr_contains(&["--to-version PROFILE"]);
    with(&["--with", &url, "--domain", "wiki", "--bucket", "page", "--from", "Page_9"])
        .ends_with(0)
        .stdout_contains(&["4 values of 1 page rewritten"]);
    with(&["--to-version", &version]).ends_with(0).stdout_contains(&["156 values of 40 pages rewritten"]);
    assert_eq!(check(home, &tids), PAGES * REVISIONS);
}

#[test]
fn values_in_blocks_are_transformed_when_they_are_read() {
    let (directory, tids) = filled();
    let home = directory.path();
    run(home, &["archive", "seal", "--data", "data", "--after", "0s", "--idle", "0s"]).ends_with(0);
    let (url, asked) = transformer();
    rewrite(home, &url, &[]).ends_with(0).stdout_contains(&["0 values of 40 pages rewritten"]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    std::fs::write(home.join("made.toml"), configuration(&url)).unwrap();
    let words = ["serve", "--listen", "127.0.0.1:0", "--data", "data", "--config", "made.toml"];
    let mut server = Running::start(rashomon(home).args(words));
    let address = server.address();
    let accept = format!("Accept: text/html; profile=\"{SPEC}3.0.0\"\r\n");
    for (rev, tid) in tids[7].iter().enumerate() {
        let answer = request(&address, "GET", &format!("{}?rev/{tid}/html", page(7)), &accept);
        assert!(answer.ends_with(&format!("\r\n\r\n<i>3.0</i>{}", text(7, rev + 1))), "{answer}");
    }
    server.stop().ends_with(0);
    assert_eq!(asked.load(Ordering::SeqCst), REVISIONS);
    rewrite(home, &url, &["--archived"]).ends_with(0).stdout_contains(&["(160 of them in 1 block)"]);
    assert_eq!(check(home, &tids), PAGES * REVISIONS);
}

#[test]
fn command_that_cannot_work_is_refused() {
    let directory = tempdir().unwrap();
    let home = directory.path();
    let version = format!("{SPEC}3.0.0");
    for (words, cure) in [
        (&["--with", "http://127.0.0.1:1/html"][..], "--to-version PROFILE"),
        (&["--to-version", &version], "name a transformer with --with URL"),
        (&["--with", "ftp://127.0.0.1/html", "--to-version", &version], "neither http:// nor https://"),
        (&["--with", "http://a@127.0.0.1/html", "--to-version", &version], "use token_file"),
        (
            &["--with", "http://127.0.0.1:1/html", "--to-version", "3.0.0"],
            "ends with a version, such as https://",
        ),
        (&["--with", "http://127.0.0.1:1/html", "--to-version", &version], "there is no store"),
        (&["--with", "http://127.0.0.1:1/", "--to-version", &version, "--rate", "0"], "1..=1000"),
        (&["--with", "http://127.0.0.1:1/", "--to-version", &version, "--from", "A"], "--bucket"),
        (&[], "--with"),
    ] {
        let own = ["rewrite", "--data", "data", "--property", "html"];
        run(home, &[&own, words].concat()).ends_with(2).stderr_contains(&[cure]);
    }
    assert!(!home.join("data").exists());
}

#[test]
fn failures_are_named_and_a_dead_transformer_ends_the_command() {
    let (directory, tids) = filled();
    let home = directory.path();
    let (server, address) = serve(home);
    let headers = encoded(&format!("{{\"content-type\": \"text/html; profile=\\\"{SPEC}2.8.0\\\"\"}}"));
    let form = format!("_rev=1&html=FAIL&_http-equiv.html={headers}");
    assert!(post(&address, "/v1/wiki/page/Bad?rev/", &form).starts_with("HTTP/1.1 201"));
    server.stop().ends_with(0);
    let ran = rewrite(home, "http://127.0.0.1:1/html", &[]).ends_with(1);
    ran.stderr_contains(&[
        "20 values in succession",
        "check the transformer",
        "not rewritten: wiki/page/Bad?rev/",
    ]);
    assert_eq!(check(home, &tids), 0);
    let (url, _) = transformer();
    let ran = rewrite(home, &url, &[]).ends_with(3);
    ran.stderr_contains(&["not rewritten: wiki/page/Bad?rev/", "500"]).stdout_contains(&["1 failed"]);
    assert_eq!(check(home, &tids), PAGES * REVISIONS);
}

/// Kills the command after some answers of the transformer, and continues, until all values are new.
fn survives_kills(words: &[&str], seal: bool) {
    let (directory, tids) = filled();
    let home = directory.path();
    if seal {
        let ran = run(home, &["archive", "seal", "--data", "data", "--after", "0s", "--idle", "0s"]);
        ran.ends_with(0).stdout_contains(&["160 revisions"]);
    }
    let (url, asked) = transformer();
    let version = format!("{SPEC}3.0.0");
    let mut last = 0;
    for kill_after in [1, 13, 40, 70, 159, 161] {
        let begin = asked.load(Ordering::SeqCst);
        let mut command = rashomon(home);
        command.args(["rewrite", "--data", "data", "--property", "html", "--with", &url]);
        command.args(["--to-version", &version]).args(words);
        let log = home.join("log");
        let process = Running::start_with_log(&mut command, &log);
        let id = process.id();
        wait_until("the transformer is asked", || {
            asked.load(Ordering::SeqCst) >= begin + kill_after || has_ended(id)
        });
        process.signal(Signal::KILL);
        process.wait();
        let new = check(home, &tids);
        assert!(new >= last, "{new} of {last} values are new");
        last = new;
    }
    rewrite(home, &url, words).ends_with(0);
    assert_eq!(check(home, &tids), PAGES * REVISIONS);
    rewrite(home, &url, words).ends_with(0).stdout_contains(&["0 values of 40 pages rewritten"]);
}

/// Whether a child process has ended, and waits for its parent.
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
