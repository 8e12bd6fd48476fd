//! The errors of calls to buckets, classified by their meaning for the caller.

use rashomon_clock::Timestamp;

use crate::{Render, Revision, Tid};

/// The result of a call to a bucket.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call to a bucket.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested item was not found.
    #[error("{0}")]
    NotFound(Missing),
    /// The write contradicts the stored data. Nothing was changed.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The latest revision is not the revision that the write expects. Nothing was changed.
    #[error("the write expects another state of the page: {}", latest.as_ref().map_or_else(
        || "there is no such page".to_owned(),
        |latest| format!("the latest revision is {}", latest.record.rev),
    ))]
    NotLatest {
        /// The latest render; `None` if there is no page yet.
        latest: Option<Box<Render>>,
    },
    /// The stored version of the property is none of those that the write expects. Nothing was changed.
    #[error("the property has been changed since the expected version")]
    NotExpected,
    /// A value is invalid. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// The store has sealed revisions, but the settings have retention without an archive. The store was not opened.
    #[error("the store has sealed revisions, and retention without an archive would report them as deleted")]
    ArchiveNotConfigured,
    /// The content of the revision was erased, and the revision takes no other content. Nothing was changed.
    #[error("revision {rev} was erased on {}", format_time(*at))]
    Erased {
        /// The revision.
        rev: Revision,
        /// The time of the erasure.
        at: Timestamp,
    },
    /// A body is larger than its property allows. Nothing was changed.
    #[error("property {property} has more than {limit} bytes, its limit")]
    TooLarge {
        /// The property.
        property: crate::PropertyName,
        /// The maximum number of bytes.
        limit: u64,
    },
    /// The property is not stored, and the renderer did not generate it.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] rashomon_tables::Error),
}

/// A contradiction between a write and the stored data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// The revision is stored, and differs from the request.
    #[error("revision {rev} is stored already, with {differs}")]
    Revision {
        /// The revision.
        rev: Revision,
        /// The part that differs, such as "other properties".
        differs: &'static str,
    },
    /// The render is stored, and differs from the request.
    #[error("render {tid} of revision {rev} is stored already, with other properties")]
    Render {
        /// The revision.
        rev: Revision,
        /// The render.
        tid: Tid,
    },
    /// A property of the revision is stored, and differs from the request for a new render.
    #[error("property {property} is shared by all renders of the revision, and is stored with other bytes")]
    Property {
        /// The property.
        property: crate::PropertyName,
    },
    /// A property that a new render would take over from its base is not stored any more.
    #[error("property {property} of the base {base} is not stored any more: send it with the new render")]
    BasePropertyIsGone {
        /// The property.
        property: crate::PropertyName,
        /// The render that the new render is based on.
        base: Tid,
    },
    /// A later render is not possible, since the newest render has the highest possible tid.
    #[error("no render of revision {rev} can be later than {newest}")]
    NoLaterTid {
        /// The revision.
        rev: Revision,
        /// The newest render of the revision.
        newest: Tid,
    },
}

/// The error of a renderer that has not generated a property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The renderer does not have the property for this revision.
    #[error("the renderer does not have the property: {0}")]
    Unknown(String),
    /// The renderer answered with an error, or with an unusable answer.
    #[error("the renderer failed: {0}")]
    Failed(String),
    /// The renderer did not answer in time.
    #[error("the renderer did not answer in time: {0}")]
    TimedOut(String),
    /// The maximum number of requests to the renderer is in progress.
    #[error("too many requests to the renderer are in progress: {0}")]
    Busy(String),
}

/// Why an item was not found. [`Missing::OutOfReach`] does not mean that the item is absent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// There is no page of this title.
    #[error("there is no page of this title")]
    Page,
    /// The page has no such revision.
    #[error("the page has no revision {0}")]
    Revision(Revision),
    /// The page has no such render.
    #[error("the page has no render {0}")]
    Render(Tid),
    /// The newest render of the latest revision lacks the property.
    #[error("the newest render of the latest revision, {latest}, has no such property{}", describe_predecessor(*latest, *predecessor, *predecessor_tid))]
    LatestProperty {
        /// The latest revision.
        latest: Revision,
        /// The newest revision that has the property. It may be the latest revision itself, in an older render.
        predecessor: Option<Revision>,
        /// The newest render of the predecessor that has the property.
        predecessor_tid: Option<Tid>,
    },
    /// The render lacks the property.
    #[error("render {tid} of revision {rev} has no such property")]
    Property {
        /// The revision.
        rev: Revision,
        /// The render.
        tid: Tid,
    },
    /// The render was superseded. Its bodies were culled, or the archive's policy did not keep them.
    #[error("render {tid} of revision {rev} was superseded, and its content is not kept any more")]
    Culled {
        /// The revision.
        rev: Revision,
        /// The render.
        tid: Tid,
    },
    /// The page did not exist at the requested time.
    #[error("the first revision of the page is later than the requested time")]
    BeforeFirst,
    /// The examined revisions do not determine the requested state. There are further revisions, but a request examines
    /// only a limited number.
    #[error(
        "the {examined} revisions nearest to the requested time do not determine the state of the property, \
         and one request examines no more: the timemap lists all revisions that have the property, page by \
         page"
    )]
    OutOfReach {
        /// The number of examined revisions.
        examined: usize,
    },
    /// No revision of the page has the property.
    #[error("no revision of the page has such a property")]
    PropertyOfAllRevisions,
}

/// Formats a time to the second, in UTC.
fn format_time(time: Timestamp) -> String {
    match jiff::Timestamp::from_second(time.as_micros().div_euclid(1_000_000)) {
        Ok(time) => time.strftime("%Y-%m-%d at %H:%M:%S UTC").to_string(),
        Err(_) => "some day".to_owned(),
    }
}

/// Returns the end of the message for a property that the latest render lacks. It names the newest revision or render
/// that has the property.
fn describe_predecessor(latest: Revision, predecessor: Option<Revision>, tid: Option<Tid>) -> String {
    match (predecessor, tid) {
        (Some(rev), Some(tid)) if rev == latest => format!("; its newest render that has it is {tid}"),
        (Some(rev), _) => format!("; the newest revision that has it is {rev}"),
        (None, _) => String::new(),
    }
}
