//! Stores that an earlier version of the program wrote, under each strategy of retention and with an archive.
//! After an upgrade they must open and be sound, and their rows and histories must be unchanged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::{TempDir, tempdir};

use crate::process::{ProcessOutput, run};

/// The folder of the fixtures. Each store has a subfolder.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stores")
}

/// Unpacks a store and its configuration into a new directory.
pub(crate) fn unpack(fixture: &Path) -> TempDir {
    let directory = tempdir().unwrap();
    let file = zstd::decode_all(&*fs::read(fixture.join("rashomon.sqlite.zst")).unwrap()).unwrap();
    fs::copy(fixture.join("rashomon.toml"), directory.path().join("rashomon.toml")).unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    fs::write(directory.path().join("data/rashomon.sqlite"), file).unwrap();
    directory
}

/// Unpacks a store, and upgrades it.
fn unpack_upgraded(fixture: &Path) -> TempDir {
    let directory = unpack(fixture);
    run(directory.path(), &["upgrade", "--data", "data"]).ends_with(0);
    directory
}

/// Returns the digests of the tables, and the exports of the latest revisions and of the histories.
fn describe(directory: &Path) -> (String, String) {
    let of_store = ["--config", "rashomon.toml", "--data", "data"];
    run(directory, &[&["verify"], &of_store[..]].concat()).ends_with(0);
    // The digests are taken first, since with retention a read of a superseded value stores a copy.
    let copied = run(directory, &["migrate", "--from", "sqlite:data", "--to", "sqlite:copy", "--verify"]);
    let digests = copied.ends_with(0).stdout;
    // The first line and the last one contain times.
    let digests = digests.lines().filter(|line| line.starts_with("  ")).collect::<Vec<_>>().join("\n") + "\n";
    let mut exports = String::new();
    for scope in [&[][..], &["--history"]] {
        let export = ["export", "--domain", "enwiki", "--format", "jsonl"];
        let ProcessOutput { code, stdout, stderr } =
            run(directory, &[&export, scope, &of_store[..]].concat());
        exports += &stdout;
        // An export names the revisions whose bodies have been culled or have expired, and exits with 3.
        for line in stderr.lines().filter_map(|line| line.strip_prefix("left out: ")) {
            // The reason, whose text may change, follows the revisions.
            let revisions = line.split(": ").next().unwrap();
            exports += &format!("left out: {revisions}\n");
        }
        exports += &format!("{code:?}\n");
    }
    (digests, exports)
}

/// Adds the stores below the folder that `RASHOMON_BLESS_STORES` names. Each subfolder that has `old/store`
/// becomes a fixture of the same name. `cargo xtask same` leaves such folders below `target/xtask/same`.
fn bless(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let old = entry.path().join("old");
        let Ok(store) = fs::read(old.join("store/rashomon.sqlite")) else { continue };
        let fixture = fixtures().join(entry.file_name());
        fs::create_dir_all(&fixture).unwrap();
        fs::copy(old.join("rashomon.toml"), fixture.join("rashomon.toml")).unwrap();
        let packed = zstd::encode_all(&*store, 19).unwrap();
        fs::write(fixture.join("rashomon.sqlite.zst"), packed).unwrap();
        let (digests, exports) = describe(unpack_upgraded(&fixture).path());
        fs::write(fixture.join("digests.txt"), digests).unwrap();
        fs::write(fixture.join("exports.jsonl.zst"), zstd::encode_all(exports.as_bytes(), 19).unwrap())
            .unwrap();
    }
}

#[test]
fn upgraded_stores_open_and_export_as_before() {
    if let Some(folder) = std::env::var_os("RASHOMON_BLESS_STORES") {
        bless(Path::new(&folder));
    }
    let mut with_archive = 0;
    let mut stores = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let fixture = entry.unwrap().path();
        let (digests, exports) = describe(unpack_upgraded(&fixture).path());
        let read = |name: &str| fs::read(fixture.join(name)).unwrap();
        let before = String::from_utf8(read("digests.txt")).unwrap();
        // Tables that later versions have added are empty.
        let is_kept = |line: &&str| {
            let name = line.split(':').next().unwrap();
            before.contains(&format!("{name}:")) || !line.contains(": 0 rows")
        };
        let kept: Vec<_> = digests.lines().filter(is_kept).collect();
        assert_eq!(kept, before.lines().collect::<Vec<_>>(), "{}", fixture.display());
        let before = zstd::decode_all(&*read("exports.jsonl.zst")).unwrap();
        assert!(exports.as_bytes() == before, "the export of {} differs", fixture.display());
        with_archive += usize::from(!digests.contains("archive_blocks: 0 rows"));
        stores.push(fixture);
    }
    assert!(
        stores.len() >= 11 && with_archive >= 3,
        "{with_archive} of these stores have an archive: {stores:?}"
    );
}
