//! The parts of a history, independent of its format.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_buckets::{
    HeaderError, NameError, PageInfo, PropertyName, Revision, RevisionRecord, SiteInfo, Tid, Title, excerpt,
};
use rashomon_clock::Timestamp;

/// The next part of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Metadata of the wiki. It comes before all pages, if at all.
    Site(SiteInfo),
    /// A revision of a page.
    Revision(Title, Box<SourceRevision>),
    /// The end of a page, and the metadata of the page. The XML reader gives metadata only if a revision of the
    /// page will be stored. The JSON lines reader gives the metadata in the line of the page. A page may occur
    /// several times.
    PageEnd(Title, Option<PageInfo>),
    /// Revisions that cannot be stored, or only in part.
    LeftOut(LeftOut),
    /// An element that is not supported, by its name.
    Skipped(String),
}

/// A revision from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRevision {
    /// The line in which the revision begins.
    pub line: u64,
    /// Whether this is a further part of the revision before it, whose renders were too large for one event.
    /// The record and the properties of the revision are the same in all its parts.
    pub continued: bool,
    /// The record of the revision.
    pub record: RevisionRecord,
    /// The properties of the revision.
    pub properties: Vec<SourceProperty>,
    /// The renders of the revision, if they are known.
    pub renders: Vec<SourceRender>,
}

/// A render from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRender {
    /// The tid of the render.
    pub tid: Tid,
    /// The properties of the render.
    pub properties: Vec<SourceProperty>,
}

/// A property from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceProperty {
    /// The name of the property.
    pub name: PropertyName,
    /// The content type. `None` means the content type of the property's definition.
    pub content_type: Option<String>,
    /// The other headers. Their names are in lower case.
    pub other_headers: BTreeMap<String, String>,
    /// The time at which the property was last replaced in place, if it was.
    pub rewritten_at: Option<Timestamp>,
    /// The SHA-1 that the input declares, in hex or base 36. `None` if the input declares none.
    pub sha1: Option<String>,
    /// The bytes of the property.
    pub body: Bytes,
}

/// Revisions that cannot be stored, or only in part, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The line in which the revision begins. For a whole page, the line of the page.
    pub line: u64,
    /// The title of the page in the input. An invalid title is shortened, and a valid title may be shortened.
    pub title: Option<String>,
    /// The revision's number, if it has one.
    pub rev: Option<Revision>,
    /// The number of revisions.
    pub revisions: u64,
    /// Why the revisions cannot be stored.
    pub reason: LeftOutReason,
}

impl LeftOut {
    /// Shortens a text from the input for a message, to [`rashomon_buckets::EXCERPT_BYTES`].
    pub(crate) fn shorten(text: &str) -> String {
        excerpt(text)
    }
}

/// Why a revision cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// The revision was erased in this store, and stays erased.
    #[error("the revision was erased on {0}, and stays erased")]
    Erased(String),
    /// The revision has no number.
    #[error("the revision has no id")]
    NoNumber,
    /// The text in the place of the number is not a positive number.
    #[error("the revision's id is {0:?}, not a positive number")]
    BadNumber(String),
    /// The revision has no time.
    #[error("the revision has no timestamp")]
    NoTimestamp,
    /// The time is not valid.
    #[error(
        "the revision's timestamp is {0:?}, not a time of RFC 3339 from 1583 to 5235 with at most six digits \
         after the second"
    )]
    BadTimestamp(String),
    /// A time of the revision is in the future.
    #[error("the time {0} is in the future: if the time is right, set the clock of the machine that imports")]
    InFuture(String),
    /// The parent is not the number of a revision.
    #[error("the revision's parent is {0:?}, neither the number of a revision nor 0 (no parent)")]
    BadParent(String),
    /// The revision is its own parent.
    #[error("the revision is its own parent")]
    OwnParent,
    /// The headers of a property could not be returned unchanged.
    #[error("property {name}: {fault}")]
    BadProperty {
        /// The property.
        name: PropertyName,
        /// The fault of its headers.
        fault: HeaderError,
    },
    /// A property is larger than its definition allows.
    #[error("property {name} has {size} bytes, and at most {limit} are allowed: raise max_size of {name}")]
    TooLarge {
        /// The property.
        name: PropertyName,
        /// The size of the property.
        size: u64,
        /// The largest allowed size.
        limit: u64,
    },
    /// A render of the revision cannot be stored, and the revision would be incomplete without the render.
    #[error("render {tid}: {reason}")]
    BadRender {
        /// The render.
        tid: Tid,
        /// Why the render cannot be stored.
        reason: Box<LeftOutReason>,
    },
    /// A render of the revision cannot be stored, and earlier renders are stored already, since they were too large to
    /// be kept in memory. The render and the renders after it in the input are left out.
    #[error(
        "only the renders from {tid} on are left out, and the revision is imported without them: {reason}"
    )]
    RemainingRenders {
        /// The first render that is left out.
        tid: Tid,
        /// Why this render cannot be stored.
        reason: Box<LeftOutReason>,
    },
    /// The page has no title, or the title follows the revision.
    #[error("the page has no title before its first revision")]
    NoTitle,
    /// The page's title is invalid.
    #[error("the page's title is not valid: {0}")]
    BadTitle(#[from] NameError),
    /// A slot of the revision cannot become a property.
    #[error(
        "slot {0:?} cannot be stored as a property: its role is `main`, is empty, or has forbidden characters"
    )]
    BadSlot(String),
    /// A slot of the revision comes twice.
    #[error("slot {0:?} occurs twice")]
    SlotTwice(String),
}
