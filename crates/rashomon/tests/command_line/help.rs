//! The first texts that a new user sees.

use tempfile::tempdir;

use crate::process::run;

#[test]
fn without_arguments_there_is_help() {
    let directory = tempdir().unwrap();
    let ran = run(directory.path(), &[]).ends_with(2);
    for command in [
        "serve",
        "import",
        "export",
        "migrate",
        "backup",
        "restore",
        "verify",
        "stats",
        "vacuum",
        "rewrite",
        "upgrade",
        "check-config",
        "cassandra",
        "demo",
        "completions",
    ] {
        assert!(ran.stderr.contains(&format!("\n  {command} ")), "{command}: {ran:#?}");
    }
    run(directory.path(), &["--help"]).ends_with(0).stdout_contains(&["Exit codes:", "  3    "]);
    run(directory.path(), &["--version"]).ends_with(0).stdout_contains(&["rashomon 0.1.0"]);
}

#[test]
fn each_command_has_a_manual() {
    let directory = tempdir().unwrap();
    let serve = run(directory.path(), &["serve", "--help"]).ends_with(0);
    let serve =
        serve.stdout_contains(&["--listen <ADDRESS:PORT>", "[default: 127.0.0.1:7231]", "RASHOMON_LISTEN"]);
    assert!(!serve.stdout.contains("--properties"), "{serve:#?}");
    let import = run(directory.path(), &["import", "--help"]).ends_with(0);
    import.stdout_contains(&["Exit codes:", "conflict", "--jobs <N>", "--to <URL>", "standard input"]);
    run(directory.path(), &["export", "--help"]).ends_with(0).stdout_contains(&[
        "--history",
        ".zst",
        "Exit codes:",
    ]);
    run(directory.path(), &["verify", "--help"]).ends_with(0).stdout_contains(&["the store is sound"]);
    let seal = run(directory.path(), &["archive", "seal", "--help"]).ends_with(0);
    seal.stdout_contains(&["damaged revisions stay in the tables"]);
    run(directory.path(), &["vacuum", "--help"]).ends_with(0).stdout_contains(&[
        "--full",
        "--json",
        "Exit codes:",
    ]);
    run(directory.path(), &["stats", "--help"]).ends_with(0).stdout_contains(&["--json"]);
}

#[test]
fn mistyped_words_get_a_suggestion() {
    let directory = tempdir().unwrap();
    run(directory.path(), &["improt"]).ends_with(2).stderr_contains(&["'import'"]);
    run(directory.path(), &["serve", "--lissten", "x"]).ends_with(2).stderr_contains(&["'--listen'"]);
    run(directory.path(), &["import", "--domain", "Bad Name", "x"])
        .ends_with(2)
        .stderr_contains(&["a domain is 1 to 128"]);
}

#[test]
fn completions_are_scripts() {
    let directory = tempdir().unwrap();
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef rashomon"), ("fish", "complete -c rashomon")]
    {
        run(directory.path(), &["completions", shell]).ends_with(0).stdout_contains(&[word, "check-config"]);
    }
}
