//! `rashomon export`: formats, targets, and the files after an interruption.

use std::{fs, io::Read as _, path::Path, process::Stdio};

use rustix::process::Signal;

use crate::{
    home::Home,
    process::{RunningProcess, rashomon, wait_until},
    wiki::{dump, large_dump},
};

#[test]
fn export_in_every_format_survives_a_round_trip() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("A/Ä", &[("1", "one &amp; &lt;two&gt;"), ("2", ""), ("3", "one")]));
    for name in
        ["first.xml", "first.xml.gz", "first.xml.bz2", "first.xml.zst", "first.jsonl", "first.jsonl.zst"]
    {
        let second = name.replace("first", "second");
        home.export(&["--history", "--output", name]).ends_with(0);
        let other = format!("data-{name}");
        home.run_on(&other, &["import", "--domain", "wiki", name])
            .ends_with(0)
            .stdout_contains(&["3 stored"]);
        home.run_on(&other, &["export", "--domain", "wiki", "--history", "--output", &second]).ends_with(0);
        let read = |name: &str| fs::read(home.path().join(name)).unwrap();
        assert!(read(name) == read(&second), "{name}");
    }
}

#[test]
fn unwritable_target_is_named() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("A", &[("1", "one")]));
    home.export(&["--output", "a.xml.7z"]).ends_with(2).stderr_contains(&[".gz, .bz2 or .zst"]);
    let ran = home.export(&["--output", "no/such/a.xml"]).ends_with(2);
    ran.stderr_contains(&["cannot write no/such/a.xml: there is no directory no/such"]);
    let ran = home.export(&["--output", "/proc/a.xml"]).ends_with(1);
    assert!(ran.stderr.starts_with("error: cannot write /proc/a.xml: "), "{}", ran.stderr);
    assert!(!ran.stderr.contains(".part"), "{}", ran.stderr);
    let ran = home.export(&["--format", "xml", "--output", "/dev/full"]).ends_with(1);
    ran.stderr_contains(&["cannot write /dev/full: No space left on device"]);
}

#[test]
fn duplicate_numbers_are_reported_with_the_cure() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("A", &[("1", "one")]));
    home.import(&dump("B", &[("1", "other")]));
    let ran = home.export(&[]).ends_with(3);
    ran.stderr_contains(&[
        "revision 1 of B: the revision id 1 occurs earlier",
        "separately with --title",
        "--format jsonl",
    ]);
    home.export(&["--format", "jsonl"]).ends_with(0);
}

/// Returns the files in a directory that an export may have left.
fn remaining_files(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("out.xml")).collect()
}

#[test]
fn interrupted_export_leaves_no_file_under_its_name() {
    let Some(home) = Home::new() else { return };
    let path = home.path();
    home.import(&large_dump(300, 50_000));
    for (signal, code, remains) in [(Signal::KILL, None, 1), (Signal::TERM, Some(143), 0)] {
        let mut command =
            home.command(&["export", "--domain", "wiki", "--history", "--output", "out.xml.bz2"]);
        let before = remaining_files(path);
        let export = RunningProcess::start(&mut command);
        wait_until("the export begins a file", || {
            remaining_files(path).iter().any(|name| !before.contains(name))
        });
        export.signal(signal);
        assert_eq!(export.wait().code, code);
        let names = remaining_files(path);
        assert!(!names.contains(&"out.xml.bz2".to_owned()), "{names:?}");
        assert_eq!(names.len(), remains, "{names:?}");
    }
    // The second export has deleted the files that the first export left.
    assert!(remaining_files(path).is_empty());
    // An export to standard output has no file.
    let mut export = RunningProcess::start(&mut home.command(&["export", "--domain", "wiki", "--history"]));
    export.line();
    let stopped = export.stop().ends_with(143).stderr_contains(&["the export is incomplete"]);
    assert!(!stopped.stderr.contains("--output"), "{stopped:?}");
}

#[test]
fn closed_output_causes_no_panic() {
    let Some(home) = Home::new() else { return };
    let path = home.path();
    home.import(&large_dump(50, 50_000));
    let mut command = home.command(&["export", "--domain", "wiki", "--history"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr_text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr_text}");
    assert!(
        stderr_text.contains("stopped before its end") && !stderr_text.contains("panicked"),
        "{stderr_text}"
    );

    // A command that only prints reports nothing.
    let mut command = rashomon(path);
    let mut child =
        command.args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
