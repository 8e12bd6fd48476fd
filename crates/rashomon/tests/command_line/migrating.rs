//! `rashomon migrate` between two SQLite stores. The command does not depend on the kinds of stores.

use std::{fs, path::Path, thread::sleep, time::Duration};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::{
    process::{ProcessOutput, RunningProcess, rashomon, run},
    wiki::{dump, pages},
};

const COMMAND: [&str; 6] = ["migrate", "--from", "sqlite:data", "--to", "sqlite:copy", "--verify"];

/// Imports a dump into the source store.
#[track_caller]
fn import(directory: &Path, dump: &str) {
    fs::write(directory.join("dump.xml"), dump).unwrap();
    run(directory, &["import", "--rows", "--data", "data", "--domain", "wiki", "dump.xml"]).ends_with(0);
}

fn migrate(directory: &Path) -> ProcessOutput {
    run(directory, &COMMAND)
}

/// The export of a store.
#[track_caller]
fn exported(directory: &Path, store: &str) -> String {
    let arguments = ["export", "--data", store, "--domain", "wiki", "--history", "--format", "jsonl"];
    run(directory, &arguments).ends_with(0).stdout
}

#[test]
fn copy_has_the_content_of_its_source() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("A", &[("1", "one"), ("2", "two")]));
    let ran = migrate(directory.path()).ends_with(0);
    ran.stdout_contains(&["copied ", "rows/s", "  revisions: 2 rows, ", "the same: ", "tables, compared in"]);
    assert_eq!(exported(directory.path(), "data"), exported(directory.path(), "copy"));
    run(directory.path(), &["verify", "--data", "copy"]).ends_with(0);
    let again = migrate(directory.path()).ends_with(0);
    again.stderr_contains(&["migrated from this source before"]).stdout_contains(&["the same: "]);
}

#[test]
fn store_is_identified_by_its_path() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("A", &[("1", "one")]));
    migrate(directory.path()).ends_with(0);
    let from = format!("sqlite:{}", directory.path().join("data").display());
    let again = run(directory.path(), &["migrate", "--from", &from, "--to", "sqlite:copy"]).ends_with(0);
    again.stderr_contains(&["migrated from this source before"]);
    let ran = run(directory.path(), &["migrate", "--from", &from, "--to", "sqlite:./data"]).ends_with(2);
    ran.stderr_contains(&["both --from and --to"]);
}

#[test]
fn migrate_names_a_difference_and_fails() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("A", &[("1", "one")]));
    migrate(directory.path()).ends_with(0);
    fs::write(directory.path().join("other.xml"), dump("Marigold", &[("5", "there alone")])).unwrap();
    run(directory.path(), &["import", "--rows", "--data", "copy", "--domain", "wiki", "other.xml"])
        .ends_with(0);
    let ran = migrate(directory.path()).ends_with(1);
    ran.stdout_contains(&[
        "revisions: DIFFERENT, 1 row in the source and 2 in the target",
        "Marigold",
        "NOT THE SAME",
    ])
    .stderr_contains(&["migrate into an empty target"]);
}

#[test]
fn a_target_with_other_data_is_refused() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("A", &[("1", "one")]));
    fs::rename(directory.path().join("data"), directory.path().join("copy")).unwrap();
    import(directory.path(), &dump("B", &[("1", "one")]));
    let ran = migrate(directory.path()).ends_with(2);
    ran.stderr_contains(&["the target already has data", "migrate into an empty target"]);
    assert!(!exported(directory.path(), "copy").contains("\"B\""));
}

