//! Errors of blocks, and what to do about them.

/// The reason why a block cannot be read or built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin as a block does.
    #[error(
        "the bytes are not a compression block: other bytes were read, or the first bytes of the block are damaged"
    )]
    NotABlock,
    /// The block was written by a later version of this program, or its version is damaged.
    #[error(
        "the block has version {found} of the format, but this program reads only version {known}: \
         read it with the version of Rashomon that wrote it, or a later one; if there is none, the block is \
         damaged"
    )]
    NewerVersion {
        /// The version of the block.
        found: u8,
        /// The newest version that this program knows.
        known: u8,
    },
    /// The contents are packed with an unknown codec, or the codec is damaged.
    #[error(
        "the block is packed with codec {0}, which this version does not know: read it with a later version \
         of Rashomon; if there is none, the block is damaged"
    )]
    UnknownCodec(u8),
    /// The block is damaged: some of its bytes have changed since it was written.
    #[error("the block is damaged: {0}; restore it from a replica or a backup{hint}", hint = salvage_hint(.0))]
    Damaged(Damage),
    /// The block declares more than the [`Limits`](crate::Limits) of the reader allow.
    #[error(
        "{what}: {size}, but the reader allows at most {limit}: raise this limit if the size is intended"
    )]
    TooLarge {
        /// The quantity that is too large.
        what: &'static str,
        /// The value of the quantity.
        size: u64,
        /// The limit of the reader.
        limit: u64,
    },
    /// A block cannot have this much, whatever the limits of its readers are.
    #[error("{what}: {size}, but a block can have at most {maximum}: leave this data out of the block")]
    AboveMaximum {
        /// The quantity that is too large.
        what: &'static str,
        /// The value of the quantity.
        size: u64,
        /// The maximum of the format.
        maximum: u64,
    },
    /// No entry of the block has this ordinal.
    #[error(
        "the block has no entry with ordinal {0}: look up in the index of the page which block has the entry"
    )]
    NoSuchOrdinal(u64),
    /// The entry exists, but its content was erased.
    #[error("the content of entry {0} was erased")]
    Erased(u64),
    /// The block has no such column.
    #[error("the block has no column {0:?}")]
    NoSuchColumn(String),
    /// Two columns have the same name, or the values of an entry do not fit the columns.
    #[error("{0}")]
    Columns(&'static str),
    /// The last entry has the greatest ordinal that is possible.
    #[error("the block has no ordinal left for another entry: begin a block with a lower first ordinal")]
    OutOfOrdinals,
    /// The compressor failed, for this reason.
    #[error("cannot compress a part of the block with zstd: {0}")]
    Zstd(&'static str),
}

/// The damaged part of a block, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The block ends too early, or has bytes after its end. If the end of the directory is missing, nothing in
    /// the block can be found.
    #[error("its length is wrong")]
    Length,
    /// The strong hash does not match the bytes.
    #[error("its BLAKE3 does not match")]
    Hash,
    /// The directory is damaged. Without the directory, nothing in the block can be found.
    #[error("its directory is corrupt")]
    Directory,
    /// A part of a chunk is damaged.
    #[error("the {section} of chunk {chunk} are corrupt")]
    Section {
        /// The chunk, counted from 0.
        chunk: usize,
        /// The part of the chunk.
        section: &'static str,
    },
    /// The content of an entry does not agree with its checksum.
    #[error("entry {0} does not match its checksum")]
    Entry(u64),
}

/// The hint for damage after which the other parts of the block can certainly be read.
fn salvage_hint(damage: &Damage) -> &'static str {
    match damage {
        Damage::Hash | Damage::Section { .. } | Damage::Entry(_) => "; its undamaged parts can still be read",
        Damage::Length | Damage::Directory => "",
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}
