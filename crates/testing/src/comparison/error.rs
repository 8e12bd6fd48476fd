//! The errors of a comparison.

use std::{io, path::PathBuf};

use rashomon_pages::Error;

/// The reason why a comparison failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComparisonError {
    /// The file of the history cannot be opened.
    #[error("cannot read {}: {source}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The import of the file failed, for example because the file is no export or is damaged.
    #[error("{}: {failure}", file.display())]
    Import {
        /// The file.
        file: PathBuf,
        /// The reason.
        failure: Box<rashomon_dumps::ImportFailure>,
    },
    /// The history has no revision that can be replayed.
    #[error("{} has no revision with wikitext: name an export that has the texts of revisions", file.display())]
    NoRevisions {
        /// The file.
        file: PathBuf,
    },
    /// A store failed.
    #[error(transparent)]
    Store(#[from] Error),
}
