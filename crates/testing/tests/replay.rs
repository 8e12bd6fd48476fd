//! Every target runs over its seeds, and over all inputs that once made the target fail.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use rashomon_testing::fuzz_targets::{TARGETS, any_block, block_round_trip};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The files of a folder, sorted by name. Empty if the folder does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn names(folder: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    files(folder).iter().map(name).collect()
}

#[test]
fn seeds_and_crashes_pass_every_target() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let seeds = files(&fuzz().join("seeds").join(name));
        assert!(!seeds.is_empty(), "{name} has seeds");
        for file in seeds.into_iter().chain(files(&fuzz().join("crashes").join(name))) {
            let input = fs::read(&file).unwrap();
            if catch_unwind(|| target(&input)).is_err() {
                failed.push(file);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn targets_programs_seeds_and_crashes_have_the_same_names() {
    let targets: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), targets);
    assert_eq!(names(&fuzz().join("seeds")), targets);
    let manifest: toml::Table = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let programs = manifest["bin"].as_array().unwrap().iter();
    assert_eq!(programs.map(|program| program["name"].as_str().unwrap()).collect::<Vec<_>>(), targets);
    for name in names(&fuzz().join("crashes")) {
        assert!(targets.contains(&name), "{name} is the name of a target");
    }
}

/// A reader of single contents, a reader of all, and a reader of groups read the same from every block.
#[test]
fn all_readers_of_blocks_agree() {
    let golden = files(&fuzz().join("../crates/blocks/tests/golden"));
    assert!(!golden.is_empty());
    golden.iter().for_each(|file| any_block(&fs::read(file).unwrap()));
    let mut random = fastrand::Rng::with_seed(45);
    // Each input makes at least three blocks.
    for _ in 0..4_000 {
        let longest = 1 << random.u32(4..=11);
        let length = random.usize(..longest);
        let input: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        block_round_trip(&input);
    }
}
