//! Settings from file, environment and flags.

use tempfile::tempdir;

use crate::process::{finish, rashomon, run};

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let directory = tempdir().unwrap();
    let file = "listen = '127.0.0.1:1'\nskew = '1s'\nbody_limit = '1 MiB'\n";
    std::fs::write(directory.path().join("c.toml"), file).unwrap();
    let mut command = rashomon(directory.path());
    command.args(["check-config", "c.toml", "--listen", "127.0.0.1:3"]);
    command.env("RASHOMON_LISTEN", "127.0.0.1:2").env("RASHOMON_SKEW", "2s").env("RASHOMON_STORE", "memory:");
    let ran = finish(&mut command).ends_with(0);
    ran.stdout_contains(&[
        "listen = \"127.0.0.1:3\"",
        "skew = \"2s\"",
        "body_limit = \"1 MiB\"",
        "store = \"memory:\"",
    ]);
    // `--data` overrides the environment variable of `--store`.
    let ran = finish(command.args(["--data", "d"])).ends_with(0);
    ran.stdout_contains(&["store = \"sqlite:d\""]);
}

#[test]
fn the_configuration_can_be_named_by_the_environment() {
    let directory = tempdir().unwrap();
    std::fs::write(directory.path().join("c.toml"), "lisen = 1").unwrap();
    let mut command = rashomon(directory.path());
    command.arg("serve").env("RASHOMON_CONFIG", "c.toml");
    finish(&mut command).ends_with(2).stderr_contains(&["c.toml:1:1", "'lisen'", "did you mean 'listen'?"]);
}

#[test]
fn check_config_checks_the_file_that_the_environment_names() {
    let directory = tempdir().unwrap();
    std::fs::write(directory.path().join("c.toml"), "skew = '7s'").unwrap();
    std::fs::write(directory.path().join("wrong.toml"), "lisen = 1").unwrap();
    let mut command = rashomon(directory.path());
    command.arg("check-config").env("RASHOMON_CONFIG", "c.toml");
    finish(&mut command).ends_with(0).stdout_contains(&["skew = \"7s\""]);
    command.env("RASHOMON_CONFIG", "wrong.toml");
    finish(&mut command).ends_with(2).stderr_contains(&["wrong.toml:1:1", "did you mean 'listen'?"]);
    // A file on the command line overrides that of the variable.
    finish(command.arg("c.toml")).ends_with(0).stdout_contains(&["skew = \"7s\""]);
}

#[test]
fn commands_report_a_wrong_file() {
    let directory = tempdir().unwrap();
    std::fs::write(directory.path().join("dump.xml"), "").unwrap();
    std::fs::write(directory.path().join("c.toml"), "skew = '1s'\n[domains.a]\nhost = ['a.org']\n").unwrap();
    let expected = ["c.toml:3:1: there is no setting 'host'; did you mean 'hosts'?", "3 | host = ['a.org']"];
    run(directory.path(), &["check-config", "c.toml"]).ends_with(2).stderr_contains(&expected);
    for command in ["serve", "verify", "stats"] {
        run(directory.path(), &[command, "--config", "c.toml"]).ends_with(2).stderr_contains(&expected);
    }
    for command in ["import", "export"] {
        let file = if command == "import" { "dump.xml" } else { "--history" };
        run(directory.path(), &[command, "--config", "c.toml", "--domain", "a", file])
            .ends_with(2)
            .stderr_contains(&expected);
    }
    assert!(!directory.path().join("rashomon-data").exists(), "nothing was done");
    run(directory.path(), &["check-config", "none.toml"])
        .ends_with(2)
        .stderr_contains(&["cannot read", "none.toml"]);
}

#[test]
fn wrong_value_is_reported_with_its_source() {
    let directory = tempdir().unwrap();
    run(directory.path(), &["serve", "--skew", "5"])
        .ends_with(2)
        .stderr_contains(&["--skew", "'5' is not a length of time"]);
    let mut command = rashomon(directory.path());
    command.arg("serve").env("RASHOMON_SKEW", "5");
    let ran = finish(&mut command).ends_with(2);
    ran.stderr_contains(&["'5' is not a length of time", "the environment variable RASHOMON_SKEW"]);
}

#[test]
fn unknown_variable_is_warned_of() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    command.arg("check-config").env("RASHOMON_LISTN", "x").env("RASHOMON_SERVICE_HOST", "10.0.0.1");
    let ran = finish(&mut command).ends_with(0);
    ran.stderr_contains(&[
        "RASHOMON_LISTN is not a setting; did you mean RASHOMON_LISTEN?",
        "RASHOMON_SERVICE_HOST",
    ]);
}

#[test]
fn two_stores_and_an_unknown_kind_of_store_are_refused() {
    let directory = tempdir().unwrap();
    for command in [&["serve"][..], &["stats"], &["archive", "stats"]] {
        let two = [command, &["--data", "a", "--store", "memory:"]].concat();
        let ran = run(directory.path(), &two).ends_with(2);
        ran.stderr_contains(&["--data DIR is short for --store sqlite:DIR"]);
    }
    let ran = run(directory.path(), &["stats", "--store", "redis:x"]).ends_with(2);
    ran.stderr_contains(&[
        "'redis:' is not a kind of store; a store is one of sqlite:DIRECTORY, memory: and cassandra://",
    ]);
}

#[test]
fn addresses_other_than_loopback_require_access_rights() {
    let directory = tempdir().unwrap();
    let ran = run(directory.path(), &["serve", "--store", "memory:", "--listen", "0.0.0.0:0"]).ends_with(2);
    ran.stderr_contains(&["other machines can reach 0.0.0.0:0", "--access open"]);
}
