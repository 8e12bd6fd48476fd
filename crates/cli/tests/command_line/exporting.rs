//! `rashomon export`: formats, identity, and what is left when it does not come to its end.

use std::{fs, io::Read as _, path::Path, process::Stdio, thread::sleep, time::Duration};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::{
    process::{Running, rashomon, run},
    wiki::{dump, import, large_dump},
};

fn export(directory: &Path, data: &str, arguments: &[&str]) -> crate::process::Ran {
    run(directory, &[&["export", "--data", data, "--domain", "wiki"], arguments].concat())
}

#[test]
fn what_was_exported_and_imported_is_exported_the_same() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    import(path, &dump("A/Ä", &[("1", "one &amp; &lt;two&gt;"), ("2", ""), ("3", "one")]));
    for name in
        ["first.xml", "first.xml.gz", "first.xml.bz2", "first.xml.zst", "first.jsonl", "first.jsonl.zst"]
    {
        let second = name.replace("first", "second");
        export(path, "data", &["--history", "--output", name]).ends_with(0);
        let other = format!("data-{name}");
        run(path, &["import", "--data", &other, "--domain", "wiki", name]).ends_with(0).prints(&["3 stored"]);
        export(path, &other, &["--history", "--output", &second]).ends_with(0);
        assert!(fs::read(path.join(name)).unwrap() == fs::read(path.join(second)).unwrap(), "{name}");
    }
}

#[test]
fn only_what_is_asked_for_is_written() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    import(path, &dump("A", &[("1", "old"), ("2", "new")]));
    import(path, &dump("B", &[("3", "other")]));
    let current = export(path, "data", &[]).ends_with(0).stdout;
    assert!(current.contains("new") && current.contains("other") && !current.contains("old"), "{current}");
    let one = export(path, "data", &["--title", "A", "--history"]).ends_with(0).stdout;
    assert!(one.contains("new") && one.contains("old") && !one.contains("other"), "{one}");
    let ran = export(path, "data", &["--title", "A", "--title", "No such"]).ends_with(3);
    ran.tells(&["there is no page No_such"]);
    let ran = run(path, &["export", "--data", "data", "--domain", "other"]).ends_with(1);
    ran.tells(&["nothing of the domain other; it has wiki"]);
    export(path, "data", &["--output", "a.xml.7z"]).ends_with(2).tells(&[".gz, .bz2 or .zst"]);
    let ran = export(path, "data", &["--output", "no/such/a.xml"]).ends_with(2);
    ran.tells(&["cannot write no/such/a.xml: there is no directory no/such"]);
    let ran = export(path, "data", &["--output", "/proc/a.xml"]).ends_with(1);
    assert!(ran.stderr.starts_with("error: cannot write /proc/a.xml: "), "{}", ran.stderr);
    assert!(!ran.stderr.contains(".part"), "{}", ran.stderr);
    let ran = export(path, "data", &["--format", "xml", "--output", "/dev/full"]).ends_with(1);
    ran.tells(&["cannot write /dev/full: No space left on device"]);
}

#[test]
fn numbers_that_come_twice_are_told_with_the_cure() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    import(path, &dump("A", &[("1", "one")]));
    import(path, &dump("B", &[("1", "other")]));
    let ran = export(path, "data", &[]).ends_with(3);
    ran.tells(&[
        "revision 1 of B: its revision id 1 has come before",
        "apart with --title",
        "--format jsonl",
    ]);
    export(path, "data", &["--format", "jsonl"]).ends_with(0);
}

/// The names in a directory that an export may have left.
fn left(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("out.xml")).collect()
}

#[test]
fn an_export_that_is_ended_leaves_no_file_under_its_name() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    import(path, &large_dump(300, 50_000));
    for (signal, code, remains) in [(Signal::KILL, None, 1), (Signal::TERM, Some(143), 0)] {
        let mut command = rashomon(path);
        command.args([
            "export",
            "--data",
            "data",
            "--domain",
            "wiki",
            "--history",
            "--output",
            "out.xml.bz2",
        ]);
        let before = left(path);
        let export = Running::start(&mut command);
        while left(path).iter().all(|name| before.contains(name)) {
            sleep(Duration::from_millis(1));
        }
        export.signal(signal);
        assert_eq!(export.wait().code, code);
        let names = left(path);
        assert!(!names.contains(&"out.xml.bz2".to_owned()), "{names:?}");
        assert_eq!(names.len(), remains, "{names:?}");
    }
    // What the first could not clear away, the second has.
    assert!(left(path).is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    import(path, &large_dump(50, 50_000));
    let mut command = rashomon(path);
    command.args(["export", "--data", "data", "--domain", "wiki", "--history"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("stopped before its end") && !told.contains("panicked"), "{told}");

    // A command that only prints has nothing to tell.
    let mut command = rashomon(path);
    let mut child =
        command.args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
