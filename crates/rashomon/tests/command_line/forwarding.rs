//! A server with a registry.

use std::{fs, path::Path};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::{
    http::{get, post},
    process::{RunningProcess, rashomon, run, wait_until},
};

const PAGE: &str = "/v1/wiki/page/A";

/// Starts a server with its store in memory.
fn serve(directory: &Path, words: &[&str]) -> (RunningProcess, String) {
    let mut command = rashomon(directory);
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]).args(words);
    let mut server = RunningProcess::start(&mut command);
    let address = server.address();
    (server, address)
}

/// Writes the configuration of a registry that sends the domain `wiki` to a server.
fn write_registry(directory: &Path, server: &str) {
    let text = format!("[registry.'/wiki']\nservers = ['http://{server}']\n");
    fs::write(directory.join("r.toml"), text).unwrap();
}

#[test]
fn registry_is_read_again_at_sighup_and_a_broken_file_changes_nothing() {
    let directory = tempdir().unwrap();
    let (one, first) = serve(directory.path(), &[]);
    let (two, second) = serve(directory.path(), &[]);
    write_registry(directory.path(), &first);
    let (server, address) = serve(directory.path(), &["--config", "r.toml"]);
    assert!(post(&address, &format!("{PAGE}?rev/"), "_rev=1&html=first").starts_with("HTTP/1.1 201"));
    assert!(post(&second, &format!("{PAGE}?rev/"), "_rev=1&html=second").starts_with("HTTP/1.1 201"));
    let read = || get(&address, &format!("{PAGE}?rev/latest/html"));
    assert!(read().ends_with("first"), "{}", read());
    assert!(get(&first, &format!("{PAGE}?rev/latest/html")).ends_with("first"));

    fs::write(directory.path().join("r.toml"), "[registry.'/wiki']\nservers = ['nonsense']\n").unwrap();
    server.signal(Signal::HUP);
    server.signal(Signal::HUP);
    assert!(read().ends_with("first"));

    write_registry(directory.path(), &second);
    server.signal(Signal::HUP);
    wait_until("the new registry is used", || read().ends_with("second"));
    server.stop().ends_with(0).stderr_contains(&["the registry was read again", "backends=1"]);
    one.stop().ends_with(0);
    two.stop().ends_with(0);
}

#[test]
fn registry_that_needs_a_new_store_or_is_malformed_is_not_used() {
    for (text, reason) in [
        ("[registry.'/wiki']\nstore = 'sqlite:./new'\n", "start the server again"),
        ("[registry", "r.toml:1:"),
        ("[registry.'/wiki']\nservers = ['nonsense']\n", "nonsense"),
    ] {
        let directory = tempdir().unwrap();
        write_registry(directory.path(), "127.0.0.1:1");
        let log = directory.path().join("log");
        let mut command = rashomon(directory.path());
        command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
        let mut server = RunningProcess::start_with_log(&mut command, &log);
        let address = server.address();
        fs::write(directory.path().join("r.toml"), text).unwrap();
        server.signal(Signal::HUP);
        let written = || fs::read_to_string(&log).unwrap();
        wait_until("the reload is logged", || written().contains("the previous one stays in use"));
        assert!(written().contains(reason), "{}", written());
        assert!(get(&address, &format!("{PAGE}?rev/")).starts_with("HTTP/1.1 502"));
        assert!(!directory.path().join("new").exists());
        server.stop().ends_with(0);
    }
}

#[test]
fn second_store_keeps_its_domain() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("r.toml"), "[registry.'/wiki']\nstore = 'sqlite:./second'\n").unwrap();
    let (server, address) = serve(directory.path(), &["--config", "r.toml"]);
    for domain in ["wiki", "other"] {
        let path = format!("/v1/{domain}/page/A?rev/");
        assert!(post(&address, &path, "_rev=1&html=kept").starts_with("HTTP/1.1 201"));
    }
    server.stop().ends_with(0);
    let exported = |domain: &str| {
        let words = ["export", "--data", "second", "--domain", domain, "--format", "jsonl"];
        run(directory.path(), &words)
    };
    exported("wiki").ends_with(0).stdout_contains(&["kept"]);
    assert!(!exported("other").stdout.contains("kept"));
    // The main store was in memory. The other one is still there.
    let (server, address) = serve(directory.path(), &["--config", "r.toml"]);
    assert!(get(&address, &format!("{PAGE}?rev/latest/html")).ends_with("kept"));
    assert!(get(&address, "/v1/other/page/A?rev/latest/html").starts_with("HTTP/1.1 404"));
    server.stop().ends_with(0);
}

#[test]
fn check_config_prints_the_registry_and_names_the_line_of_a_mistake() {
    let directory = tempdir().unwrap();
    write_registry(directory.path(), "127.0.0.1:1");
    let checked = run(directory.path(), &["check-config", "r.toml"]).ends_with(0);
    let checked = checked.stdout_contains(&["[registry.\"/wiki\"]", "servers = [\"http://127.0.0.1:1\"]"]);
    fs::write(directory.path().join("printed.toml"), &checked.stdout).unwrap();
    let again = run(directory.path(), &["check-config", "printed.toml"]).ends_with(0);
    assert_eq!(again.stdout, checked.stdout);
    fs::write(directory.path().join("r.toml"), "\n[registry.'wiki']\nservers = ['http://a']\n").unwrap();
    let refused = run(directory.path(), &["check-config", "r.toml"]).ends_with(2);
    refused.stderr_contains(&["r.toml:2:", "'wiki' is not a prefix"]);
}
