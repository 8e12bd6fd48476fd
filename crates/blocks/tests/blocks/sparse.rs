//! Tests of blocks with erased entries and unused ordinals. The format has both, and every version reads such
//! blocks. An earlier version wrote the blocks of these tests. The current version writes neither erased
//! entries nor unused ordinals.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

use std::collections::BTreeSet;

use crate::{
    damage::assert_right_or_error,
    golden::{golden, noise, text},
    histories::{Expected, Version, assert_has, open},
};
use rashomon_blocks::{Block, Codec, Error, Limits, Value};

/// A block of the folder `golden`, with its entries.
struct SparseBlock {
    bytes: Vec<u8>,
    codec: Codec,
    chunks: usize,
    versions: Vec<Version>,
}

impl SparseBlock {
    fn all() -> [Self; 2] {
        [
            Self {
                bytes: golden("sparse-pool-and-scripts-1.block"),
                codec: Codec::PoolAndScripts,
                chunks: 10,
                versions: pool_and_scripts(),
            },
            Self {
                bytes: golden("sparse-frames-1.block"),
                codec: Codec::Frames,
                chunks: 2,
                versions: frames(),
            },
        ]
    }

    fn expected(&self) -> Vec<Expected<'_>> {
        let expected = self.versions.iter().enumerate().map(|(number, version)| Expected {
            ordinal: ordinal(number),
            version,
            is_erased: is_erased(number),
        });
        expected.collect()
    }
}

/// The ordinal of an entry. Ordinals are unused after every third of the first twelve entries, and before
/// every fourth entry from number 24 on.
fn ordinal(number: usize) -> u64 {
    let unused = match number {
        0..12 => number / 3 * 2,
        12..24 => 8,
        _ => 8 + (number - 20) / 4 * 100,
    };
    (5 + number + unused) as u64
}

/// Whether an entry is erased: the first entry, the last entry of the block of scripts, one chunk of this
/// block, and a few other entries. Some of these other entries have text in common with entries that stay.
fn is_erased(number: usize) -> bool {
    matches!(number, 0 | 1 | 5 | 13 | 16..20 | 25 | 27 | 30 | 39 | 66 | 67)
}

fn version(number: usize, stream: &str, content: Vec<u8>) -> Version {
    let user =
        if number.is_multiple_of(3) { Value::Absent } else { Value::Bytes(vec![b'a' + number as u8 % 5; 5]) };
    let values = vec![Value::Integer(1_400_000_000 + 60 * number as i64), user];
    Version { stream: stream.as_bytes().to_vec(), content, values }
}

/// The histories of two properties: edits, reverts, and an empty text.
fn pool_and_scripts() -> Vec<Version> {
    let mut paragraphs: Vec<usize> = (0..6).collect();
    let mut before: Vec<Vec<usize>> = Vec::new();
    let versions = (0..40).map(|number| {
        match number {
            10 | 29 => paragraphs = before[number - 4].clone(),
            22 => paragraphs = Vec::new(),
            23 => paragraphs = before[21].clone(),
            _ => paragraphs[number * 7 % 6] = 10 + number,
        }
        before.push(paragraphs.clone());
        let stream = if number % 4 == 3 { "html" } else { "wikitext" };
        version(number, stream, text(&paragraphs).into_bytes())
    });
    versions.collect()
}

/// Contents that cannot be compressed.
fn frames() -> Vec<Version> {
    (0..80).map(|number| version(number, "image", noise(number as u64, 260))).collect()
}

#[test]
fn erased_entries_and_unused_ordinals_are_read() {
    for sparse in SparseBlock::all() {
        let (block, expected) = (open(&sparse.bytes), sparse.expected());
        assert_eq!((block.codec(), block.chunk_count()), (sparse.codec, sparse.chunks));
        assert_has(&sparse.bytes, &expected);
        let unpacked = block.unpack(0, None).unwrap();
        let used: BTreeSet<u64> = expected.iter().map(|expected| expected.ordinal).collect();
        let last = *used.last().unwrap();
        assert_eq!(block.ordinals(), Some((5, last)));
        for unused in (0..=last + 1).filter(|ordinal| !used.contains(ordinal)) {
            assert_eq!(block.get(unused), Err(Error::NoSuchOrdinal(unused)));
            assert_eq!(unpacked.get(unused), Err(Error::NoSuchOrdinal(unused)));
        }
        let literals: u64 = block.literals_by_stream().unwrap().into_iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(literals, block.sizes()[2].2 as u64);
    }
}

/// The approximate number of positions at which a block is damaged.
const DAMAGED_POSITIONS: usize = 400;

#[test]
fn damaged_blocks_with_erased_entries_return_nothing_wrong() {
    for sparse in SparseBlock::all() {
        let expected = sparse.expected();
        let contents = expected.iter().filter(|expected| !expected.is_erased).count();
        assert_eq!(assert_right_or_error(&sparse.bytes, &expected), contents);
        for at in (0..sparse.bytes.len()).step_by(sparse.bytes.len() / DAMAGED_POSITIONS) {
            let mut damaged = sparse.bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            for damaged in [&damaged, &sparse.bytes[..at]] {
                assert!(Block::open(damaged, Limits::default()).is_err(), "at {at}");
                assert_right_or_error(damaged, &expected);
            }
        }
    }
}
