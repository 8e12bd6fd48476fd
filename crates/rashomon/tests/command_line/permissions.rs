//! What the program creates is readable by its user alone, whatever the umask says.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::tempdir;

use crate::{
    http::{get, post},
    process::{ProcessOutput, RunningProcess, finish, run},
};

/// A command that begins without a umask.
fn without_umask(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_rashomon")]).args(arguments);
    command.current_dir(directory).env_remove("RASHOMON_CONFIG").env_remove("RASHOMON_STORE");
    command
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn all_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn new_files_are_readable_by_their_user_alone() {
    let directory = tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", "made/store", "--audit-log", "audit.log"];
    let mut server = RunningProcess::start(&mut without_umask(directory.path(), &serve));
    let address = server.address();
    let written = post(&address, "/v1/wiki/page/A?rev/", "_rev=1&wikitext=x");
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    let store = directory.path().join("made/store");
    let mut names: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in ["rashomon.sqlite", "rashomon.sqlite-shm", "rashomon.sqlite-wal"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    let check = || {
        for path in all_below(directory.path()) {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "{}", path.display());
        }
    };
    check();
    let backup = ["backup", "--data", "made/store", "--to", "backups"];
    finish(&mut without_umask(directory.path(), &backup)).ends_with(0);
    server.stop().ends_with(0);
    for output in ["a.jsonl", "a.xml"] {
        let format = if output == "a.xml" { "xml" } else { "jsonl" };
        let export =
            ["export", "--data", "made/store", "--domain", "wiki", "--format", format, "--output", output];
        finish(&mut without_umask(directory.path(), &export)).ends_with(0);
    }
    check();
}

#[test]
fn store_that_every_user_can_read_is_named() {
    let directory = tempdir().unwrap();
    let store = directory.path().join("store");
    let named = |ran: &ProcessOutput| ran.stderr.contains("every local user may read the store");
    let start = || {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data", "store"];
        let mut server = RunningProcess::start(&mut without_umask(directory.path(), &serve));
        let address = server.address();
        assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
        server.stop().ends_with(0)
    };
    assert!(!named(&start()));
    let check = || run(directory.path(), &["check-config", "--data", "store"]).ends_with(0);
    assert!(!named(&check()));
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!named(&check()), "nobody else can read the file");
    fs::set_permissions(store.join("rashomon.sqlite"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(named(&check()) && named(&start()));
}
