//! Tests with blocks that earlier versions wrote. Every version reads all of these blocks. With the same
//! version of zstd, the builder still writes the blocks that have neither erased entries nor unused ordinals,
//! byte for byte. The other blocks are no longer written.
//!
//! If `RASHOMON_WRITE_GOLDEN=1` is set, the tests write the files. This is only for a new version of the
//! format: a released file is never rewritten.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

use std::path::PathBuf;

use rashomon_blocks::{Block, BlockBuilder, Codec, Column, Error, Limits, Settings, Value, Version};

/// The version of zstd that packed the files. Another version may pack the contents to different bytes, but
/// has to unpack the files to the same contents.
const ZSTD: u32 = 10_507;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A paragraph. Each number gives a different paragraph.
fn paragraph(number: usize) -> String {
    const WORDS: [&str; 8] =
        ["gate", "rain", "woodcutter", "priest", "bandit", "grove", "testimony", "dagger"];
    let words: Vec<_> = (0..12).map(|place| WORDS[(number * 5 + place * (number + 3)) % 8]).collect();
    format!("{number}: {}.\n", words.join(" "))
}

pub(crate) fn text(paragraphs: &[usize]) -> String {
    paragraphs.iter().copied().map(paragraph).collect()
}

/// The versions of two properties of a page: with edits, a move, a revert, the same text in both properties,
/// and an empty text.
fn history() -> Vec<(&'static str, String, Vec<Value>)> {
    let sections: [(&str, &[usize]); 9] = [
        ("wikitext", &[1, 2, 3, 4, 5, 6]),
        ("html", &[10, 11, 12]),
        ("wikitext", &[1, 2, 9, 4, 5, 6]),
        ("wikitext", &[4, 5, 6, 1, 2, 9]),
        ("html", &[10, 13, 12, 1, 2]),
        ("wikitext", &[]),
        ("wikitext", &[1, 2, 3, 4, 5, 6]),
        ("html", &[1, 2, 3, 4, 5, 6]),
        ("wikitext", &[1, 2, 3, 4, 5, 6, 7]),
    ];
    let values = |number: usize| {
        let user =
            if number.is_multiple_of(3) { Value::Absent } else { Value::Bytes(vec![b'a' + number as u8; 5]) };
        let model = Value::Bytes(b"wikitext".to_vec());
        vec![Value::Integer(1_400_000_000 + 60 * number as i64), user, model, Value::Absent]
    };
    sections.iter().enumerate().map(|(number, (stream, of))| (*stream, text(of), values(number))).collect()
}

fn settings() -> Settings {
    Settings {
        group_entries: 3,
        group_pool: 100,
        first_group_pool: 100,
        group_contents: 0,
        level: 19,
        ..Settings::default()
    }
}

/// The last two columns: one has repeated strings, and one has no values.
fn columns() -> Vec<Column> {
    vec![Column::integer("time"), Column::bytes("user"), Column::bytes("model"), Column::bytes("none")]
}

/// A block of the history, with ordinals from 100 on.
fn written(version: Version) -> Vec<u8> {
    let mut builder = BlockBuilder::new(Settings { version, ..settings() }, columns(), 100).unwrap();
    for (number, (stream, content, values)) in history().into_iter().enumerate() {
        if matches!(number, 3 | 6) {
            builder.may_begin_group(true).unwrap();
        }
        builder.push(stream.as_bytes(), content.as_bytes(), &values).unwrap();
    }
    builder.finish().unwrap()
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..size).map(|_| next()).collect()
}

/// The size of an entry of the block of frames.
const NOISE_BYTES: usize = 8_500;

/// A block of frames.
fn frames() -> Vec<u8> {
    let mut builder = BlockBuilder::new(settings(), Vec::new(), 0).unwrap();
    for seed in 1..3 {
        builder.push(b"image", &noise(seed, NOISE_BYTES), &[]).unwrap();
    }
    builder.finish().unwrap()
}

/// Reads a golden file.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn writable_golden(name: &str, written_now: &[u8]) -> Vec<u8> {
    if std::env::var_os("RASHOMON_WRITE_GOLDEN").is_some() {
        std::fs::write(path(name), written_now).unwrap();
    }
    golden(name)
}

/// Checks that a block has the entries of [`history`]. The entries in `erased` must be erased.
fn assert_has_history(bytes: &[u8], chunks: usize, erased: &[u64]) {
    let block = Block::open(bytes, Limits::default()).unwrap();
    assert_eq!((block.codec(), block.chunk_count()), (Codec::PoolAndScripts, chunks));
    assert_eq!(block.columns(), columns());
    assert_eq!(block.ordinals(), Some((100, 108)));
    let streams = block.streams().unwrap();
    let entries = block.entries().unwrap();
    assert_eq!(entries.len(), history().len());
    for (((ordinal, (stream, content, values)), entry), read) in
        (100..).zip(history()).zip(entries).zip(block.iter())
    {
        let is_erased = erased.contains(&ordinal);
        assert_eq!((entry.ordinal, entry.erased, &entry.values), (ordinal, is_erased, &values));
        assert_eq!(streams[entry.stream], stream.as_bytes());
        let content = (!is_erased).then_some(content.into_bytes());
        assert_eq!(read.unwrap().bytes, content);
        assert_eq!(block.get(ordinal), content.ok_or(Error::Erased(ordinal)));
    }
}

#[test]
fn pool_and_scripts_of_version_1_are_read() {
    assert_has_history(&golden("pool-and-scripts-1.block"), 2, &[102]);
    // An earlier version of the program appended the last entries.
    assert_has_history(&golden("appended-1.block"), 3, &[]);
    assert_has_history(&writable_golden("whole-1.block", &written(Version::One)), 1, &[]);
}

#[test]
fn groups_of_version_2_are_read() {
    assert_has_history(&writable_golden("groups-2.block", &written(Version::Two)), 3, &[]);
}

#[test]
fn frames_of_version_1_are_read() {
    let bytes = writable_golden("frames-1.block", &frames());
    let block = Block::open(&bytes, Limits::default()).unwrap();
    assert_eq!((block.codec(), block.len()), (Codec::Frames, 2));
    assert_eq!(block.streams().unwrap(), [b"image"]);
    assert_eq!(block.get(0).unwrap(), noise(1, NOISE_BYTES));
    assert_eq!(block.get(1).unwrap(), noise(2, NOISE_BYTES));
}

#[test]
fn same_bytes_are_written_as_before() {
    if zstd::zstd_safe::version_number() != ZSTD {
        println!("skipped: another version of zstd may pack to other bytes");
        return;
    }
    for (name, version) in [("whole-1.block", Version::One), ("groups-2.block", Version::Two)] {
        assert_eq!(written(version), writable_golden(name, &written(version)), "{name}");
    }
    assert_eq!(frames(), writable_golden("frames-1.block", &frames()));
}
