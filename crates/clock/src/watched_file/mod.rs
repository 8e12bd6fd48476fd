//! Values that are made from the contents of files, such as keys and tokens, and replaced when the contents change.
//!
//! [`Watched`] has the value, and reads the files again on request. [`Source`] names the files, and makes the value.
//! [`read_regular_file`] reads one file of limited size.
//!
//! # Invariants
//!
//! - Only regular files up to a size limit are read, so no reader waits for another process.
//! - If a changed file is unusable, the previous value stays in use.

mod read;
mod watched;

pub use read::{ReadError, read_regular_file};
pub use watched::{Reload, Source, Watched};