#[test]
fn missing_source_makes_no_target() {
    let directory = tempdir().unwrap();
    migrate(directory.path()).ends_with(2).stderr_contains(&["there is no store in data"]);
    run(directory.path(), &["migrate", "--from", "memory:", "--to", "sqlite:copy"]).ends_with(2);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn locked_source_is_refused() {
    let directory = tempdir().unwrap();
    import(directory.path(), &dump("A", &[("1", "one")]));
    let arguments = ["serve", "--data", "data", "--listen", "127.0.0.1:0"];
    let mut server = RunningProcess::start(rashomon(directory.path()).args(arguments));
    server.line();
    migrate(directory.path()).ends_with(1).stderr_contains(&["data", &server.id().to_string()]);
    assert!(!directory.path().join("copy").exists());
    server.stop();
}

/// Starts a migration, and waits until it has copied some tables, or has ended.
fn start_until_some_tables_are_copied(directory: &Path) -> RunningProcess {
    /// The size of the target's log at which some tables are copied, but not all.
    const SOME_TABLES_BYTES: u64 = 3_000_000;
    /// The number of attempts in more than a minute.
    const MAX_POLLS: u32 = 60_000;
    let running = RunningProcess::start(rashomon(directory).args(COMMAND));
    let log = directory.join("copy/rashomon.sqlite-wal");
    let mut was_there = false;
    let is_some_copied = (0..MAX_POLLS).any(|_| {
        sleep(Duration::from_millis(1));
        let log = fs::metadata(&log).ok();
        // The log is deleted when the target is closed.
        let has_ended = was_there && log.is_none();
        was_there |= log.is_some();
        has_ended || log.is_some_and(|log| log.len() >= SOME_TABLES_BYTES)
    });
    assert!(is_some_copied, "the migration copies nothing");
    running
}

/// Calls `attempt` during a migration. If the migration has ended too early, the attempt returns false, and is repeated
/// with more data.
fn attempt_during_a_migration<T>(directory: &Path, attempt: impl Fn(RunningProcess) -> (T, bool)) -> T {
    let mut count = 2_000;
    loop {
        import(directory, &pages(count));
        let (result, was_in_time) = attempt(start_until_some_tables_are_copied(directory));
        if was_in_time || count > 20_000 {
            return result;
        }
        fs::remove_dir_all(directory.join("copy")).unwrap();
        count *= 4;
    }
}

/// Runs a migration that gets a signal while it copies, and then a second migration.
fn interrupt_and_migrate_again(directory: &Path, signal: Signal) -> (ProcessOutput, ProcessOutput) {
    attempt_during_a_migration(directory, |running| {
        running.signal(signal);
        let (ran, next) = (running.wait(), migrate(directory));
        let was_in_time =
            next.stderr.contains("resuming a migration") && !ran.stderr.contains("while comparing");
        ((ran, next), was_in_time)
    })
}

#[track_caller]
fn assert_continues(next: ProcessOutput, directory: &Path) {
    next.ends_with(0)
        .stderr_contains(&["resuming a migration that was interrupted after"])
        .stdout_contains(&["; with the rows of earlier runs, "]);
    assert_eq!(exported(directory, "data"), exported(directory, "copy"));
}

#[test]
fn killed_migration_is_continued() {
    let directory = tempdir().unwrap();
    let (ran, next) = interrupt_and_migrate_again(directory.path(), Signal::KILL);
    assert_eq!((ran.code, ran.stdout.as_str()), (None, ""));
    assert_continues(next, directory.path());
}

#[test]
fn interrupted_migration_prints_how_to_continue() {
    let directory = tempdir().unwrap();
    let (ran, next) = interrupt_and_migrate_again(directory.path(), Signal::INT);
    ran.ends_with(130).stderr_contains(&["to continue, run the same command again"]);
    assert_continues(next, directory.path());
}

#[test]
fn progress_is_printed_every_few_seconds() {
    let directory = tempdir().unwrap();
    let ran = attempt_during_a_migration(directory.path(), |running| {
        // With this pause, the command takes longer than the interval between two lines, on any machine.
        running.signal(Signal::STOP);
        sleep(Duration::from_secs(6));
        running.signal(Signal::CONT);
        let ran = running.wait();
        let was_in_time = ran.stderr.contains("copying: ");
        (ran, was_in_time)
    });
    ran.ends_with(0).stderr_contains(&["copying: ", " rows, ", "/s, ", "B/s"]);
}
