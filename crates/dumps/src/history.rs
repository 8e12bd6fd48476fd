//! The parts of a history, independent of its format.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_pages::{
    HeaderError, NameError, PageInfo, PropertyName, Revision, RevisionRecord, SiteInfo, Tid, Title, excerpt,
};

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
    /// An element of an export at an unexpected place, or with an unexpected value. It is not imported.
    Misplaced(Misplaced),
    /// A page that cannot be read. Reading goes on with the next page.
    Broken(BrokenPage),
    /// A peculiarity of the input that is no fault of its content.
    Notice(String),
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

/// An element of an export, or characters, at an unexpected place, or with a value that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The line in which the element begins.
    pub line: u64,
    /// The title of the page that has the element, if it is known.
    pub title: Option<String>,
    /// The name of the element. Empty for characters between elements.
    pub element: String,
    /// What is wrong.
    pub fault: MisplacedFault,
}

/// What is wrong with an element or its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MisplacedFault {
    /// Exports have no such element within this element.
    #[error("exports have none directly within <{0}>")]
    Within(String),
    /// The element may occur only once, and an earlier one was imported.
    #[error("it occurs twice, and the first one counts")]
    Repeated,
    /// Another element, which was imported, takes its place.
    #[error("there is also a <{0}>, which counts")]
    Beside(&'static str),
    /// The value of the element cannot be stored.
    #[error("its value {0:?} is no number that it may have")]
    BadNumber(String),
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.element {
            "" => f.write_str("characters between the elements")?,
            element => write!(f, "element <{element}>")?,
        }
        write!(f, " not imported: {}", self.fault)
    }
}

/// A page that cannot be read to its end, and was skipped from there on. Its revisions before that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenPage {
    /// The line in which the page begins.
    pub line: u64,
    /// The title of the page, if it was read. It may be shortened.
    pub title: Option<String>,
    /// The line from which on the page was skipped.
    pub broken_line: u64,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for BrokenPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken, and skipped from line {} on: {}", self.broken_line, self.problem)
    }
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
    /// Shortens a text from the input for a message, to [`rashomon_pages::EXCERPT_BYTES`].
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
         after the second, and with no leap second (60)"
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
    /// A property of the revision belongs to renders.
    #[error(
        "property {0} is one per render: put it into a line of kind render, or define it as one per revision in the \
         configuration"
    )]
    OnePerRender(PropertyName),
    /// A property of a render belongs to the revision.
    #[error("property {0} is one per revision: put it into the line of kind revision")]
    OnePerRevision(PropertyName),
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
        "slot {role:?} cannot be stored: its role becomes a part of a property's name, which may have a-z, 0-9, '_' \
         and '-', but not {character:?}"
    )]
    BadSlot {
        /// The role.
        role: String,
        /// The first character of the role that is not allowed.
        character: char,
    },
    /// A slot of the revision has no role.
    #[error("an element <content> has no role")]
    NoRole,
    /// The role of a slot is too long.
    #[error("slot {0:?} cannot be stored: its role has more than 59 characters")]
    LongRole(String),
    /// The revision is within an element that has no revisions in exports.
    #[error("it is within <{within}>, and exports have revisions only in a <page> of <mediawiki>")]
    Misplaced {
        /// The element.
        within: String,
    },
    /// An element of the revision occurs twice, so it is not known which one is right.
    #[error("its element <{element}> occurs twice, again in line {line}")]
    Repeated {
        /// The name of the element.
        element: String,
        /// The line of the second one.
        line: u64,
    },
    /// An element that belongs to another place is within the revision.
    #[error("element <{element}> is within its <{within}>, in line {line}, where exports have none")]
    MisplacedElement {
        /// The name of the element.
        element: String,
        /// Its line.
        line: u64,
        /// The element of the revision that has it.
        within: String,
    },
    /// There are characters between the elements of the revision.
    #[error("there are characters between its elements, in line {line}")]
    Characters {
        /// Their line.
        line: u64,
    },
    /// A slot of the revision comes twice.
    #[error("slot {0:?} occurs twice")]
    SlotTwice(String),
}
