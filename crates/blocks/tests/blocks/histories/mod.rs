//! Random histories for blocks: random bytes, and texts that are derived from one another, as in real
//! histories.
#![allow(dead_code)] // Each test uses some of these.

use proptest::{collection::vec, prelude::*};
use rashomon_blocks::{
    Block, BlockBuilder, Column, Error, Limits, Settings, Unpacked, Value, Version as Format,
};

/// An entry to put into a block.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) stream: Vec<u8>,
    pub(crate) content: Vec<u8>,
    pub(crate) values: Vec<Value>,
}

/// The columns of all versions.
pub(crate) fn columns() -> Vec<Column> {
    vec![Column::integer("time"), Column::bytes("user")]
}

/// How a content is made from earlier contents.
#[derive(Debug, Clone)]
enum Step {
    New(Vec<u8>),
    /// A repeated earlier content.
    Again(prop::sample::Index),
    /// An earlier content, with other bytes at one position.
    Changed(prop::sample::Index, prop::sample::Index, usize, Vec<u8>),
    /// An earlier content with a piece of it moved.
    Moved(prop::sample::Index, [prop::sample::Index; 3]),
    /// Two earlier contents, one after the other.
    Joined(prop::sample::Index, prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let words =
        vec(prop::sample::select(vec!["wiki ", "page ", "== edit ==\n", "the quick brown fox ", "0"]), 0..60);
    let text = prop_oneof![
        3 => words.prop_map(|words| words.concat().into_bytes()),
        1 => vec(any::<u8>(), 0..200),
        1 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, count)| vec![byte; count]),
    ];
    let text = text.boxed();
    prop_oneof![
        2 => text.clone().prop_map(Step::New),
        1 => any::<prop::sample::Index>().prop_map(Step::Again),
        5 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..80_usize, text)
            .prop_map(|(of, at, remove, insert)| Step::Changed(of, at, remove, insert)),
        1 => (any::<prop::sample::Index>(), any::<[prop::sample::Index; 3]>())
            .prop_map(|(of, cuts)| Step::Moved(of, cuts)),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(a, b)| Step::Joined(a, b)),
    ]
}

/// Makes the content of a step from the versions before it.
fn make_content(step: Step, before: &[Version]) -> Vec<u8> {
    let of = |index: prop::sample::Index| match before {
        [] => Vec::new(),
        _ => index.get(before).content.clone(),
    };
    match step {
        Step::New(content) => content,
        Step::Again(index) => of(index),
        Step::Changed(index, at, remove, insert) => {
            let mut content = of(index);
            let at = at.index(content.len() + 1);
            content.splice(at..(at + remove).min(content.len()), insert);
            content
        }
        Step::Moved(index, cuts) => {
            let content = of(index);
            let mut cuts = cuts.map(|cut| cut.index(content.len() + 1));
            cuts.sort_unstable();
            let [a, b, c] = cuts;
            [&content[..a], &content[b..c], &content[a..b], &content[c..]].concat()
        }
        Step::Joined(one, other) => {
            let mut content = [of(one), of(other)].concat();
            content.truncate(100_000);
            content
        }
    }
}

/// Fewer than `most` versions, of a few streams.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Version>> {
    let value = prop_oneof![
        1 => Just([Value::Absent, Value::Absent]),
        4 => (any::<i64>(), vec(any::<u8>(), 0..20)).prop_map(|(time, user)| [Value::Integer(time), Value::Bytes(user)]),
    ];
    vec((step(), 0..3_u8, value), 0..most).prop_map(|steps| {
        let mut versions = Vec::new();
        for (step, stream, values) in steps {
            let content = make_content(step, &versions);
            versions.push(Version { stream: vec![b's', stream], content, values: values.to_vec() });
        }
        versions
    })
}

/// Settings with small groups, so that a small history has several.
pub(crate) fn small() -> Settings {
    Settings {
        group_entries: 3,
        group_pool: 50,
        first_group_pool: 50,
        group_contents: 0,
        level: 3,
        ..Settings::default()
    }
}

/// A block of these versions. The first one has the ordinal `first`.
pub(crate) fn block(versions: &[Version], first: u64) -> Vec<u8> {
    block_with(small(), versions, first)
}

