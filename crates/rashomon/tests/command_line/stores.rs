//! SQLite files: their statistics, damaged files, and files that are not stores.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
};

use serde_json::Value;
use tempfile::tempdir;

use crate::{
    home::Home,
    process::run,
    wiki::{dump, large_dump},
};

#[test]
fn stats_show_the_sizes_of_the_files() {
    let Some(home) = Home::new() else { return };
    home.import_rows(&dump("A", &[("1", "one"), ("2", "three")]));
    home.run(&["stats"]).ends_with(0).stdout_contains(&["files: ", "revisions: 2 rows"]);
    let ran = home.run(&["stats", "--json"]).ends_with(0);
    let stats: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(stats["sqlite"]["format_version"], 2);
    assert!(stats["sqlite"]["file_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let Some(home) = Home::new() else { return };
    home.import_rows(&large_dump(20, 50_000));
    let path = home.path().join("data/rashomon.sqlite");
    let mut file = fs::read(&path).unwrap();
    // The flipped bit is in the middle of the bodies, which are most of the file. The bytes around it are not zero, so
    // they are not in an unused part of a database page.
    let middle = (file.len() / 2..).find(|at| !file[*at..at + 16].contains(&0)).unwrap();
    file[middle + 8] ^= 0x10;
    fs::write(&path, file).unwrap();
    let ran = home.run(&["verify"]).ends_with(1);
    ran.stdout_contains(&["Noise", "checksum", "NOT SOUND"]);
}

#[test]
fn faults_of_the_file_structure_are_found() {
    /// The offset at which SQLite stores the number of free pages.
    const FREE_PAGES: u64 = 36;
    let Some(home) = Home::new() else { return };
    home.import(&dump("A", &[("1", "one")]));
    patch(home.path(), FREE_PAGES, &7_u32.to_be_bytes());
    let ran = home.run(&["verify"]).ends_with(1);
    ran.stdout_contains(&["reelist", "NOT SOUND"]);
}

#[test]
fn missing_store_is_not_created() {
    let directory = tempdir().unwrap();
    for command in ["verify", "stats"] {
        let ran = run(directory.path(), &[command]).ends_with(2);
        ran.stderr_contains(&["there is no store in ./rashomon-data", "--data DIR"]);
    }
    let ran = run(directory.path(), &["export", "--domain", "wiki", "--data", "typo"]).ends_with(2);
    ran.stderr_contains(&["there is no store in typo"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Writes bytes at an offset of the store's file.
fn patch(directory: &Path, at: u64, bytes: &[u8]) {
    let path = directory.join("data/rashomon.sqlite");
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_store_of_an_unknown_version_is_refused() {
    /// The offset at which SQLite stores the user version, which is the version of the store's format.
    const USER_VERSION: u64 = 60;
    let Some(home) = Home::new() else { return };
    home.import(&dump("A", &[("1", "one")]));
    patch(home.path(), USER_VERSION, &99_u32.to_be_bytes());
    for command in [&["verify"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let ran = home.run(command).ends_with(1);
        ran.stderr_contains(&["data", "version 99"]);
    }
}

#[test]
fn other_sqlite_file_is_refused() {
    let directory = tempdir().unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    fs::write(directory.path().join("data/rashomon.sqlite"), "a diary, say\n".repeat(1000)).unwrap();
    run(directory.path(), &["stats", "--data", "data"])
        .ends_with(1)
        .stderr_contains(&["data", "is not a store"]);
    fs::write(directory.path().join("file"), "").unwrap();
    let ran = run(directory.path(), &["serve", "--data", "file"]).ends_with(2);
    ran.stderr_contains(&["file is not a directory", "--data DIR"]);
}
