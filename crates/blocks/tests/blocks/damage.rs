//! Tests of damaged blocks: a read returns the right bytes or an error. A read never returns other bytes,
//! panics, or uses more memory than the limits allow.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

use crate::histories::{Expected, Version, block, blocks, get, history, numbered, open, small, unpacked};
use proptest::prelude::*;
use rashomon_blocks::{
    Block, BlockBuilder, Column, Damage, Error, Limits, Settings, Value, Version as Format,
};

/// Reads all readable contents and entries, and checks that they are correct. Returns the number of contents
/// that were read.
pub(crate) fn assert_right_or_error(bytes: &[u8], expected: &[Expected<'_>]) -> usize {
    let Ok(block) = Block::salvage(bytes, Limits::default()) else { return 0 };
    let content = |ordinal: u64| {
        let found = expected.iter().find(|expected| expected.ordinal == ordinal);
        found.and_then(Expected::content)
    };
    let mut right = 0;
    for Expected { ordinal, .. } in expected {
        if let Ok(bytes) = block.get(*ordinal) {
            assert_eq!(Some(bytes.as_slice()), content(*ordinal));
            right += 1;
        }
    }
    let read: Vec<_> = block.iter().flatten().collect();
    let contents = read.iter().filter(|read| read.bytes.is_some()).count();
    assert_eq!(contents, right, "iteration and single reads find equally many contents");
    for read in read {
        assert_eq!(read.bytes.as_deref(), content(read.ordinal));
    }
    if let Ok(unpacked) = unpacked(&block) {
        for Expected { ordinal, .. } in expected {
            if let Ok(bytes) = get(&block, &unpacked, *ordinal) {
                assert_eq!(Some(bytes.as_slice()), content(*ordinal));
            }
        }
    }
    if let Ok(entries) = block.entries() {
        assert_eq!(entries.len(), expected.len());
        for (entry, expected) in entries.iter().zip(expected) {
            assert_eq!((entry.ordinal, entry.erased), (expected.ordinal, expected.is_erased));
            assert_eq!(entry.values, expected.version.values);
        }
    }
    right
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn block_with_flipped_bits_is_damaged_and_returns_nothing_wrong(
        versions in history(20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
    ) {
        for before in blocks(&versions, 0) {
            let mut bytes = before.clone();
            for (at, bit) in &flips {
                *at.get_mut(&mut bytes[..]) ^= 1 << bit;
            }
            prop_assume!(bytes != before);
            prop_assert!(Block::open(&bytes, Limits::default()).is_err());
            assert_right_or_error(&bytes, &numbered(&versions, 0));
        }
    }

    #[test]
    fn block_of_another_length_is_damaged_and_returns_nothing_wrong(
        versions in history(20),
        at in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let bytes = block(&versions, 0);
        let short = &bytes[..at.index(bytes.len())];
        prop_assert!(Block::open(short, Limits::default()).is_err());
        assert_right_or_error(short, &numbered(&versions, 0));
        let long = [bytes, more].concat();
        prop_assert!(Block::open(&long, Limits::default()).is_err());
        assert_right_or_error(&long, &numbered(&versions, 0));
    }

    #[test]
    fn any_bytes_are_a_block_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), version in 1..3_u8, codec in 1..3_u8) {
        assert_right_or_error(&bytes, &[]);
        // The same bytes after a valid magic, version and codec, and a hash of zeros.
        let start = [b"RBLK", &[version, codec][..], &[0; 32]].concat();
        assert_right_or_error(&[start, bytes].concat(), &[]);
    }
}

/// Three chunks, each with three entries of one text. The three texts have nothing in common.
fn three_chunks() -> (Vec<u8>, Vec<Version>) {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut versions = Vec::new();
    for stream in 0..3 {
        let content: Vec<u8> = (0..2_000).map(|_| rng.alphanumeric() as u8).collect();
        for _ in 0..3 {
            let values = vec![Value::Integer(stream), Value::Absent];
            versions.push(Version { stream: vec![stream as u8], content: content.clone(), values });
        }
    }
    (block(&versions, 0), versions)
}

#[test]
fn contents_that_do_not_depend_on_damage_are_read() {
    let (bytes, versions) = three_chunks();
    assert_eq!(open(&bytes).chunk_count(), 3);
    let expected = numbered(&versions, 0);
    // The last bytes belong to the last chunk.
    let mut damaged = bytes.clone();
    let end = damaged.len() - 800;
    damaged[end] ^= 1;
    assert!(matches!(Block::open(&damaged, Limits::default()), Err(Error::Damaged(Damage::Hash))));
    assert_eq!(assert_right_or_error(&damaged, &expected), 6);
    // The other groups use no damaged literals of the first one.
    for at in [bytes.len() / 2, bytes.len() / 4] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(assert_right_or_error(&damaged, &expected), 6, "{at}");
    }
    // In a truncated block, the contents before the cut are readable.
    assert_eq!(assert_right_or_error(&bytes[..bytes.len() - 800], &expected), 6);
    let block = Block::salvage(&damaged, Limits::default()).unwrap();
    assert!(matches!(block.verify(), Err(Error::Damaged(Damage::Section { chunk: 2, section: "texts" }))));
    assert!(matches!(block.get(8), Err(Error::Damaged(_))));
    assert_eq!(block.entries().unwrap().len(), 9, "columns are stored apart");
}

