//! What a history consists of, whichever format it comes in.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_buckets::{
    EXCERPT_BYTES, HeaderError, NameError, PageInfo, PropertyName, Revision, RevisionRecord, SiteInfo, Tid,
    Title, excerpt,
};
use rashomon_clock::Timestamp;

/// What comes next in a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What it says of the wiki; before all pages, if at all.
    Site(SiteInfo),
    /// A revision of a page.
    Revision(Title, Box<SourceRevision>),
    /// The end of a page, and what is known of it if it had a revision. A page may come several times.
    PageEnd(Title, Option<PageInfo>),
    /// Revisions that cannot be kept.
    LeftOut(LeftOut),
    /// An element that is not read, by its name.
    Skipped(String),
}

/// A revision as it comes.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRevision {
    /// The line it begins in.
    pub line: u64,
    /// It came before, with other renders: these are more of them.
    pub continued: bool,
    /// What is known of it.
    pub record: RevisionRecord,
    /// The properties that belong to the revision.
    pub properties: Vec<SourceProperty>,
    /// Its renders, where they are known.
    pub renders: Vec<SourceRender>,
}

/// A render as it comes.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRender {
    /// Its name.
    pub tid: Tid,
    /// Its properties.
    pub properties: Vec<SourceProperty>,
}

/// A property as it comes.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceProperty {
    /// Its name.
    pub name: PropertyName,
    /// Its content type; `None`: that of its definition.
    pub content_type: Option<String>,
    /// Its other headers, their names in lower case.
    pub other_headers: BTreeMap<String, String>,
    /// When it was last replaced in place, if ever.
    pub rewritten_at: Option<Timestamp>,
    /// The SHA-1 that it comes with, in hex or base 36, if it does.
    pub sha1: Option<String>,
    /// Its bytes.
    pub body: Bytes,
}

/// Revisions that cannot be kept, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The line that the revision begins in; of a page, that of the page.
    pub line: u64,
    /// The page's title as it came, at most [`Self::MAX_NAME`] bytes of it.
    pub title: Option<String>,
    /// The revision's number, where it has one.
    pub rev: Option<Revision>,
    /// How many revisions.
    pub revisions: u64,
    /// Why.
    pub reason: LeftOutReason,
}

impl LeftOut {
    /// The most bytes that are shown of a title that is none.
    pub const MAX_NAME: usize = EXCERPT_BYTES;

    /// A name, short enough to be shown.
    pub(crate) fn shown(name: &str) -> String {
        excerpt(name)
    }
}

/// Why a revision cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// It was erased here, and stays so.
    #[error("it was erased on {0}, and stays so")]
    Erased(String),
    /// It has no number.
    #[error("the revision has no id")]
    NoNumber,
    /// Its number is none, or not positive.
    #[error("the revision's id is {0:?}, not a positive number")]
    BadNumber(String),
    /// It has no time.
    #[error("the revision has no timestamp")]
    NoTimestamp,
    /// Its time is none.
    #[error(
        "the revision's timestamp is {0:?}, not a time of RFC 3339 from 1583 to 5235 in at most microseconds"
    )]
    BadTimestamp(String),
    /// A time in it has not come yet.
    #[error("its time {0} is in the future: if it is not, set the clock")]
    InFuture(String),
    /// Its parent is no revision.
    #[error("its parent is {0:?}, neither the number of a revision nor 0, which is none")]
    BadParent(String),
    /// It is its own parent.
    #[error("it is its own parent")]
    OwnParent,
    /// A property of it could not be given back as it came.
    #[error("its property {name}: {fault}")]
    BadProperty {
        /// The property.
        name: PropertyName,
        /// What is wrong.
        fault: HeaderError,
    },
    /// A property of it has more bytes than its definition allows.
    #[error("its property {name} has {size} bytes, and at most {limit} are kept: raise max_size of {name}")]
    TooLarge {
        /// The property.
        name: PropertyName,
        /// Its bytes.
        size: u64,
        /// As many as it may have.
        limit: u64,
    },
    /// One of its renders cannot be kept, and it would not be whole without.
    #[error("its render {tid}: {reason}")]
    BadRender {
        /// The render.
        tid: Tid,
        /// Why.
        reason: Box<LeftOutReason>,
    },
    /// Its page has no title, or not yet.
    #[error("no title comes before the page's first revision")]
    NoTitle,
    /// Its page's title is none.
    #[error("the page's title cannot be kept: {0}")]
    BadTitle(#[from] NameError),
    /// One of its slots cannot become a property.
    #[error("its slot {0:?} cannot be kept under the name of a property")]
    BadSlot(String),
    /// One of its slots comes twice.
    #[error("its slot {0:?} comes twice")]
    SlotTwice(String),
}
