//! What can go wrong in a store, by what the caller should do about it.

/// The result of a call to a store.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by what the caller should do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not answer. A write may or may not have happened, in whole or (of several batches)
    /// in part; the same call may be made again.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What is stored is not what was written. Trying again does not help; a backup does.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
    /// The call breaks a rule that is written at the trait: a bug in the caller. Nothing was changed.
    #[error("invalid call to the store: {0}")]
    Invalid(String),
    /// The store cannot do this: an unknown format version, a change of schema that it cannot make.
    #[error("not supported by the store: {0}")]
    Unsupported(String),
}
