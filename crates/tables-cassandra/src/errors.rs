//! What the cluster says went wrong, as what the caller should do about it.

use rashomon_tables::{Error, Key, Schema};
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

/// The error of a read or a write. All that a cluster refuses it may take later: a node comes back, a right
/// is granted, a table is made again. And of several batches some may have been applied.
pub(crate) fn unavailable(error: &ExecutionError) -> Error {
    Error::Unavailable(error.to_string())
}

pub(crate) fn not_prepared(error: &PrepareError) -> Error {
    Error::Unavailable(error.to_string())
}

/// An answer that is not what was asked for.
pub(crate) fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::Unavailable(format!("an answer that cannot be read: {error}"))
}

/// The error of a statement that makes or changes `what`.
pub(crate) fn from_change(what: &str, error: &ExecutionError) -> Error {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, text)) => {
            Error::Unsupported(format!(
                "{what} has to be made or changed, and this user may not ({text}): let somebody who may \
                 run what `rashomon cassandra schema` prints"
            ))
        }
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Invalid | DbError::SyntaxError | DbError::ConfigError,
            text,
        )) => Error::Unsupported(format!("the cluster does not take {what}: {text}")),
        _ => Error::Unavailable(format!("{what}: {error}")),
    }
}

/// The error for a row that is not what was written.
pub(crate) fn corrupt(schema: &Schema, key: &Key) -> Error {
    Error::Corrupt(format!("the row {key:?} of table {} holds what was never written to it", schema.name()))
}
