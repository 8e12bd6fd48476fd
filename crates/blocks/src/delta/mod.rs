//! Pool and scripts: the delta codec, for texts that are mostly like an earlier text.
//!
//! The encoder appends new text to a *pool* of literals. A text is then a [`Script`](script::Script) of
//! edits, which say what to copy from the *parent*, an earlier text, and what to insert from the pool.
//!
//! A reader folds the scripts from the first ancestor to the text into a list of [`Segment`]s of the pool,
//! and copies these segments. The texts of the ancestors are never built, so the cost of reading hardly grows
//! with the size of the texts.

pub(crate) mod encoder;
pub(crate) mod matching;
pub(crate) mod parents;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod script;
pub(crate) mod segments;

#[cfg(test)]
mod tests;

/// The maximum number of edits of a script, and of segments of a text. A text that needs more is stored whole
/// in the pool, so that the cost of reading a text is bounded.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// A piece of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) pool_at: u32,
    pub(crate) len: u32,
}

impl Segment {
    pub(crate) fn end(self) -> u32 {
        self.pool_at + self.len
    }
}
