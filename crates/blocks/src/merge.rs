//! Compaction: makes fewer and fuller blocks of several.

use crate::{block::Block, builder::BlockBuilder, error::Error, filling::Settings};

/// Packs the entries of all blocks into as few blocks and chunks as possible. Each entry keeps its ordinal,
/// and erased entries stay erased. The blocks have to be in the order of their ordinals.
///
/// # Errors
///
/// [`Error::Columns`] if the blocks do not have the same columns. [`Error::Ordinals`] if their ordinals
/// overlap or do not rise. [`Error::Damaged`] if a block is damaged.
pub fn merge(settings: Settings, blocks: &[Block<'_>]) -> Result<Vec<Vec<u8>>, Error> {
    let Some(first) = blocks.first() else { return Ok(Vec::new()) };
    let mut builder = BlockBuilder::new(settings, first.columns().to_vec(), 0)?;
    let mut merged = Vec::new();
    for block in blocks {
        if block.columns() != first.columns() {
            return Err(Error::Columns("the blocks have different columns"));
        }
        let streams = block.streams()?;
        for (entry, content) in block.entries()?.iter().zip(block.iter()) {
            if builder.should_seal() {
                merged.push(builder.finish()?);
            }
            builder.push_at(
                entry.ordinal,
                &streams[entry.stream],
                content?.bytes.as_deref(),
                &entry.values,
            )?;
        }
    }
    if !builder.is_empty() {
        merged.push(builder.finish()?);
    }
    Ok(merged)
}
