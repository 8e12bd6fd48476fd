//! The retry policy of requests.

use scylla::{
    errors::{DbError, RequestAttemptError},
    policies::retry::{RequestInfo, RetryDecision, RetryPolicy, RetrySession},
};

/// The maximum number of retries of a request.
const MAX_RETRIES: usize = 2;

/// A policy that retries an idempotent request on the next node, at most twice, and always with the consistency of
/// the first attempt.
#[derive(Debug)]
pub(crate) struct NextNodeRetryPolicy;

impl RetryPolicy for NextNodeRetryPolicy {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(Retries(0))
    }
}

/// The number of retries of a request so far.
struct Retries(usize);

impl RetrySession for Retries {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        if !request.is_idempotent || self.0 == MAX_RETRIES || !another_node_may_answer(request.error) {
            return RetryDecision::DontRetry;
        }
        self.0 += 1;
        RetryDecision::RetryNextTarget(None)
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Whether another node may answer, since the cause of the error may be the node rather than the request.
fn another_node_may_answer(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::BrokenConnectionError(_) | RequestAttemptError::UnableToAllocStreamId => true,
        RequestAttemptError::DbError(DbError::Invalid, text) => lacks_the_tables(text),
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::TruncateError
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. }
                | DbError::ServerError
                | DbError::RateLimitReached { .. }
        ),
        _ => false,
    }
}

/// Whether the error says that a keyspace or table is missing. A node that has just joined the ring may not know it
/// yet.
fn lacks_the_tables(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("unconfigured table") || (text.contains("keyspace") && text.contains("does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_requests_are_not_retried() {
        let error = |error| RequestAttemptError::DbError(error, String::new());
        assert!(another_node_may_answer(&error(DbError::Overloaded)));
        assert!(another_node_may_answer(&error(DbError::ServerError)));
        let invalid = |text: &str| RequestAttemptError::DbError(DbError::Invalid, text.to_owned());
        assert!(another_node_may_answer(&invalid("Keyspace 'wiki' does not exist")));
        assert!(another_node_may_answer(&invalid("unconfigured table renders")));
        assert!(!another_node_may_answer(&invalid("Batch too large")));
        for own in [DbError::Invalid, DbError::SyntaxError, DbError::Unauthorized] {
            assert!(!another_node_may_answer(&error(own)));
        }
    }
}
