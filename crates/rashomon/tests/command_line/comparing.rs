//! Compares the strategies with a small history.

use std::fs;

use serde_json::Value;
use tempfile::tempdir;

use crate::{process::run, wiki::dump};

#[test]
fn every_strategy_is_measured_and_drawn() {
    let directory = tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let history = dump("Night", &[("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]);
    fs::write(directory.path().join("wiki.xml"), history).unwrap();
    let compare = ["compare-strategies", "--input", "wiki.xml", "--backend", "sqlite:compared"];
    let files = ["--json", "compared.json", "--svg", "compared.svg"];
    let compared = run(directory.path(), &[&compare[..], &files].concat()).ends_with(0);
    compared.stdout_contains(&[
        "4 edits of 1 page",
        "two-table",
        "write a later revision",
        "1.00 / 3.00 / 1.00",
    ]);
    let json: Value = serde_json::from_str(&read("compared.json")).unwrap();
    assert_eq!(json["edits"], 4);
    assert_eq!(json["strategies"].as_array().unwrap().len(), 9);
    let picture = read("compared.svg");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("table-per-query B, copy-on-read"), "{picture}");
    // A second run with the same stores is refused: its counts would include the rows of the first run.
    run(directory.path(), &compare).ends_with(2).stderr_contains(&["already exists"]);
    // All directories are checked before the first measurement.
    fs::create_dir_all(directory.path().join("partly/8")).unwrap();
    let partly = ["compare-strategies", "--input", "wiki.xml", "--backend", "sqlite:partly"];
    run(directory.path(), &partly).ends_with(2).stderr_contains(&["partly already exists"]);
    assert!(!directory.path().join("partly/0").exists());
    let missing = ["compare-strategies", "--input", "missing.xml"];
    run(directory.path(), &missing).ends_with(1).stderr_contains(&["cannot read missing.xml"]);
    // An unwritable target is reported before the measurement, which may take hours.
    fs::write(directory.path().join("kept.json"), "before").unwrap();
    for flag in ["--json", "--svg"] {
        run(directory.path(), &[&missing[..], &[flag, "nowhere/x"]].concat())
            .ends_with(2)
            .stderr_contains(&["cannot write nowhere/x", "in an existing directory"]);
    }
    // The check leaves no new file, and does not change existing files.
    run(directory.path(), &[&missing[..], &["--json", "kept.json", "--svg", "new.svg"]].concat())
        .ends_with(1);
    assert_eq!(read("kept.json"), "before");
    assert!(!directory.path().join("new.svg").exists());
}
