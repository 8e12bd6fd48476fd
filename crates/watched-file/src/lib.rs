//! Files that are read again when they change, such as those with keys and tokens.
//!
//! [`Watched`] has a value that is made from the contents of files. [`Source`] names the files, and makes the value.
//! [`read_regular_file`] reads one file, whose size is bounded.

mod read;
mod watched;

pub use read::{ReadError, read_regular_file};
pub use watched::{Reload, Source, Watched};
