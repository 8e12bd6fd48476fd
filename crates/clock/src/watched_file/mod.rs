//! Values that are made from the contents of files, such as keys and tokens, and replaced when the contents change.
//!
//! [`Watched`] has the value, and reads the files again on request. [`Source`] names the files, and makes the value.
//! [`read_regular_file`] reads one file of limited size.

mod read;
mod watched;

pub use read::{ReadError, read_regular_file};
pub use watched::{Reload, Source, Watched};
