//! Decides when a block is full.

use crate::{
    block::Block,
    columns::Value,
    directory::{Codec, SCRIPTS, Version},
    error::Error,
};

/// The number of bytes of scripts, and of byte strings in columns, at which a block is full. Few blocks reach
/// this number.
const MAX_SCRIPT_AND_VALUE_BYTES: usize = 1 << 20;
/// The number of bytes of literals at which any block is full, however large its contents are.
const MAX_POOL: usize = 64 << 20;
/// The pool of a block may grow to [`Settings::pool`], or to this many times the size of the largest recent
/// content if that is more.
const POOL_PER_LARGEST_CONTENT: usize = 3;
/// A page whose recent contents have at most this many bytes may be in several groups.
const MAX_SPLIT_CONTENT: usize = 1 << 10;
/// The number of recent contents whose sizes count. More than one, since a blanked page or a small property
/// may come among large contents. Not all contents, since a single content may be large by mistake.
const RECENT_CONTENTS: usize = 8;

/// The sizes of blocks and chunks, and the level of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The number of bytes of new text at which a block is full. If its contents are large, the number is
    /// higher.
    pub pool: usize,
    /// The number of entries at which a block is full.
    pub entries: usize,
    /// The number of bytes of new text at which a group of pages is full. Smaller groups make a block larger, and reads
    /// of a page faster.
    pub group_pool: usize,
    /// The same for the first group, whose text the other groups share.
    pub first_group_pool: usize,
    /// A group is not full before its new text has this many times the size of the largest of the last contents. Long
    /// pages share much text with one another, and a reader of one needs much text anyway.
    pub group_contents: usize,
    /// The number of entries at which a group is full.
    pub group_entries: usize,
    /// The compression level of zstd. With a level above 17, building a block takes about 1.5 times as long,
    /// and the block is less than 1 % smaller.
    pub level: i32,
    /// The version of the format. Groups are made only in version 2.
    pub version: Version,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: 256 << 10,
            entries: 4096,
            group_pool: 16 << 10,
            first_group_pool: 32 << 10,
            group_contents: 64,
            group_entries: 1024,
            level: 17,
            version: Version::Two,
        }
    }
}

impl Settings {
    /// Whether a block is full. `pool` is the number of bytes of literals, and `largest` the size of the
    /// largest recent content.
    pub(crate) fn is_full(
        &self,
        entries: usize,
        script_and_value_bytes: usize,
        pool: usize,
        largest: usize,
    ) -> bool {
        let full_pool = self.pool.max((POOL_PER_LARGEST_CONTENT * largest).min(MAX_POOL));
        entries >= self.entries || script_and_value_bytes >= MAX_SCRIPT_AND_VALUE_BYTES || pool >= full_pool
    }
}

/// The size of the group that is being built.
#[derive(Debug)]
pub(crate) struct GroupSize {
    /// Whether the group is the first of its block.
    pub(crate) is_first: bool,
    pub(crate) entries: usize,
    /// The number of bytes of literals.
    pub(crate) literals: usize,
    /// The size of the largest recent content.
    pub(crate) largest: usize,
}

impl Settings {
    /// Whether a group ends here: before a page, or before a further revision of a page.
    pub(crate) fn ends_group(&self, size: &GroupSize, is_page: bool) -> bool {
        let pool = if size.is_first { self.first_group_pool } else { self.group_pool };
        if is_page {
            let pool = pool.max(self.group_contents * size.largest);
            return size.literals >= pool || size.entries >= self.group_entries;
        }
        // The first text after it is stored without an earlier revision.
        size.entries >= self.group_entries && size.largest <= MAX_SPLIT_CONTENT
    }
}

/// The sizes of the recent contents.
#[derive(Debug, Default)]
pub(crate) struct LastSizes {
    sizes: [usize; RECENT_CONTENTS],
    next: usize,
}

impl LastSizes {
    pub(crate) fn push(&mut self, size: usize) {
        self.sizes[self.next] = size;
        self.next = (self.next + 1) % RECENT_CONTENTS;
    }

    pub(crate) fn largest(&self) -> usize {
        self.sizes.into_iter().max().unwrap_or(0)
    }
}

/// The bytes of a block's scripts.
fn script_bytes(block: &Block<'_>) -> usize {
    match block.codec() {
        Codec::PoolAndScripts => {
            block.directory().chunks.iter().map(|chunk| chunk.sections[SCRIPTS].raw).sum()
        }
        Codec::Frames => 0,
    }
}

/// The bytes of a block's scripts, and of the byte strings in its columns.
fn script_and_value_bytes(block: &Block<'_>) -> Result<usize, Error> {
    let mut bytes = script_bytes(block);
    for column in block.columns() {
        for value in block.column(&column.name)? {
            if let Value::Bytes(value) = value {
                bytes += value.len();
            }
        }
    }
    Ok(bytes)
}

impl Block<'_> {
    /// Whether the block is as large as a block with these settings should be. Compaction of such a block
    /// saves nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if a part of the block that the decision needs is damaged.
    pub fn is_full(&self, settings: &Settings) -> Result<bool, Error> {
        let pool = self.chunks().pool_size();
        // Most blocks have few literals, and then no content has to be unpacked.
        let largest = if pool >= settings.pool { largest_of_last(self)? } else { 0 };
        Ok(settings.is_full(self.len(), script_and_value_bytes(self)?, pool, largest))
    }
}

/// The size of the largest recent content.
fn largest_of_last(block: &Block<'_>) -> Result<usize, Error> {
    let (mut largest, mut left) = (0, RECENT_CONTENTS);
    for group in (0..block.groups()).rev() {
        let unpacked = block.unpack(group, None)?;
        for ordinal in unpacked.ordinals().rev().take(left) {
            largest = largest.max(unpacked.get(ordinal)?.len());
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    Ok(largest)
}
