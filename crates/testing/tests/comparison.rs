//! The program that compares the strategies of retention, with a small history.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fmt::Write as _, fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::tempdir;

/// Writes an export of a page with four revisions.
fn write_history(directory: &Path) {
    let mut lines =
        "{\"kind\":\"siteinfo\",\"version\":1}\n{\"kind\":\"page\",\"title\":\"Night\"}\n".to_owned();
    for (rev, text) in (1..).zip(["a", "b", "c", "d"]) {
        let at = format!("2020-01-01T00:00:0{rev}Z");
        let _ = writeln!(
            lines,
            r#"{{"kind":"revision","rev":{rev},"timestamp":"{at}","properties":{{"wikitext":{{"text":"{text}"}}}}}}"#
        );
    }
    lines += "{\"kind\":\"end\",\"pages\":1,\"revisions\":4,\"renders\":0}\n";
    fs::write(directory.join("wiki.jsonl"), lines).unwrap();
}

/// Runs the program. Returns whether it succeeded, and what it printed.
fn compare(directory: &Path, input: &str, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rashomon-compare-strategies"));
    let output = command.current_dir(directory).args(["--input", input]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_strategy_is_measured_and_drawn() {
    let directory = tempdir().unwrap();
    let directory = directory.path();
    write_history(directory);
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let backend = ["--backend", "sqlite:compared"];
    let files = ["--json", "compared.json", "--svg", "compared.svg"];
    let (succeeded, output, errors) = compare(directory, "wiki.jsonl", &[&backend[..], &files].concat());
    assert!(succeeded, "{errors}");
    for part in ["4 edits of 1 page", "two-table", "write a later revision", "1.00 / 3.00 / 1.00"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let json: Value = serde_json::from_str(&read("compared.json")).unwrap();
    assert_eq!(json["edits"], 4);
    assert_eq!(json["strategies"].as_array().unwrap().len(), 9);
    let picture = read("compared.svg");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("table-per-query B, copy-on-read"), "{picture}");
    // A second run with the same stores is refused: its counts would include the rows of the first run.
    let (succeeded, _, errors) = compare(directory, "wiki.jsonl", &backend);
    assert!(!succeeded && errors.contains("already exists"), "{errors}");
}

#[test]
fn wrong_arguments_are_refused_before_the_first_measurement() {
    let directory = tempdir().unwrap();
    let directory = directory.path();
    write_history(directory);
    let refused = |input: &str, arguments: &[&str], expected: &str| {
        let (succeeded, _, errors) = compare(directory, input, arguments);
        assert!(!succeeded && errors.contains(expected), "{expected}: {errors}");
    };
    fs::create_dir_all(directory.join("partly/8")).unwrap();
    refused("wiki.jsonl", &["--backend", "sqlite:partly"], "partly already exists");
    assert!(!directory.join("partly/0").exists());
    refused("wiki.jsonl", &["--backend", "mysql:x"], "give memory:, sqlite:DIRECTORY or cassandra://");
    refused("missing.xml", &[], "cannot read missing.xml");
    // An unwritable target is reported before the measurement, which may take hours.
    for flag in ["--json", "--svg"] {
        refused(
            "missing.xml",
            &[flag, "nowhere/x"],
            "cannot write nowhere/x: name a file in an existing directory",
        );
    }
    // The check leaves no new file, and does not change existing files.
    fs::write(directory.join("kept.json"), "before").unwrap();
    refused("missing.xml", &["--json", "kept.json", "--svg", "new.svg"], "cannot read missing.xml");
    assert_eq!(fs::read_to_string(directory.join("kept.json")).unwrap(), "before");
    assert!(!directory.join("new.svg").exists());
}
