//! Tests that contents are read as they were pushed, from new blocks and from blocks with appended entries.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

use crate::histories::{Version, assert_has, block, columns, history, numbered, open, push, small};
use proptest::prelude::*;
use rashomon_blocks::{Block, BlockBuilder, Codec, Error, Limits, Settings, Value};

/// A text of `count` lines that have nothing in common.
fn lines(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let line =
        |rng: &mut fastrand::Rng| -> String { (0..60).map(|_| rng.lowercase()).chain(['\n']).collect() };
    (0..count).map(|_| line(&mut rng)).collect::<String>().into_bytes()
}

fn version(content: &[u8]) -> Version {
    Version { stream: b"s".to_vec(), content: content.to_vec(), values: vec![Value::Absent; 2] }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_read_unchanged(versions in history(40), first in 0..u64::from(u32::MAX)) {
        assert_has(&block(&versions, first), &numbered(&versions, first));
    }

    #[test]
    fn appending_adds_entries_and_changes_no_other(
        versions in history(30),
        cuts in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut cuts = cuts.map(|cut| cut.index(versions.len() + 1));
        cuts.sort_unstable();
        let mut bytes = block(&versions[..cuts[0]], 7);
        for part in [&versions[cuts[0]..cuts[1]], &versions[cuts[1]..]] {
            let mut builder = BlockBuilder::resume(small(), &open(&bytes)).unwrap();
            push(&mut builder, part);
            bytes = builder.finish().unwrap();
        }
        // A block without entries has no ordinals.
        let first = if cuts[0] == 0 { 0 } else { 7 };
        assert_has(&bytes, &numbered(&versions, first));
    }
}

#[test]
fn appending_leaves_existing_chunks_unchanged() {
    let text = lines(1, 40);
    let first = block(&[version(&text)], 0);
    let mut builder = BlockBuilder::resume(small(), &open(&first)).unwrap();
    push(&mut builder, &[version(&text[..text.len() - 5])]);
    let second = builder.finish().unwrap();
    assert_eq!(open(&second).chunk_count(), 2);
    let tail = &first[first.len() - 500..];
    assert!(second.windows(tail.len()).any(|part| part == tail));
    assert!(second.len() < first.len() + 200, "appended text is derived from existing text");
}

#[test]
fn a_revert_and_the_edit_after_it_take_few_bytes() {
    let (one, other) = (lines(1, 200), lines(2, 200));
    let mut versions = vec![version(&one)];
    versions.extend((0..20).map(|edit| version(&[&other[..], &[b'a' + edit]].concat())));
    let before = block(&versions, 0).len();
    versions.push(version(&one));
    versions.push(version(&[&one[..], b"an edit"].concat()));
    let after = block(&versions, 0).len();
    assert!(after < before + 150, "{before} and {after} bytes");
}

#[test]
fn the_same_text_in_another_stream_takes_few_bytes() {
    let text = lines(1, 200);
    let alone = block(&[version(&text)], 0).len();
    let twice = block(&[version(&text), Version { stream: b"t".to_vec(), ..version(&text) }], 0).len();
    assert!(twice < alone + 60, "{alone} and {twice} bytes");
}

#[test]
fn incompressible_contents_are_stored_as_frames() {
    let mut rng = fastrand::Rng::with_seed(1);
    let noise: Vec<_> =
        (0..5).map(|_| version(&(0..9_000).map(|_| rng.u8(..)).collect::<Vec<_>>())).collect();
    let bytes = block(&noise, 0);
    assert_eq!(open(&bytes).codec(), Codec::Frames);
    assert_has(&bytes, &numbered(&noise, 0));
    let text = [version(&lines(1, 500))];
    assert_eq!(open(&block(&text, 0)).codec(), Codec::PoolAndScripts);

    // Contents that are appended to a block of frames are stored as frames.
    let mut builder = BlockBuilder::resume(small(), &open(&bytes)).unwrap();
    push(&mut builder, &text);
    let more = builder.finish().unwrap();
    assert_eq!(open(&more).codec(), Codec::Frames);
    let all: Vec<_> = noise.iter().chain(&text).cloned().collect();
    assert_has(&more, &numbered(&all, 0));
}

#[test]
fn a_builder_is_empty_after_each_block() {
    let mut builder = BlockBuilder::new(small(), columns(), 0).unwrap();
    let versions = [lines(1, 30), lines(2, 30), lines(1, 31)].map(|text| version(&text));
    push(&mut builder, &versions[..2]);
    let first = builder.finish().unwrap();
    assert!(builder.is_empty());
    push(&mut builder, &versions[2..]);
    assert_has(&first, &numbered(&versions[..2], 0));
    assert_has(&builder.finish().unwrap(), &numbered(&versions[2..], 2));
}

