//! Any bytes are a block or an error: no panic, and no more memory than the limits allow. Under the fuzzer checksums
//! are not compared, so that it gets behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rashomon_blocks::{Block, Limits, Settings, erase, merge};

const LIMITS: Limits =
    Limits { block: 1 << 20, entries: 1 << 10, chunks: 64, texts: 1 << 20, scripts: 1 << 16, content: 1 << 18 };

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = Block::salvage(bytes, LIMITS) else { return };
    let settings = Settings { level: 1, ..Settings::default() };
    let one_by_one = block.iter().filter_map(|content| content.ok());
    for content in one_by_one {
        assert!(content.bytes.as_ref().is_none_or(|bytes| bytes.len() <= LIMITS.content));
        // The same comes out whichever way it is read.
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
});
