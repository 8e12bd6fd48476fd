//! `rashomon archive`: settings that contradict the archive.

use tempfile::tempdir;

use crate::process::run;

#[test]
fn settings_that_contradict_the_archive_are_reported() {
    let directory = tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(directory.path().join("c.toml"), text).unwrap();
        run(directory.path(), &["check-config", "c.toml"])
    };
    check("[archive]\n")
        .ends_with(0)
        .stdout_contains(&["[archive]\nenabled = true\npolicy = \"every\"\nafter = \"24h\""]);
    check("[archive]\npolicy = { interval = \"1d\" }\n")
        .ends_with(0)
        .stdout_contains(&["[archive.policy]\ninterval = \"24h\""]);
    check("[archive]\npolicy = \"first-render\"\n")
        .ends_with(0)
        .stdout_contains(&["policy = \"first-render\""]);
    check("[archive]\npolicy = \"last\"\n").ends_with(2).stderr_contains(&["first-render"]);
    check("archive = false\n").ends_with(0).stdout_contains(&["[archive]\nenabled = false"]);
    check("archive = true\n").ends_with(0).stdout_contains(&["[archive]\nenabled = true"]);
    // The store decides, so nothing is printed that would decide otherwise.
    let undecided = check("").ends_with(0).stdout;
    assert!(!undecided.contains("[archive]") && !undecided.contains("[retention]"), "{undecided}");
    check("[retention]\ngrace = \"48h\"\n[archive]\n").ends_with(0).stdout_contains(&["after = \"48h\""]);
    check("[archive]\nafter = \"1m\"\n").ends_with(2).stderr_contains(&["raise after to at least 1h"]);
    check("[archive]\nevery = \"0s\"\n").ends_with(2).stderr_contains(&["between two searches"]);
    check("[retention]\nstrategy = \"two-table\"\n[archive]\n")
        .ends_with(2)
        .stderr_contains(&["strategy = \"app-ttl\""]);
    std::fs::write(directory.path().join("r.toml"), "[retention]\n").unwrap();
    let cluster = ["--store", "cassandra://127.0.0.1:1/wiki"];
    run(directory.path(), &[&["archive", "seal"], &cluster[..]].concat())
        .ends_with(2)
        .stderr_contains(&["to the configuration of every server"]);
    run(directory.path(), &["archive", "seal", "--config", "r.toml"])
        .ends_with(2)
        .stderr_contains(&["so that they are sealed instead"]);
    std::fs::write(directory.path().join("a.toml"), "[archive]\n").unwrap();
    run(directory.path(), &["retention", "--now", "--config", "a.toml"])
        .ends_with(2)
        .stderr_contains(&["retention deletes nothing"]);
}