/// The block of these versions in each version of the format.
pub(crate) fn blocks(versions: &[Version], first: u64) -> [Vec<u8>; 2] {
    [Format::One, Format::Two].map(|version| block_with(Settings { version, ..small() }, versions, first))
}

fn block_with(settings: Settings, versions: &[Version], first: u64) -> Vec<u8> {
    let mut builder = BlockBuilder::new(settings, columns(), first).unwrap();
    push(&mut builder, versions);
    builder.finish().unwrap()
}

/// Pushes versions. A group may end before every third one.
pub(crate) fn push(builder: &mut BlockBuilder, versions: &[Version]) {
    for (number, version) in versions.iter().enumerate() {
        if number % 3 == 0 {
            builder.may_begin_group(true).unwrap();
        }
        builder.push(&version.stream, &version.content, &version.values).unwrap();
    }
}

pub(crate) fn open(bytes: &[u8]) -> Block<'_> {
    Block::open(bytes, Limits::default()).unwrap()
}

/// An entry that a block is expected to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'v> {
    pub(crate) ordinal: u64,
    pub(crate) version: &'v Version,
    /// Whether its content was erased. Its stream and its values remain.
    pub(crate) is_erased: bool,
}

impl<'v> Expected<'v> {
    pub(crate) fn content(&self) -> Option<&'v [u8]> {
        (!self.is_erased).then_some(&self.version.content)
    }
}

/// All groups of a block, unpacked. Each is unpacked with the first one, or without it.
pub(crate) fn unpacked(block: &Block<'_>) -> Result<Vec<Unpacked>, Error> {
    let mut groups: Vec<Unpacked> = Vec::new();
    for group in 0..block.groups() {
        let first = groups.first().filter(|_| group % 2 == 1);
        groups.push(block.unpack(group, first)?);
    }
    Ok(groups)
}

/// The content of an entry of these groups.
pub(crate) fn get(block: &Block<'_>, unpacked: &[Unpacked], ordinal: u64) -> Result<Vec<u8>, Error> {
    let group = block.opened().group_of(ordinal);
    let content = group.map_or(Err(Error::NoSuchOrdinal(ordinal)), |group| unpacked[group].get(ordinal));
    for (other, unpacked) in unpacked.iter().enumerate().filter(|(other, _)| Some(*other) != group) {
        assert_eq!(unpacked.get(ordinal), Err(Error::NoSuchOrdinal(ordinal)), "group {other}");
    }
    content
}

/// Checks that a block has exactly these entries. Lists the entries, and reads each content in three ways.
#[track_caller]
pub(crate) fn assert_has(bytes: &[u8], expected: &[Expected<'_>]) {
    let block = open(bytes);
    block.verify().unwrap();
    assert_eq!(block.len(), expected.len());
    let (streams, entries) = (block.streams().unwrap(), block.entries().unwrap());
    let unpacked = unpacked(&block).unwrap();
    assert_eq!(block.iter().count(), expected.len());
    for ((expected, entry), content) in expected.iter().zip(&entries).zip(block.iter()) {
        let (ordinal, content) = (expected.ordinal, content.unwrap());
        assert_eq!((entry.ordinal, content.ordinal), (ordinal, ordinal));
        assert_eq!(entry.erased, expected.is_erased);
        assert_eq!(content.bytes.as_deref(), expected.content());
        let read = expected.content().map(<[u8]>::to_vec).ok_or(Error::Erased(ordinal));
        assert_eq!(block.get(ordinal), read);
        assert_eq!(get(&block, &unpacked, ordinal), read);
        assert_eq!(entry.values, expected.version.values);
        assert_eq!(streams[entry.stream], expected.version.stream);
    }
    let mut named = Vec::new();
    for group in 0..block.groups() {
        block.streams_of_group(group, |name| named.push(name.to_vec())).unwrap();
    }
    assert_eq!(named, streams);
}

/// The versions with their ordinals, which begin at `first`.
pub(crate) fn numbered(versions: &[Version], first: u64) -> Vec<Expected<'_>> {
    let numbered = (first..).zip(versions);
    numbered.map(|(ordinal, version)| Expected { ordinal, version, is_erased: false }).collect()
}
