//! `rashomon rewrite`: its arguments, its failures, and blocks that a server transforms when it reads them.

use std::sync::atomic::Ordering;

use tempfile::tempdir;

use crate::{
    every_store::rewriting::{
        PAGES, REVISIONS, SPEC, check, encoded, fill, page, rewrite, text, transformer,
    },
    home::Home,
    http::{post, request},
    process::{RunningProcess, rashomon, run},
};

/// The configuration of a transformer.
fn configuration(url: &str) -> String {
    let host = url.strip_prefix("http://").unwrap().strip_suffix("/html").unwrap();
    format!(
        "[transformers]\nhosts = ['{host}']\n[[transformers.steps]]\nfrom = '{SPEC}2.0.0'\nto = '{SPEC}3.0.0'\n\
         url = '{url}'\n"
    )
}

fn filled() -> (Home, Vec<Vec<String>>) {
    let home = Home::new().expect("there is always a place for a SQLite store");
    let tids = fill(&home);
    (home, tids)
}

#[test]
fn current_version_is_that_of_the_configuration() {
    let (home, tids) = filled();
    let (url, _) = transformer();
    home.write("made.toml", &configuration(&url));
    let common = ["rewrite", "--data", "data", "--config", "made.toml", "--property", "html"];
    let version = format!("{SPEC}3.0.0");
    let with = |words: &[&str]| run(home.path(), &[&common, words].concat());
    with(&["--with", "http://127.0.0.1:1/other"]).ends_with(2).stderr_contains(&["--to-version PROFILE"]);
    with(&["--with", &url, "--domain", "wiki", "--bucket", "page", "--from", "Page_9"])
        .ends_with(0)
        .stdout_contains(&["4 values of 1 page rewritten"]);
    with(&["--to-version", &version]).ends_with(0).stdout_contains(&["156 values of 40 pages rewritten"]);
    assert_eq!(check(&home, &tids), PAGES * REVISIONS);
}

#[test]
fn values_in_blocks_are_transformed_when_they_are_read() {
    let (home, tids) = filled();
    run(home.path(), &["archive", "seal", "--data", "data", "--after", "0s", "--idle", "0s"]).ends_with(0);
    let (url, asked) = transformer();
    rewrite(&home, &url, &[]).ends_with(0).stdout_contains(&["0 values of 40 pages rewritten"]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    home.write("made.toml", &configuration(&url));
    let words = ["serve", "--listen", "127.0.0.1:0", "--data", "data", "--config", "made.toml"];
    let mut server = RunningProcess::start(rashomon(home.path()).args(words));
    let address = server.address();
    let accept = format!("Accept: text/html; profile=\"{SPEC}3.0.0\"\r\n");
    for (rev, tid) in tids[7].iter().enumerate() {
        let answer = request(&address, "GET", &format!("{}?rev/{tid}/html", page(7)), &accept);
        assert!(answer.ends_with(&format!("\r\n\r\n<i>3.0</i>{}", text(7, rev + 1))), "{answer}");
    }
    server.stop().ends_with(0);
    assert_eq!(asked.load(Ordering::SeqCst), REVISIONS);
    rewrite(&home, &url, &["--archived"]).ends_with(0).stdout_contains(&["(160 of them in 1 block)"]);
    assert_eq!(check(&home, &tids), PAGES * REVISIONS);
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
    let (home, tids) = filled();
    let (server, address) = home.serve(&[]);
    let headers = encoded(&format!("{{\"content-type\": \"text/html; profile=\\\"{SPEC}2.8.0\\\"\"}}"));
    let form = format!("_rev=1&html=FAIL&_http-equiv.html={headers}");
    assert!(post(&address, "/v1/wiki/page/Bad?rev/", &form).starts_with("HTTP/1.1 201"));
    server.stop().ends_with(0);
    let ran = rewrite(&home, "http://127.0.0.1:1/html", &[]).ends_with(1);
    ran.stderr_contains(&[
        "20 values in succession",
        "check the transformer",
        "not rewritten: wiki/page/Bad?rev/",
    ]);
    assert_eq!(check(&home, &tids), 0);
    let (url, _) = transformer();
    let ran = rewrite(&home, &url, &[]).ends_with(3);
    ran.stderr_contains(&["not rewritten: wiki/page/Bad?rev/", "500"]).stdout_contains(&["1 failed"]);
    assert_eq!(check(&home, &tids), PAGES * REVISIONS);
}
