//! Translates errors of the driver to errors of the store.

use std::time::Duration;

use rashomon_tables::{Error, Key, Outage, Schema};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind as Setup, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};

use crate::Options;

/// A part of the answer of a node that temporarily cannot check a password.
const UNDECIDED: &str = "Unable to perform authentication";

/// Returns the error if no node answers, for a reason that may be temporary.
pub(crate) fn no_cluster(options: &Options, reason: &dyn std::fmt::Display) -> Error {
    let addresses = options.contact_points.join(", ");
    let detail = format!("no cluster at {addresses}: {reason}");
    Error::Unavailable(Outage::Nodes { addresses, detail })
}

/// Translates the error of a failed connection to the cluster. `Unsupported` if the cluster refuses the user, since
/// it would also refuse a retry.
pub(crate) fn not_connected(options: &Options, error: &NewSessionError) -> Error {
    let refused = |why: String| {
        let points = options.contact_points.join(", ");
        Error::Unsupported(format!(
            "the cluster at {points} {why}: check user and password_file in [store] of the configuration"
        ))
    };
    match setup_error(error) {
        Some(Setup::DbError(DbError::AuthenticationError, text)) if !text.contains(UNDECIDED) => {
            let user = options.credentials.as_ref().map_or("(none)", |credentials| &credentials.user);
            refused(format!("refuses the user {user} ({text})"))
        }
        Some(Setup::MissingAuthentication) => refused("asks for a user and a password".to_owned()),
        _ => no_cluster(options, error),
    }
}

/// Returns the error of the CQL handshake, if the connection failed because of it.
fn setup_error(error: &NewSessionError) -> Option<&Setup> {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(error),
        })) => Some(error.get_error()),
        _ => None,
    }
}

/// Translates the error of a read or a write. The result is always `Unavailable`, since the cluster may accept the
/// request later: when a node is up again, when a right is granted, or when a table is created again. Some batches
/// of the call may have been applied.
///
/// `down` has the addresses of the nodes without a connection.
pub(crate) fn unavailable(error: &ExecutionError, down: &[String]) -> Error {
    if down.is_empty() {
        return Error::unavailable(error.to_string());
    }
    let addresses = down.join(", ");
    let detail = format!("no connection to {addresses}: {error}");
    Error::Unavailable(Outage::Nodes { addresses, detail })
}

/// Returns the error if the nodes of the cluster have not agreed on the schema within `limit`.
pub(crate) fn no_agreement(limit: Duration, unconnected: &[String], why: &str) -> Error {
    let mut detail =
        format!("the nodes of the cluster do not agree on the schema after {} s{why}", limit.as_secs());
    if unconnected.is_empty() {
        detail.push_str("; run `nodetool describecluster`");
        return Error::unavailable(detail);
    }
    let addresses = unconnected.join(", ");
    detail = format!("{detail}; there is no connection to {addresses}");
    Error::Unavailable(Outage::Nodes { addresses, detail })
}

pub(crate) fn not_prepared(error: &PrepareError) -> Error {
    Error::unavailable(error.to_string())
}

/// Returns the error for an answer that cannot be decoded.
pub(crate) fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("the cluster's answer cannot be decoded: {error}"))
}

/// Translates the error of a statement that creates or changes `what`.
pub(crate) fn from_change(what: &str, error: &ExecutionError) -> Error {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, text)) => {
            Error::Unsupported(format!(
                "{what} must be created or changed, and this user has no permission ({text}): let an \
                 administrator run the statements that `rashomon cassandra schema` prints or, if only columns are \
                 missing, `rashomon upgrade`"
            ))
        }
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Invalid | DbError::SyntaxError | DbError::ConfigError,
            text,
        )) => Error::Unsupported(format!("the cluster refuses {what}: {text}")),
        _ => Error::unavailable(format!("{what}: {error}")),
    }
}

/// Returns the error for a stored row that this program cannot have written.
pub(crate) fn corrupt(schema: &Schema, key: &Key) -> Error {
    Error::Corrupt(format!(
        "the row {key:?} of table {} has a value that this program never writes",
        schema.name()
    ))
}
