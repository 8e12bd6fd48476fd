//! `rashomon import`: reports about files, servers and unusual revisions.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::Stdio,
};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::{
    home::Home,
    process::{RunningProcess, finish, rashomon, run, wait_until},
    wiki::dump,
};

#[test]
fn revision_without_a_number_is_named_and_others_are_stored() {
    let Some(home) = Home::new() else { return };
    let ran = home.import_file(&dump("Page", &[("1", "one"), ("0", "none"), ("3", "three")])).ends_with(3);
    ran.stderr_contains(&["dump.xml, line ", "left out", "not a positive number"])
        .stdout_contains(&["2 stored", "1 left out"]);
    let all = home.everything();
    assert!(all.contains("three") && !all.contains("none"), "{all}");
}

#[test]
fn a_text_with_another_sha1_is_stored_and_named() {
    let Some(home) = Home::new() else { return };
    let dump = dump("Page", &[("1", "one")]);
    let dump = dump
        .replace("    </revision>", "      <sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>\n    </revision>");
    let ran = home.import_file(&dump).ends_with(0);
    ran.stdout_contains(&["1 stored", "1 text with another sha1"]).stderr_contains(&[
        "line ",
        "revision 1 of Page is stored as it is in the file, but its sha1 differs from that in the file",
        "phoiac9h4m842xq45sp7s6u21eteeq1",
    ]);
    assert!(home.everything().contains("one"));
}

#[test]
fn the_files_after_a_damaged_one_are_named() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("good.xml"), dump("A", &[("1", "a")])).unwrap();
    fs::write(directory.path().join("bad.xml"), "<mediawiki><page><title>x</titel>").unwrap();
    let files = ["good.xml", "bad.xml", "good.xml"];
    let ran =
        run(directory.path(), &[&["import", "--data", "data", "--domain", "wiki"][..], &files].concat());
    ran.ends_with(1)
        .stderr_contains(&["bad.xml: line 1", "not read: good.xml"])
        .stdout_contains(&["1 stored"]);
}

#[test]
fn wrong_files_and_arguments_are_reported() {
    let directory = tempdir().unwrap();
    let import = |file: &str| run(directory.path(), &["import", "--data", "data", "--domain", "wiki", file]);
    import("none.xml").ends_with(2).stderr_contains(&["cannot read none.xml: No such file"]);
    import(".").ends_with(2).stderr_contains(&["is a directory"]);
    assert!(!directory.path().join("data").exists());
    fs::write(directory.path().join("text.txt"), "just words\n").unwrap();
    import("text.txt").ends_with(1).stderr_contains(&["text.txt: line 1"]);
    run(directory.path(), &["import", "--domain", "wiki"]).ends_with(2).stderr_contains(&["<FILE>"]);
    fs::write(directory.path().join("good.xml"), dump("A", &[("1", "a")])).unwrap();
    run(directory.path(), &["import", "--store", "memory:", "--domain", "wiki", "good.xml"])
        .ends_with(2)
        .stderr_contains(&["lost at exit"]);
}

#[test]
fn sizes_declared_by_an_archive_do_not_end_the_process() {
    let directory = tempdir().unwrap();
    // A 7z archive of 32 bytes whose end header claims 2^46 bytes, a 7z archive with 2^60 files, and lzma
    // with a dictionary of 4 GiB.
    let header = b"7z\xbc\xaf\x27\x1c\x00\x04\xf4\xee\xde\x4b\x00\x00\x00\x00\x00\x00\x00\x00\
        \x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00";
    let files = b"7z\xbc\xaf\x27\x1c\x00\x04\xd3\xd7\xa3\xff\x00\x00\x00\x00\x00\x00\x00\x00\
        \x0d\x00\x00\x00\x00\x00\x00\x00\xcd\xd8\x5c\x4c\x01\x05\xff\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00";
    let dictionary = [&[0x5d, 0, 0, 0xff, 0xff][..], &[0xff; 8], &[0; 20]].concat();
    for (input, words) in [
        (&header[..], "the compressed data is incomplete"),
        (&files[..], "declares"),
        (&dictionary, "smaller dictionary"),
    ] {
        fs::write(directory.path().join("input"), input).unwrap();
        run(directory.path(), &["import", "--data", "data", "--domain", "wiki", "input"])
            .ends_with(1)
            .stderr_contains(&["error: input: ", words]);
    }
}

#[test]
fn error_for_a_locked_store_suggests_import_through_the_server() {
    let Some(home) = Home::new() else { return };
    let (server, _) = home.serve(&[]);
    let ran = home.import_file(&dump("Page", &[("1", "one")])).ends_with(1);
    let process = format!("process {}", server.id());
    ran.stderr_contains(&["data", &process, "--to http://127.0.0.1:7231"]);
    for command in ["verify", "stats"] {
        home.run(&[command]).ends_with(1).stderr_contains(&[&process]);
    }
    server.stop().ends_with(0);
}

#[test]
fn missing_server_is_reported() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    let import = |url: &str| run(directory.path(), &["import", "--to", url, "--domain", "wiki", "dump.xml"]);
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    import(&format!("http://{free}"))
        .ends_with(1)
        .stderr_contains(&["cannot reach a server at", "is `rashomon serve` running"]);
    import("ftp://127.0.0.1").ends_with(2).stderr_contains(&["not the address of a server"]);
    let mut command = rashomon(directory.path());
    command.args(["import", "--to", "http://127.0.0.1", "--data", "x", "--domain", "wiki", "dump.xml"]);
    finish(&mut command).ends_with(2).stderr_contains(&["--to", "--data"]);
}

#[test]
fn answer_of_a_server_that_closes_early_is_read() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), "x".repeat(20_000_000)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The client may or may not be sending when the connection closes, so the attempt is repeated.
    const TIMES: usize = 10;
    let server = std::thread::spawn(move || {
        for _ in 0..TIMES {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut vec![0; 1_000_000]).unwrap();
            let detail = r#"{"detail": "the reason"}"#;
            let length = detail.len();
            // One write sends the answer. The kernel may delay the data of a second write (Nagle's
            // algorithm), and such data is lost when a connection with unread data is closed.
            let answer = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\n\r\n{detail}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for _ in 0..TIMES {
        let ran =
            run(directory.path(), &["import", "--to", &url, "--domain", "wiki", "dump.xml"]).ends_with(1);
        ran.stderr_contains(&["refused the import (400 Bad Request): the reason"]);
    }
    server.join().unwrap();
}

#[test]
fn signal_ends_a_waiting_import() {
    let directory = tempdir().unwrap();
    let dump = dump("Page", &[("1", "one")]);
    for begun in ["", &dump[..dump.find("</page>").unwrap()]] {
        let mut command = rashomon(directory.path());
        command.args(["import", "--data", "data", "--domain", "wiki", "-"]).stdin(Stdio::piped());
        let mut import = RunningProcess::start(&mut command);
        let mut stdin = import.stdin();
        stdin.write_all(begun.as_bytes()).unwrap();
        let status = format!("/proc/{}/status", import.id());
        let handles_signals = || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() >> (Signal::INT.as_raw() - 1) & 1 == 1
        };
        // The beginning of the input is read before the store is made.
        let is_opened = || directory.path().join("data").exists();
        wait_until("the command waits", || handles_signals() && is_opened() != begun.is_empty());
        import.signal(Signal::INT);
        assert_eq!(import.wait().code, Some(130));
    }
}
