//! `rashomon import`: what goes in, what does not, and how each is told.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::{TempDir, tempdir};

use crate::{
    process::{Ran, Running, finish, rashomon, run},
    wiki::{dump, everything, import, large_dump},
};

/// Imports a dump that is in a file of its own.
fn import_file(directory: &TempDir, dump: &str) -> Ran {
    fs::write(directory.path().join("dump.xml"), dump).unwrap();
    run(directory.path(), &["import", "--data", "data", "--domain", "wiki", "dump.xml"])
}

#[test]
fn importing_again_changes_nothing() {
    let directory = tempdir().unwrap();
    let dump = dump("Page", &[("1", "one"), ("2", "two")]);
    import_file(&directory, &dump).ends_with(0).prints(&["2 revisions of 1 page", "2 stored"]);
    let before = everything(directory.path());
    import_file(&directory, &dump).ends_with(0).prints(&["0 stored", "2 stood so already"]);
    assert_eq!(everything(directory.path()), before);
}

#[test]
fn several_files_and_standard_input_go_in_with_one_command() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("b.xml"), dump("B", &[("2", "b")])).unwrap();
    let mut command = rashomon(directory.path());
    command.args(["import", "--data", "data", "--domain", "wiki", "--jobs", "1", "-", "b.xml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(dump("A", &[("1", "a")]).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("2 revisions of 2 pages"));
    let all = everything(directory.path());
    assert!(all.contains("\"A\"") && all.contains("\"B\""), "{all}");
}

#[test]
fn what_stands_with_other_content_is_named_and_left() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("Page", &[("1", "one"), ("2", "two")]));
    let before = everything(directory.path());
    let ran = import_file(&directory, &dump("Page", &[("1", "one"), ("2", "zwei")])).ends_with(3);
    ran.tells(&["dump.xml, line ", "revision 2 of Page stands with other content"])
        .prints(&["1 in conflict"]);
    assert_eq!(everything(directory.path()), before);
}

#[test]
fn what_has_no_number_is_named_and_the_rest_goes_in() {
    let directory = tempdir().unwrap();
    let ran =
        import_file(&directory, &dump("Page", &[("1", "one"), ("0", "none"), ("3", "three")])).ends_with(3);
    ran.tells(&["dump.xml, line ", "left out", "not a positive number"]).prints(&["2 stored", "1 left out"]);
    let all = everything(directory.path());
    assert!(all.contains("three") && !all.contains("none"), "{all}");
}

#[test]
fn a_text_with_another_sha1_is_stored_and_named() {
    let directory = tempdir().unwrap();
    let dump = dump("Page", &[("1", "one")]);
    let dump = dump
        .replace("    </revision>", "      <sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>\n    </revision>");
    let ran = import_file(&directory, &dump).ends_with(0);
    ran.prints(&["1 stored", "1 text with another sha1"]).tells(&[
        "line ",
        "revision 1 of Page stands as it came, but is not what its sha1 says",
        "phoiac9h4m842xq45sp7s6u21eteeq1",
    ]);
    assert!(everything(directory.path()).contains("one"));
}

#[test]
fn of_a_dump_that_is_cut_short_everything_whole_is_stored() {
    let directory = tempdir().unwrap();
    let whole = dump("Page", &[("1", "one"), ("2", "two"), ("3", "three")]);
    let cut = &whole[..whole.find("three").unwrap()];
    let ran = import_file(&directory, cut).ends_with(1);
    ran.tells(&["error: dump.xml: line ", "byte ", "cut short", "revision 3 of page \"Page\""])
        .prints(&["2 stored"]);
    let all = everything(directory.path());
    assert!(all.contains("two") && !all.contains("three"), "{all}");
    import_file(&directory, &whole).ends_with(0).prints(&["1 stored", "2 stood so already"]);
}

#[test]
fn the_files_after_a_damaged_one_are_named() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("good.xml"), dump("A", &[("1", "a")])).unwrap();
    fs::write(directory.path().join("bad.xml"), "<mediawiki><page><title>x</titel>").unwrap();
    let files = ["good.xml", "bad.xml", "good.xml"];
    let ran =
        run(directory.path(), &[&["import", "--data", "data", "--domain", "wiki"][..], &files].concat());
    ran.ends_with(1).tells(&["bad.xml: line 1", "not read: good.xml"]).prints(&["1 stored"]);
}

#[test]
fn what_is_no_dump_is_told_before_anything_is_done() {
    let directory = tempdir().unwrap();
    let import = |file: &str| run(directory.path(), &["import", "--data", "data", "--domain", "wiki", file]);
    import("none.xml").ends_with(2).tells(&["cannot read none.xml: No such file"]);
    import(".").ends_with(2).tells(&["is a directory"]);
    assert!(!directory.path().join("data").exists());
    fs::write(directory.path().join("text.txt"), "just words\n").unwrap();
    import("text.txt").ends_with(1).tells(&["text.txt: line 1"]);
    run(directory.path(), &["import", "--domain", "wiki"]).ends_with(2).tells(&["<FILE>"]);
    run(directory.path(), &["import", "--store", "memory:", "--domain", "wiki", "text.txt"])
        .ends_with(2)
        .tells(&["gone at the end"]);
}

