//! Stores that an earlier version of the program wrote, under each strategy of retention and with an archive: they
//! open, they are sound, and they have the same rows and the same histories as then.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::{TempDir, tempdir};

use crate::process::{Ran, run};

/// Where the stores are, each in a folder of its own.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stores")
}

/// A copy of a store, as a directory for `--data`.
fn unpacked(fixture: &Path) -> TempDir {
    let directory = tempdir().unwrap();
    let file = zstd::decode_all(&*fs::read(fixture.join("rashomon.sqlite.zst")).unwrap()).unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    fs::write(directory.path().join("data/rashomon.sqlite"), file).unwrap();
    directory
}

/// What the program says of the store: the digests of its tables, and its histories.
fn described(directory: &Path) -> (String, String) {
    run(directory, &["verify", "--data", "data"]).ends_with(0);
    let export = ["export", "--data", "data", "--domain", "enwiki", "--history", "--format", "jsonl"];
    // An export ends with 3 where some bodies have been culled, and names them.
    let Ran { code, stdout, stderr } = run(directory, &export);
    let left_out = stderr.lines().filter(|line| line.starts_with("left out")).collect::<Vec<_>>().join("\n");
    let history = format!("{stdout}{left_out}\n{code:?}\n");
    let copied = run(directory, &["migrate", "--from", "sqlite:data", "--to", "sqlite:copy", "--verify"]);
    let digests = copied.ends_with(0).stdout;
    // The first line and the last one say how long it took.
    let digests = digests.lines().filter(|line| line.starts_with("  ")).collect::<Vec<_>>().join("\n") + "\n";
    (digests, history)
}

/// To add stores, name a folder with `RASHOMON_BLESS_STORES`. Each folder in it that has `new/store` becomes one of
/// that name: `cargo xtask same` leaves such folders below `target/xtask/same`.
fn bless(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let Ok(store) = fs::read(entry.path().join("new/store/rashomon.sqlite")) else { continue };
        let fixture = fixtures().join(entry.file_name());
        fs::create_dir_all(&fixture).unwrap();
        let packed = zstd::encode_all(&*store, 19).unwrap();
        fs::write(fixture.join("rashomon.sqlite.zst"), packed).unwrap();
        let (digests, history) = described(unpacked(&fixture).path());
        fs::write(fixture.join("digests.txt"), digests).unwrap();
        fs::write(fixture.join("history.jsonl.zst"), zstd::encode_all(history.as_bytes(), 19).unwrap())
            .unwrap();
    }
}

#[test]
fn earlier_stores_open_and_export_as_before() {
    if let Some(folder) = std::env::var_os("RASHOMON_BLESS_STORES") {
        bless(Path::new(&folder));
    }
    let mut sealed = 0;
    let mut names = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let fixture = entry.unwrap().path();
        let (digests, history) = described(unpacked(&fixture).path());
        let read = |name: &str| fs::read(fixture.join(name)).unwrap();
        assert_eq!(digests.as_bytes(), read("digests.txt"), "{}", fixture.display());
        let before = zstd::decode_all(&*read("history.jsonl.zst")).unwrap();
        assert!(history.as_bytes() == before, "{} has another history", fixture.display());
        sealed += usize::from(!digests.contains("archive_blocks: 0 rows"));
        names.push(fixture);
    }
    assert!(names.len() >= 10 && sealed >= 2, "{sealed} stores of these have an archive: {names:?}");
}