#[test]
fn literals_before_the_damage_are_read() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut noise = |size: usize| -> Vec<u8> { (0..size).map(|_| rng.lowercase() as u8).collect() };
    let version = |content| Version { stream: b"s".to_vec(), content, values: Vec::new() };
    let versions: Vec<_> = (0..4).map(|_| version(noise(100_000))).collect();
    for version in [Format::One, Format::Two] {
        assert_start_is_read(Settings { version, ..Settings::default() }, &versions);
    }
}

fn assert_start_is_read(settings: Settings, versions: &[Version]) {
    let mut builder = BlockBuilder::new(settings, Vec::new(), 0).unwrap();
    for version in versions {
        builder.push(&version.stream, &version.content, &[]).unwrap();
    }
    let bytes = builder.finish().unwrap();
    assert_eq!(open(&bytes).chunk_count(), 1);
    let (expected, length) = (numbered(versions, 0), bytes.len());
    let readable = |bytes: &[u8]| assert_right_or_error(bytes, &expected);
    let damaged_at = |at: usize| {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Block::salvage(&damaged, Limits::default()).unwrap().verify().is_err());
        readable(&damaged)
    };
    // zstd unpacks 128 KiB at once, so up to 128 KiB before the damage may be lost too.
    assert!((2..4).contains(&damaged_at(length * 9 / 10)));
    assert!(damaged_at(length / 10) < 4);
    assert_eq!(readable(&bytes[..length * 9 / 10]), 0, "the scripts are behind the cut");
}

#[test]
fn flip_of_any_bit_of_a_small_block_is_detected() {
    let versions =
        [Version { stream: b"s".to_vec(), content: b"content".to_vec(), values: vec![Value::Absent; 2] }];
    let bytes = block(&versions, 0);
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Block::open(&damaged, Limits::default()).is_err(), "bit {bit}");
        assert_right_or_error(&damaged, &numbered(&versions, 0));
    }
}

#[test]
fn unreadable_blocks_are_refused_with_the_reason() {
    let (bytes, _) = three_chunks();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Block::open(&bytes, Limits::default()).unwrap_err()
    };
    assert_eq!(with(0, b'X'), Error::NotABlock);
    let newer = with(4, 3);
    assert_eq!(newer, Error::NewerVersion { found: 3, known: 2 });
    assert!(newer.to_string().contains("read it with the version of Rashomon that wrote it, or a later one"));
    assert_eq!(with(5, 9), Error::UnknownCodec(9));
    assert_eq!(Block::open(b"", Limits::default()).unwrap_err(), Error::NotABlock);
}

#[test]
fn declared_sizes_are_compared_with_the_limits() {
    let mut builder = BlockBuilder::new(small(), vec![Column::bytes("c")], 0).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for size in 0..10 {
        let content: Vec<u8> = (0..1 << 12).map(|_| rng.alphanumeric() as u8).collect();
        builder.may_begin_group(true).unwrap();
        builder.push(b"s", &content, &[Value::Bytes(vec![size; 3_000])]).unwrap();
    }
    let bytes = builder.finish().unwrap();
    let default = Limits::default();
    let open = |limits: Limits| Block::open(&bytes, limits).map(|block| block.verify());
    assert_eq!(open(default), Ok(Ok(())));
    for limits in [
        Limits { block: bytes.len() - 1, ..default },
        Limits { entries: 9, ..default },
        Limits { chunks: 2, ..default },
        Limits { texts: 30_000, ..default },
        Limits { scripts: 25_000, ..default },
    ] {
        assert!(matches!(open(limits), Err(Error::TooLarge { .. })), "{limits:?}");
    }
    assert!(matches!(open(Limits { content: (1 << 12) - 1, ..default }), Ok(Err(Error::Damaged(_)))));
}

#[test]
fn block_of_three_contents_of_64_mib_is_within_the_limits() {
    let settings = Settings { level: 1, ..Settings::default() };
    let mut builder = BlockBuilder::new(settings, Vec::new(), 0).unwrap();
    for last in [b'x', b'y', b'z'] {
        let mut content = vec![b'a'; 64 << 20];
        content.push(last);
        builder.push(b"s", &content, &[]).unwrap();
    }
    let bytes = builder.finish().unwrap();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(open(&bytes).get(2).unwrap().last(), Some(&b'z'));
}
