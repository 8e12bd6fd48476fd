//! Tests that contents are read as they were pushed.
#![allow(clippy::unwrap_used)] // A panic in a test names its line.

use crate::histories::{Version, assert_has, block, blocks, columns, history, numbered, open, push, small};
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
        for bytes in blocks(&versions, first) {
            assert_has(&bytes, &numbered(&versions, first));
        }
    }
}

/// Groups of pages that have much in common with the first, and with one another.
#[test]
fn a_group_is_read_with_the_first_one_alone() {
    let common = lines(1, 20);
    let versions: Vec<_> = (0..30)
        .map(|number: u64| {
            let own = lines(2 + number / 3, 10);
            let content = [&common[..], &own, &lines(100 + number, 1)].concat();
            Version { stream: vec![number as u8 / 3], ..version(&content) }
        })
        .collect();
    let [whole, grouped] = blocks(&versions, 0);
    assert_eq!((open(&whole).groups(), open(&grouped).groups()), (1, 10));
    let literals = |bytes: &[u8]| open(bytes).sizes()[2].2;
    assert_eq!(literals(&whole), literals(&grouped), "the common text is stored once");
    assert_has(&grouped, &numbered(&versions, 0));

    // The sections of all groups but the first and the sixth are damaged.
    let mut damaged = grouped.clone();
    let stored: Vec<usize> = {
        let block = open(&grouped);
        (0..10).map(|group| block.stored_bytes_of_group(group)).collect()
    };
    let mut at = grouped.len() - stored.iter().sum::<usize>();
    for (group, bytes) in stored.into_iter().enumerate() {
        if group != 0 && group != 5 {
            damaged[at..at + bytes].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        at += bytes;
    }
    let block = Block::salvage(&damaged, Limits::default()).unwrap();
    for (ordinal, version) in (0..).zip(&versions) {
        let is_readable = matches!(ordinal / 3, 0 | 5);
        assert_eq!(block.get(ordinal).ok(), is_readable.then(|| version.content.clone()), "{ordinal}");
    }
    for group in 0..10 {
        assert_eq!(block.table(group).is_ok(), matches!(group, 0 | 5), "{group}");
    }
}

/// The revisions of a page with many short texts are in several groups. Those of a page with longer texts stay together:
/// each group would have the whole text once more.
#[test]
fn only_a_page_of_short_texts_is_divided() {
    for (size, groups) in [(400, 5), (2_000, 1)] {
        let settings = Settings { group_entries: 100, level: 1, ..Settings::default() };
        let mut builder = BlockBuilder::new(settings, Vec::new(), 0).unwrap();
        let text = lines(1, 40);
        let versions: Vec<_> = (0..500_u64)
            .map(|number| Version {
                values: Vec::new(),
                ..version(&[&text[..size], &number.to_be_bytes()].concat())
            })
            .collect();
        let mut begun = 0;
        for (number, version) in versions.iter().enumerate() {
            begun += usize::from(builder.may_begin_group(number == 0).unwrap());
            builder.push(&version.stream, &version.content, &[]).unwrap();
        }
        let bytes = builder.finish().unwrap();
        assert_eq!((open(&bytes).groups(), begun), (groups, groups), "{size}");
        assert_has(&bytes, &numbered(&versions, 0));
    }
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
