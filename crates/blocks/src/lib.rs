//! Compression blocks: many revisions in a few bytes.
//!
//! A [`BlockBuilder`] builds a block from *entries*, one after the other. Each entry has a content, which is
//! a sequence of any bytes, and a value for each [`Column`] of the block. Each entry belongs to a *stream*:
//! the versions of one thing, such as a property of a page. The *ordinal* of an entry is its number in the
//! block.
//!
//! A [`Block`] is read in place: [`Block::get`] unpacks only what one content needs, and [`Block::iter`]
//! decodes each content once. If bytes of a block are damaged, a read returns either the content that was
//! pushed, or an error.
//!
//! This crate does no I/O. `docs/block-format.md` describes the format. The idea comes from the notes on
//! revision archival storage; the codec is [pool and scripts](Codec::PoolAndScripts).
//!
//! # Invariants
//!
//! - The crate does no I/O, and knows nothing of wikis. Contents are bytes, and named columns have the data about them.
//! - Whatever the bytes of a block are, a content is read exactly as it was added, or the read is an error. Declared
//!   sizes are compared with limits before memory is allocated for them.
//! - Whatever the contents are, the time and memory for making and reading a block are bounded.

mod block;
mod builder;
mod checks;
mod chunks;
mod columns;
mod contents;
mod delta;
mod directory;
mod entries;
mod error;
mod filling;
mod frames;
mod limits;
mod section;
mod streams;
mod strings;
mod table;
mod unpacked;
pub mod varint;

pub use block::{Block, Entry, Opened};
pub use builder::BlockBuilder;
pub use columns::{Column, Kind, Value, ValueRef};
pub use contents::{Content, Contents};
pub use directory::{Codec, Version};
pub use error::{Damage, Error};
pub use filling::Settings;
pub use limits::{Limits, MAX_COLUMNS, MAX_CONTENT, MAX_NAME, MAX_VALUE};
pub use table::Table;
pub use unpacked::Unpacked;
