//! What can go wrong, and what to do about it.

/// Why a block cannot be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not begin as a block does.
    #[error("this is no compression block: look whether the right bytes were fetched")]
    NotABlock,
    /// It was written by a later version of this program.
    #[error(
        "the block has version {found} of the format, and this program reads up to {known}: \
         read it with the version of Rashomon that wrote it, or a later one"
    )]
    NewerVersion {
        /// The block's.
        found: u8,
        /// The newest that is known here.
        known: u8,
    },
    /// Its content is packed in a way that is not known.
    #[error(
        "the block is packed with codec {0}, which is not known here: read it with a later version of Rashomon"
    )]
    UnknownCodec(u8),
    /// It is not as it was written.
    #[error(
        "the block is damaged: {0}; restore it from a replica or a backup, what still can be read is readable"
    )]
    Damaged(Damage),
    /// It declares, or would have, more than the limits allow.
    #[error("{what}: {size}, and at most {limit} are allowed: raise the limit if this is meant")]
    TooLarge {
        /// Of what there is too much.
        what: &'static str,
        /// How much.
        size: u64,
        /// As much as there may be.
        limit: u64,
    },
    /// No entry of the block has this ordinal.
    #[error("the block has no entry {0}: look into the index for the block that has it")]
    NoSuchOrdinal(u64),
    /// The entry is there, and its content was erased.
    #[error("the content of entry {0} was erased")]
    Erased(u64),
    /// The block has no such column.
    #[error("the block has no column {0:?}")]
    NoSuchColumn(String),
    /// What was given does not fit the columns of the block.
    #[error("{0}: give one value for each column, of its kind")]
    Columns(&'static str),
    /// What was given cannot be one block: two entries have the same ordinal, or an earlier one comes later.
    #[error("entry {0} comes after a later one, or twice: give blocks with ordinals of their own")]
    Ordinals(u64),
    /// The compressor refused; it says why.
    #[error("zstd: {0}")]
    Zstd(&'static str),
}

/// What is not as it was written, as far as can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It ends too early, or goes on where it should end.
    #[error("it is not as long as it should be")]
    Length,
    /// Its strong hash is that of other bytes.
    #[error("its BLAKE3 does not match")]
    Hash,
    /// The directory, without which nothing can be found.
    #[error("its directory is not as it was written")]
    Directory,
    /// A part of a chunk.
    #[error("the {section} of chunk {chunk} are not as they were written")]
    Section {
        /// Which chunk, from 0.
        chunk: usize,
        /// Which part of it.
        section: &'static str,
    },
    /// An entry came out as something else than went in.
    #[error("entry {0} does not have its checksum")]
    Entry(u64),
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}