/// A text that is not pushed again is not in the next block, not even among the literals. So a block that is
/// rebuilt without an erased content does not contain the text of the erased content.
#[test]
fn a_block_has_no_text_of_the_previous_block() {
    let (common, secret) = (lines(1, 20), lines(2, 3));
    let versions =
        [&common[..], &[&common[..500], &secret, &common[500..]].concat(), &common[..900]].map(version);
    let stay = [versions[0].clone(), versions[2].clone()];
    let mut builder = BlockBuilder::new(small(), columns(), 0).unwrap();
    push(&mut builder, &versions);
    let pool = |bytes: &[u8]| open(bytes).sizes()[2].clone();
    assert_eq!(pool(&builder.finish().unwrap()).2, common.len() + secret.len());
    push(&mut builder, &stay);
    let bytes = builder.finish().unwrap();
    let (name, _, literals) = pool(&bytes);
    assert_eq!((name.as_str(), literals), ("texts", common.len()));
    assert_has(&bytes, &numbered(&stay, 3));
}

#[test]
fn block_is_full_at_a_size_of_its_pool_or_a_number_of_entries() {
    let mut builder = BlockBuilder::new(Settings { level: 1, ..Settings::default() }, Vec::new(), 0).unwrap();
    let fill = |builder: &mut BlockBuilder, contents: &mut dyn Iterator<Item = Vec<u8>>| {
        while !builder.should_seal() {
            builder.push(b"s", &contents.next().unwrap(), &[]).unwrap();
        }
        let count = builder.len();
        let block = builder.finish().unwrap();
        assert!(open(&block).is_full(&Settings::default()).unwrap(), "{count}");
        count
    };
    let noise = |size: usize| {
        (1..).map(move |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            (0..size).map(|_| rng.u8(..)).collect()
        })
    };
    assert_eq!(fill(&mut builder, &mut noise(64 << 10)), 4);
    assert_eq!(fill(&mut builder, &mut noise(200 << 10)), 3);
    let tiny = (0_u64..).map(|number| (number % 3).to_string().into_bytes());
    assert_eq!(fill(&mut builder, &mut { tiny }), 4096);
    for content in noise(64 << 10).take(3) {
        builder.push(b"s", &content, &[]).unwrap();
    }
    let block = builder.finish().unwrap();
    assert!(!open(&block).is_full(&Settings::default()).unwrap());
}

/// A large page that is blanked now and then stays in one block. After a single large content, a block of
/// small contents is not larger than usual.
#[test]
fn block_size_depends_on_the_largest_of_the_last_contents() {
    let settings = || Settings { level: 1, ..Settings::default() };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut noise = |size: usize| -> Vec<u8> { (0..size).map(|_| rng.u8(..)).collect() };
    let mut page = noise(300 << 10);
    let mut builder = BlockBuilder::new(settings(), Vec::new(), 0).unwrap();
    for edit in 0..20_u8 {
        if edit == 10 {
            let block = builder.finish().unwrap();
            assert!(!open(&block).is_full(&settings()).unwrap());
            builder = BlockBuilder::resume(settings(), &open(&block)).unwrap();
            builder.push(b"s", b"", &[]).unwrap();
        }
        page.push(edit);
        for content in [&page[..], b"", b"blanked"] {
            builder.push(b"s", content, &[]).unwrap();
            assert!(!builder.should_seal(), "{edit}");
        }
    }
    let mut builder = BlockBuilder::new(settings(), Vec::new(), 0).unwrap();
    builder.push(b"s", &noise(1 << 20), &[]).unwrap();
    while !builder.should_seal() {
        builder.push(b"s", &noise(10 << 10), &[]).unwrap();
    }
    assert_eq!(builder.len(), 9);
}

#[test]
fn invalid_entries_are_refused_and_change_nothing() {
    let mut builder = BlockBuilder::new(small(), columns(), 5).unwrap();
    let good = version(b"text");
    assert!(matches!(builder.push(b"s", b"text", &[]), Err(Error::Columns(_))));
    let long = vec![0; rashomon_blocks::MAX_NAME + 1];
    assert!(matches!(builder.push(&long, b"text", &good.values), Err(Error::AboveMaximum { .. })));
    assert!(builder.is_empty());
    push(&mut builder, std::slice::from_ref(&good));
    let bytes = builder.finish().unwrap();
    assert_has(&bytes, &numbered(&[good], 5));
    assert!(matches!(open(&bytes).get(4), Err(Error::NoSuchOrdinal(4))));
    assert!(matches!(open(&bytes).get(6), Err(Error::NoSuchOrdinal(6))));
    assert!(matches!(open(&bytes).column("nothing"), Err(Error::NoSuchColumn(_))));
    let mut builder = BlockBuilder::new(small(), Vec::new(), u64::MAX - 1).unwrap();
    assert_eq!(builder.push(b"s", b"text", &[]), Ok(u64::MAX - 1));
    assert_eq!(builder.push(b"s", b"text", &[]), Err(Error::OutOfOrdinals));
    assert_eq!(builder.len(), 1);
}

#[test]
fn a_block_without_entries_is_valid() {
    let bytes = block(&[], 9);
    assert_has(&bytes, &[]);
    assert_eq!(Block::open(&bytes, Limits::default()).unwrap().ordinals(), None);
}
