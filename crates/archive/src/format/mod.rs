//! Revisions of pages as entries of compression blocks.
//!
//! A [`Unit`] is a revision with its renders and bodies. [`UnitWriter`] writes units into a block with the
//! [`columns()`] of the archive. [`read_units`] reads the units back, and [`page_entries`] finds their entries
//! without contents. [`Positions`] are the numbers, times and tids of a page's units in a block. [`UnitSize`]
//! is the space that a revision takes in a block.
//!
//! # Invariants
//!
//! - A unit that is read from a block equals the unit that was written.

mod columns;
mod derived;
mod entries;
mod positions;
mod size;
mod sums;
mod units;

pub(crate) use self::{
    columns::columns,
    entries::{ArchivedBody, Bodies, BodyLocation, Texts, UnitWriter},
    positions::{PositionColumn, Positions},
    size::{MAX_BODY_IN_BLOCK, MAX_UNIT_BODY_BYTES, MAX_UNIT_ENTRIES, MAX_UNIT_VALUE_BYTES, UnitSize},
    units::{
        Hashes, PageEntries, Pages, UnitEntries, UnitKeys, hash_of, name_and_title, page_entries, read_units,
        verify_units,
    },
};
pub use self::{
    entries::Unit,
    sums::{BlockSums, BodySums},
};
