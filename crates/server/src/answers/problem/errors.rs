//! The problems for the errors of other crates.

use std::sync::Arc;

use crate::access::TokenRefusal;
use crate::forms::{BodyError, FormError};
use http::header;
use rashomon_pages::{
    Conflict, Error, GenerateError, Missing, NameError, Page, PropertyName, StoreError, StoreOutage,
};

use super::{Kind, Problem, RETRY_AFTER_SECONDS, header_value};
use crate::answers::json;

impl Problem {
    /// The problem for an error of the buckets about a page.
    pub(crate) fn of_page(error: Error, page: &Page) -> Self {
        match error {
            Error::NotLatest { ref latest } => {
                let latest = json::render_or_null(page, latest.as_deref());
                Self::new(
                    Kind::NotLatest,
                    format!("{error}; check the edit against the current state, and post again"),
                )
                .with_latest(latest)
            }
            other => Self::of_bucket(other),
        }
    }

    /// The problem for any error of the buckets.
    pub(crate) fn of_bucket(error: Error) -> Self {
        match error {
            Error::NotFound(missing) => Self::not_found(missing_detail(&missing)),
            Error::Conflict(conflict) => Self::new(Kind::Conflict, conflict_detail(&conflict)),
            Error::Erased { .. } => {
                Self::new(Kind::Erased, format!("{error}: its content cannot be read or stored any more"))
            }
            Error::NotExpected => Self::new(
                Kind::PreconditionFailed,
                "the property has been changed: If-Match names another version, or If-Unmodified-Since an \
                 earlier time; read the current version, and decide again",
            ),
            Error::Invalid(detail) => Self::invalid(detail),
            Error::TooLarge { .. } => Self::new(Kind::TooLarge, error.to_string()),
            Error::Generate(error) => Self::of_generator(error),
            Error::Store(error) => Self::of_store(&error),
            other => Self::new(Kind::Internal, other.to_string()),
        }
    }

    /// The problem for any error of the key-value buckets.
    pub(crate) fn of_key_value(error: rashomon_entries::Error) -> Self {
        use rashomon_entries::Error;
        match error {
            Error::NoBucket => Self::not_found(error.to_string()),
            Error::OtherDefinition { .. } => Self::new(Kind::Conflict, error.to_string()),
            Error::ConditionFailed => Self::condition_failed(),
            Error::Definition(error) => Self::invalid(error.to_string()),
            Error::TooLarge { .. } => Self::new(Kind::TooLarge, error.to_string()),
            Error::Contended => Self::busy(error.to_string()),
            Error::TooManyIdempotencyKeys { retry_after, .. } => {
                Self::busy_for(retry_after, error.to_string())
            }
            Error::Overflow { .. } => Self::invalid(error.to_string()),
            Error::Records(error) => Self::of_bucket(error),
            other => Self::new(Kind::Internal, other.to_string()),
        }
    }

    /// A condition of a write does not hold: 412.
    pub(crate) fn condition_failed() -> Self {
        Self::new(
            Kind::PreconditionFailed,
            "a condition of the request (If-Match, If-None-Match or If-Unmodified-Since) does not hold for what is \
             stored; nothing was changed: read the current version, and decide again",
        )
    }

    /// The problem for a failed read of a property of the latest. If an older revision has the property, the answer
    /// links to the property of that revision. `url` returns the URL of a sub-resource of the page.
    pub(crate) fn of_latest(
        error: Error,
        page: &Page,
        name: &PropertyName,
        url: impl FnOnce(&str) -> String,
    ) -> Self {
        let predecessor = match &error {
            Error::NotFound(Missing::LatestProperty { predecessor_tid, .. }) => *predecessor_tid,
            _ => None,
        };
        let problem = Self::of_page(error, page);
        match predecessor {
            Some(tid) => {
                let url = url(&format!("?rev/{tid}/{name}"));
                let link = format!("<{url}>; rel=\"predecessor-version\"");
                problem.with_header(header::LINK, header_value(&link))
            }
            None => problem,
        }
    }

    /// The problem for a property that is not stored and could not be generated. The renderer's own message
    /// is only logged.
    fn of_generator(error: GenerateError) -> Self {
        let problem = match error {
            GenerateError::Unknown(_) => {
                Self::not_found("the property is not stored, and the renderer does not have it either")
            }
            GenerateError::TimedOut(_) => Self::new(
                Kind::RendererTimeout,
                "the property is not stored, and the renderer did not answer in time; nothing was stored: \
                 try again",
            ),
            GenerateError::Busy(_) => Self::busy(
                "the property is not stored, and too many requests to the renderer are in progress: try again",
            ),
            _ => Self::new(
                Kind::RendererFailed,
                "the property is not stored, and the renderer failed; nothing was stored: try again later",
            ),
        };
        problem.with_cause(error)
    }

