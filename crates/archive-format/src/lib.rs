//! Revisions of pages as entries of compression blocks.
//!
//! A [`Unit`] is a revision with its renders and bodies. [`UnitWriter`] writes units into a block with the
//! [`columns()`] of the archive. [`read_units`] reads them back, and [`read_lines`] reads them without
//! contents. [`Positions`] are the numbers, times and tids of a page's units in a block.

mod columns;
mod derived;
mod entries;
mod positions;
mod units;

pub use self::{
    columns::columns,
    entries::{ArchivedBody, Bodies, BodyLocation, Texts, Unit, UnitWriter},
    positions::{PositionColumn, Positions},
    units::{Hashes, PageLines, Pages, UnitKeys, UnitLines, hash_of, name_and_title, read_lines, read_units},
};