#[test]
fn an_import_that_is_stopped_keeps_what_went_in() {
    let directory = tempdir().unwrap();
    let whole = large_dump(200, 20_000);
    let mut command = rashomon(directory.path());
    command.args(["import", "--data", "data", "--domain", "wiki", "-"]).stdin(Stdio::piped());
    let mut import = Running::start(&mut command);
    // Half of the dump, and then nothing more: the import waits.
    let mut stdin = import.stdin();
    stdin.write_all(&whole.as_bytes()[..whole.len() / 2]).unwrap();
    stdin.flush().unwrap();
    sleep(Duration::from_secs(1));
    let ran = import.stop().ends_with(143);
    ran.tells(&["stopped in standard input after", "what went in stays"]);
    drop(stdin);

    run(directory.path(), &["verify", "--data", "data"]).ends_with(0);
    let before = everything(directory.path()).lines().count();
    assert!(before > 10, "{before} lines");
    import_file(&directory, &whole).ends_with(0);
    assert!(everything(directory.path()).lines().count() >= 200);
}

#[test]
fn a_store_that_a_server_has_open_is_refused_with_the_way_to_import() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server = Running::start(command.args(["serve", "--data", "data", "--listen", "127.0.0.1:0"]));
    let line = server.line();
    let ran = import_file(&directory, &dump("Page", &[("1", "one")])).ends_with(1);
    let process = format!("process {}", server.id());
    ran.tells(&["data", &process, "--to http://127.0.0.1:7231"]);
    for command in ["verify", "stats"] {
        run(directory.path(), &[command, "--data", "data"]).ends_with(1).tells(&[&process]);
    }
    assert!(line.contains("http://127.0.0.1:"), "{line}");
    server.stop().ends_with(0);
}

#[test]
fn a_dump_goes_to_a_running_server() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server = Running::start(command.args(["serve", "--data", "data", "--listen", "127.0.0.1:0"]));
    let line = server.line();
    let url = line
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .unwrap()
        .trim_end_matches(',')
        .to_owned();
    let dump = dump("Page", &[("1", "one"), ("2", "two"), ("0", "none")]);
    fs::write(directory.path().join("dump.xml"), &dump).unwrap();
    let import = || run(directory.path(), &["import", "--to", &url, "--domain", "wiki", "dump.xml"]);
    import().ends_with(3).prints(&["2 stored", "1 left out"]).tells(&["not a positive number"]);
    import().ends_with(3).prints(&["0 stored", "2 stood so already"]);

    // Cut short: told as the command itself would tell it.
    fs::write(directory.path().join("dump.xml"), &dump[..dump.find("two").unwrap()]).unwrap();
    import().ends_with(1).tells(&["dump.xml: line ", "cut short"]);

    // No dump at all.
    fs::write(directory.path().join("dump.xml"), "just words\n").unwrap();
    import().ends_with(1).tells(&["refused the import (400", "neither XML nor JSON lines"]);
    server.stop().ends_with(0);
    assert!(everything(directory.path()).contains("two"));
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    let import = |url: &str| run(directory.path(), &["import", "--to", url, "--domain", "wiki", "dump.xml"]);
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    import(&format!("http://{free}"))
        .ends_with(1)
        .tells(&["cannot reach a server at", "is `rashomon serve` running"]);
    import("https://127.0.0.1").ends_with(2).tells(&["https is not spoken here"]);
    let mut command = rashomon(directory.path());
    command.args(["import", "--to", "http://127.0.0.1", "--data", "x", "--domain", "wiki", "dump.xml"]);
    finish(&mut command).ends_with(2).tells(&["--to", "--data"]);
}

#[test]
fn a_server_that_closes_early_is_heard_nevertheless() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), "x".repeat(20_000_000)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Whether the client is just sending when the connection closes is chance: so several times.
    const TIMES: usize = 10;
    let server = std::thread::spawn(move || {
        for _ in 0..TIMES {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut vec![0; 1_000_000]).unwrap();
            let detail = r#"{"detail": "the reason"}"#;
            let length = detail.len();
            // In one piece: what the system holds back is lost when the connection closes.
            let answer = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\n\r\n{detail}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for _ in 0..TIMES {
        let ran =
            run(directory.path(), &["import", "--to", &url, "--domain", "wiki", "dump.xml"]).ends_with(1);
        ran.tells(&["refused the import (400 Bad Request): the reason"]);
    }
    server.join().unwrap();
}

#[test]
fn a_signal_ends_an_import_that_waits() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    command.args(["import", "--data", "data", "--domain", "wiki", "-"]).stdin(Stdio::piped());
    let mut import = Running::start(&mut command);
    let _stdin = import.stdin();
    sleep(Duration::from_millis(500));
    import.signal(Signal::INT);
    assert_eq!(import.wait().code, Some(130));
}