    fn of_store(error: &StoreError) -> Self {
        let problem = match error {
            StoreError::Unavailable(outage) => Self::of_outage(outage),
            StoreError::Corrupt(_) => Self::new(
                Kind::Corrupt,
                "the stored data is damaged: run `rashomon verify` to find all damage, and restore the data \
                 from a backup",
            ),
            _ => Self::new(Kind::Internal, "internal error: the log has the cause under the request's id"),
        };
        problem.with_cause(error)
    }

    /// The problem for an outage of the store. The answer names the fault, and the file or the nodes. This
    /// reveals no more than `/readyz`, which the same clients can read.
    fn of_outage(outage: &StoreOutage) -> Self {
        let (kind, detail) = match outage {
            StoreOutage::Overloaded(what) => (Kind::Busy, format!("{what}: try again later")),
            StoreOutage::StorageFull { .. } => (
                Kind::InsufficientStorage,
                format!(
                    "{outage}; reads still work; repeat the write when the server's operator has freed space"
                ),
            ),
            StoreOutage::ReadOnly { .. } | StoreOutage::Io { .. } => (
                Kind::StorageFault,
                format!("{outage}; try again when the server's operator has repaired the disk"),
            ),
            StoreOutage::Nodes { addresses, .. } => {
                (Kind::Unavailable, format!("the store has no answer from {addresses}; try again"))
            }
            _ => (Kind::Unavailable, "the store does not answer; try again".to_owned()),
        };
        Self::new(kind, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    }

    /// The problem for a store that is not ready because of this error. Its status is always 503, although the same
    /// error may give another request another status.
    pub(crate) fn not_ready(error: Error) -> Self {
        let mut problem = Self::of_bucket(error);
        let kind = match problem.kind() {
            Kind::Unavailable => Kind::Unavailable,
            _ => Kind::StorageFault,
        };
        Arc::make_mut(&mut problem.0).kind = kind;
        problem
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::malformed(error.0)
    }
}

/// The detail for something that is not stored. It says what the client can do.
fn missing_detail(missing: &Missing) -> String {
    match missing {
        Missing::Culled { .. } => format!(
            "{missing}: the latest render is at ?rev/latest/; the setting 'grace' of [retention] says how \
             long superseded renders are kept, and 'policy' of [archive] which ones are kept permanently"
        ),
        _ => missing.to_string(),
    }
}

/// The detail for a write that conflicts with stored content. It says what the client can do.
fn conflict_detail(conflict: &Conflict) -> String {
    match conflict {
        Conflict::Revision { rev, .. } => {
            format!(
                "{conflict}: post other properties as a new render to ?rev/{rev}/, or use another number; the parent \
                 and the timestamp of a stored revision never change"
            )
        }
        Conflict::Render { .. } => format!("{conflict}: send another _timestamp"),
        Conflict::Property { .. } => {
            format!("{conflict}: store it with a new revision, or replace it with PUT")
        }
        _ => conflict.to_string(),
    }
}

impl From<TokenRefusal> for Problem {
    fn from(refused: TokenRefusal) -> Self {
        match refused {
            TokenRefusal::Invalid(_) => Self::invalid_token(refused.to_string()),
            TokenRefusal::TooMany { retry_after } => Self::new(Kind::TooManyAttempts, refused.to_string())
                .with_header(header::RETRY_AFTER, header_value(&retry_after.as_secs().to_string())),
            TokenRefusal::Store(error) => Self::of_bucket(error),
        }
    }
}

impl From<FormError> for Problem {
    fn from(error: FormError) -> Self {
        match error {
            FormError::Malformed(detail) => Self::malformed(detail),
            FormError::OutOfRange(detail) => Self::invalid(detail),
            FormError::Unsupported(detail) => Self::new(Kind::UnsupportedMediaType, detail),
            FormError::Body(error) => error.into(),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge(_) => Kind::TooLarge,
            BodyError::Truncated(_) => Kind::Malformed,
            BodyError::Idle(_) | BodyError::TimedOut(_) | BodyError::TooSlow { .. } => Kind::RequestTimeout,
        };
        Self::new(kind, error.to_string())
    }
}
