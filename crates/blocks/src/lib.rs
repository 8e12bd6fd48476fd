//! Compression blocks: many revisions in a few bytes.
//!
//! A [`BlockBuilder`] makes a block of *entries*, one after the other. Each has a content, which is any bytes; belongs
//! to a *stream*, the versions of one thing, such as a property of a page; and has values in the block's
//! [`Column`]s. Its *ordinal* is its name in the block, which appending, [`merge()`] and [`erase()`] leave as it is.
//!
//! A [`Block`] is read where it lies: [`Block::get`] unpacks what one content needs, [`Block::iter`] decodes all of
//! them once. What comes out is what went in, or an error, whatever the bytes are.
//!
//! There is no I/O here. The format is in `docs/block-format.md`; the idea is that of the notes on revision archival
//! storage, the codec is [pool and scripts](Codec::PoolAndScripts).

mod block;
mod builder;
mod chunks;
mod columns;
mod contents;
mod directory;
mod entries;
mod erase;
mod error;
mod filling;
mod frames;
mod limits;
mod merge;
mod section;
mod streams;
mod unpacked;
mod varint;
mod weave;

pub use block::{Block, Entry};
pub use builder::BlockBuilder;
pub use columns::{Column, Kind, Value};
pub use contents::{Content, Contents};
pub use directory::Codec;
pub use erase::{Erased, Shared, erase};
pub use error::{Damage, Error};
pub use filling::Settings;
pub use limits::{Limits, MAX_COLUMNS, MAX_CONTENT, MAX_NAME, MAX_VALUE};
pub use merge::merge;
pub use unpacked::Unpacked;
