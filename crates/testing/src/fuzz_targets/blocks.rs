//! Compression blocks.

use rashomon_blocks::{Block, BlockBuilder, Error, Limits, Settings, Unpacked, Version};

const LIMITS: Limits = Limits {
    block: 1 << 20,
    entries: 1 << 10,
    chunks: 64,
    texts: 1 << 20,
    scripts: 1 << 16,
    content: 1 << 18,
};

/// Opening any bytes returns a block or an error, without a panic and within the memory limits. If all contents can be
/// written to a new block, this block passes its verification. The fuzzer's
/// build does not compare checksums, so that inputs reach the code after the checks.
pub fn any_block(bytes: &[u8]) {
    let Ok(block) = Block::salvage(bytes, LIMITS) else { return };
    let groups = unpacked_groups(&block);
    let one_by_one = block.iter().filter_map(Result::ok);
    for content in one_by_one {
        assert!(content.bytes.as_ref().is_none_or(|bytes| bytes.len() <= LIMITS.content));
        // All ways of reading a content return the same bytes.
        assert_eq!(block.get(content.ordinal).ok(), content.bytes);
        let group = block.opened().group_of(content.ordinal).expect("a group has the entry");
        for unpacked in groups[group].iter().flatten() {
            assert_eq!(unpacked.get(content.ordinal).ok(), content.bytes);
        }
    }
    if let Some((_, last)) = block.ordinals() {
        let _ = block.get(last);
    }
    let _ = block.entries();
    for group in 0..block.groups() {
        let _ = block.table(group).map(|table| table.memory());
        let _ = block.streams_of_group(group, |_| ());
    }
    let settings = Settings { level: 1, ..Settings::default() };
    let _ = block.is_full(&settings);
    if let Ok(rebuilt) = rebuild(settings, &block) {
        let rebuilt = Block::open(&rebuilt, Limits::default()).expect("the block was just written");
        assert_eq!(rebuilt.verify(), Ok(()));
    }
}

/// Each group, unpacked alone and with what was unpacked of the first group.
fn unpacked_groups(block: &Block<'_>) -> Vec<[Result<Unpacked, Error>; 2]> {
    let mut groups: Vec<[Result<Unpacked, Error>; 2]> = Vec::with_capacity(block.groups());
    for group in 0..block.groups() {
        let first = groups.first().and_then(|[first, _]| first.as_ref().ok());
        groups.push([block.unpack(group, None), block.unpack(group, first)]);
    }
    groups
}

/// Writes all contents into a new block.
fn rebuild(settings: Settings, block: &Block<'_>) -> Result<Vec<u8>, Error> {
    let (streams, entries) = (block.streams()?, block.entries()?);
    let mut builder = BlockBuilder::new(settings, block.columns().to_vec(), 0)?;
    for (entry, content) in entries.iter().zip(block.iter()) {
        if let Some(content) = content?.bytes {
            builder.push(&streams[entry.stream], &content, &entry.values)?;
        }
    }
    builder.finish()
}

const SETTINGS: Settings = Settings {
    pool: 4 << 10,
    entries: 40,
    group_pool: 64,
    first_group_pool: 64,
    group_contents: 0,
    group_entries: 2,
    level: 1,
    version: Version::Two,
};

/// Derives contents from the input. Each step of the input makes a new content, or changes a copy of an earlier one.
fn contents(mut input: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut contents: Vec<(u8, Vec<u8>)> = Vec::new();
    while let [step, of, at, len, rest @ ..] = input {
        let literal;
        (literal, input) = rest.split_at(rest.len().min(usize::from(len & 31)));
        let before = match contents.len() {
            0 => Vec::new(),
            count => contents[usize::from(*of) % count].1.clone(),
        };
        let at = usize::from(*at) * before.len() / 256;
        let (start, end) = before.split_at(at);
        let content = match step & 3 {
            0 => literal.repeat(1 + usize::from(len >> 5) * 8),
            1 => [start, literal, end].concat(),
            2 => [end, start, literal].concat(),
            _ => [start, literal, end.get(usize::from(len >> 3)..).unwrap_or_default()].concat(),
        };
        contents.push((step >> 6, content));
        if contents.len() > 200 || contents.iter().map(|(_, content)| content.len()).sum::<usize>() > 1 << 18
        {
            break;
        }
    }
    contents
}

fn assert_has(blocks: &[Vec<u8>], expected: &[(u8, Vec<u8>)]) {
    let mut expected = (0..).zip(expected);
    for block in blocks {
        let block = Block::open(block, Limits::default()).expect("the block was just written");
        let groups = unpacked_groups(&block);
        for content in block.iter() {
            let content = content.expect("the block is not damaged");
            let (ordinal, (_, bytes)) =
                expected.next().expect("a block has only the contents that were added");
            assert_eq!((content.ordinal, content.bytes.as_ref()), (ordinal, Some(bytes)));
            assert_eq!(block.get(ordinal).as_ref(), Ok(bytes));
            let group = block.opened().group_of(ordinal).expect("a group has the entry");
            for unpacked in &groups[group] {
                let unpacked = unpacked.as_ref().expect("the block is not damaged");
                assert_eq!(unpacked.get(ordinal).as_ref(), Ok(bytes));
            }
        }
    }
    assert!(expected.next().is_none(), "a block has all contents that were added");
}

/// Puts contents into blocks. Groups may end before some contents.
fn blocks(settings: Settings, contents: &[(u8, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut builder = BlockBuilder::new(settings, Vec::new(), 0).expect("the settings are good");
    let mut blocks = Vec::new();
    for (number, (stream, content)) in contents.iter().enumerate() {
        if builder.should_seal() {
            blocks.push(builder.finish().expect("there is memory"));
        } else if number % 3 == 2 {
            builder.may_begin_group(number % 2 == 0).expect("there is memory");
        }
        builder.push(&[*stream], content, &[]).expect("the content is not too large");
    }
    blocks.push(builder.finish().expect("there is memory"));
    blocks
}

/// Every sequence of contents can be read back from small and large blocks of each version.
pub fn block_round_trip(input: &[u8]) {
    let contents = contents(input);
    let large = Settings { pool: 1 << 20, entries: 4096, ..SETTINGS };
    for settings in [SETTINGS, large, Settings { version: Version::One, ..large }] {
        assert_has(&blocks(settings, &contents), &contents);
    }
}
