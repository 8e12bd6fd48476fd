//! Compression blocks.

use rashomon_blocks::{Block, BlockBuilder, Limits, Settings, erase, merge};

const LIMITS: Limits = Limits {
    block: 1 << 20,
    entries: 1 << 10,
    chunks: 64,
    texts: 1 << 20,
    scripts: 1 << 16,
    content: 1 << 18,
};

/// Opening any bytes gives a block or an error, without a panic and within the limits of memory. The fuzzer's
/// build does not compare checksums, so that inputs get past them.
pub fn any_block(bytes: &[u8]) {
    let Ok(block) = Block::salvage(bytes, LIMITS) else { return };
    let settings = Settings { level: 1, ..Settings::default() };
    let one_by_one = block.iter().filter_map(Result::ok);
    for content in one_by_one {
        assert!(content.bytes.as_ref().is_none_or(|bytes| bytes.len() <= LIMITS.content));
        // Both ways of reading a content give the same bytes.
        assert_eq!(block.get(content.ordinal).ok(), content.bytes);
    }
    if let Some((first, last)) = block.ordinals() {
        let _ = block.get(last);
        if let Ok(erased) = erase(settings, &block, &[(first, None)].into()) {
            let erased = Block::open(&erased.block, Limits::default()).expect("it was just written");
            assert_eq!(erased.verify(), Ok(()));
        }
    }
    let _ = block.entries();
    let _ = block.unpack().map(|unpacked| unpacked.memory());
    for merged in merge(settings, &[block]).unwrap_or_default() {
        let merged = Block::open(&merged, Limits::default()).expect("it was just written");
        assert_eq!(merged.verify(), Ok(()));
    }
}

const SETTINGS: Settings =
    Settings { pool: 4 << 10, entries: 40, chunk_pool: 64, chunk_entries: 2, level: 1 };

/// Makes contents from the input. Each step of the input names an earlier content and how to change it.
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

fn assert_has(blocks: &[Vec<u8>], expected: &[(u8, Vec<u8>)], erased: Option<u64>) {
    let mut expected = (0..).zip(expected);
    for block in blocks {
        let block = Block::open(block, Limits::default()).expect("it was just written");
        for content in block.iter() {
            let content = content.expect("it is not damaged");
            let (ordinal, (_, bytes)) =
                expected.next().expect("a block has only the contents that were added");
            let bytes = (erased != Some(ordinal)).then_some(bytes);
            assert_eq!((content.ordinal, content.bytes.as_ref()), (ordinal, bytes));
            assert_eq!(block.get(ordinal).ok().as_ref(), bytes);
        }
    }
    assert!(expected.next().is_none(), "a block has all contents that were added");
}

/// Every sequence of contents can be read back, also from blocks that were appended to, compacted, or partly
/// erased.
pub fn block_round_trip(input: &[u8]) {
    let contents = contents(input);
    let mut builder = BlockBuilder::new(SETTINGS, Vec::new(), 0).expect("the settings are good");
    let mut blocks = Vec::new();
    for (number, (stream, content)) in contents.iter().enumerate() {
        if builder.should_seal() {
            blocks.push(builder.finish().expect("there is memory"));
        } else if number % 7 == 6 {
            let block = builder.finish().expect("there is memory");
            let block = Block::open(&block, Limits::default()).expect("it was just written");
            builder = BlockBuilder::resume(SETTINGS, &block).expect("it is not damaged");
        }
        builder.push(&[*stream], content, &[]).expect("it is not too large");
    }
    blocks.push(builder.finish().expect("there is memory"));
    assert_has(&blocks, &contents, None);

    let opened: Vec<_> = blocks
        .iter()
        .map(|block| Block::open(block, Limits::default()).expect("it was just written"))
        .collect();
    let merged =
        merge(Settings { pool: 1 << 20, entries: 4096, ..SETTINGS }, &opened).expect("they are apart");
    assert_has(&merged, &contents, None);
    if let [merged] = &merged[..]
        && let Some(gone) =
            input.first().map(|first| u64::from(*first)).filter(|gone| *gone < contents.len() as u64)
    {
        let block = Block::open(merged, Limits::default()).expect("it was just written");
        let erased = erase(SETTINGS, &block, &[(gone, None)].into()).expect("it is there");
        assert_has(&[erased.block], &contents, Some(gone));
    }
}
