//! Revisions, renders and properties as they come in and go out.

use std::{collections::BTreeMap, sync::Arc};

use rashomon_clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Body, Error, Headers, PropertyName, Result, Revision, Sha1, Staged, Tid};

/// The revision that another was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// None: this is the page's first.
    None,
    /// That one; it need not be stored.
    Revision(Revision),
}

impl Parent {
    /// 0 for none, as it is written in requests and rows.
    #[must_use]
    pub const fn to_number(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Revision(rev) => rev.get(),
        }
    }

    /// The opposite of [`Self::to_number`]; `None` for a negative number.
    #[must_use]
    pub const fn from_number(number: i64) -> Option<Self> {
        match Revision::new(number) {
            Some(rev) => Some(Self::Revision(rev)),
            None if number == 0 => Some(Self::None),
            None => None,
        }
    }
}

/// What is known of a revision beside its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionRecord {
    /// Its number.
    pub rev: Revision,
    /// What it was made from; `None` where nobody said.
    pub parent: Option<Parent>,
    /// When the edit was made: as given, else the time of the first write.
    pub timestamp: Timestamp,
    /// Who made it: a name, or an IP address.
    pub user: Option<String>,
    /// The summary.
    pub comment: Option<String>,
    /// Whether it was marked as minor.
    pub minor: bool,
    /// What only an export of MediaWiki says of it.
    pub export: ExportRecord,
    /// Where its content was erased: when, and by whom.
    pub erased: Option<Erasure>,
}

impl RevisionRecord {
    /// `Erased` where the content of the revision was erased.
    pub fn check_not_erased(&self) -> Result<()> {
        match &self.erased {
            None => Ok(()),
            Some(erasure) => Err(Error::Erased { rev: self.rev, at: erasure.at }),
        }
    }
}

/// That the content of a revision was erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erasure {
    /// When.
    #[serde(with = "micros")]
    pub at: Timestamp,
    /// By whom, as far as that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as far as that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A time as a number of microseconds.
mod micros {
    use rashomon_clock::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
    pub(crate) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        time.as_micros().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp::from_micros)
    }
}

/// What only an export of MediaWiki says of a revision: kept to be written out again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportRecord {
    /// The user's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<i64>,
    /// `user` is an IP address.
    #[serde(skip_serializing_if = "is_false")]
    pub user_is_ip: bool,
    /// The user has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub user_deleted: bool,
    /// The comment has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub comment_deleted: bool,
    /// The sha1 that the export gives the revision, in base 36.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// The main slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<SlotRecord>,
    /// The other slots, by their role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<String, SlotRecord>,
}

/// What an export says of one slot of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlotRecord {
    /// The content model, such as `wikitext`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The content format, such as `text/x-wiki`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The revision that the content was first stored with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<i64>,
    /// The text has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// The number of bytes that the export gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The sha1 that the export gives the text, in base 36.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// The text's number in the wiki's own storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The text's address in the wiki's own storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What is known of a stored property without reading its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyInfo {
    /// Its headers.
    pub headers: Headers,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-1 of its bytes.
    pub sha1: Sha1,
    /// When it was last replaced in place, if ever.
    pub rewritten_at: Option<Timestamp>,
}

impl PropertyInfo {
    /// Whether its bytes cannot be read, and with them neither its size nor its SHA-1: they are in a block of the archive
    /// that is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.sha1 == Sha1::UNKNOWN
    }
}

/// Which bytes a property has: changes whenever they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyVersion {
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Tid,
    /// When it was last replaced in place, if ever.
    pub rewritten_at: Option<Timestamp>,
}

/// One property of one render, with its body.
#[derive(Debug, Clone)]
pub struct Property {
    /// Which bytes these are.
    pub version: PropertyVersion,
    /// The revision's parent.
    pub parent: Option<Parent>,
    /// What is known of it.
    pub info: PropertyInfo,
    /// Its bytes.
    pub body: Body,
}

/// A render: its revision, and the properties it has.
#[derive(Debug, Clone)]
pub struct Render {
    /// Its revision.
    pub record: Arc<RevisionRecord>,
    /// Its name.
    pub tid: Tid,
    /// Its properties, those of its revision included.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
}

impl Render {
    /// `Erased` where the content of the revision was erased.
    pub fn check_not_erased(&self) -> Result<()> {
        self.record.check_not_erased()
    }
}

/// A render as part of its revision.
#[derive(Debug, Clone)]
pub struct RenderInfo {
    /// Its name.
    pub tid: Tid,
    /// Its properties, those of its revision included.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
    /// `false`: it was superseded, and its bodies have gone by the bucket's retention, or were left out by the
    /// archive's policy.
    pub stored: bool,
}

/// A revision with all its renders, newest first.
#[derive(Debug, Clone)]
pub struct RevisionDetail {
    /// What is known of it.
    pub record: Arc<RevisionRecord>,
    /// Its renders, newest first.
    pub renders: Vec<RenderInfo>,
}

/// A revision as a line of a page's history.
#[derive(Debug, Clone)]
pub struct RevisionSummary {
    /// What is known of it.
    pub record: Arc<RevisionRecord>,
    /// Its newest render, of those that the archive's policy kept if it kept any. What is the revision's can be read
    /// by any.
    pub tid: Tid,
    /// How many renders it has, or how many were counted: at most [`crate::MAX_COUNTED_RENDERS`], and fewer where their
    /// rows have very many bytes.
    pub renders: u64,
    /// The newest of its renders, newest first: all of them, or four.
    pub newest_renders: Vec<Tid>,
    /// The bytes of the newest render's properties. Where the archive's policy kept none of the renders, of those that
    /// are the revision's, if it has any.
    pub size: u64,
    /// `false`: it was superseded, and its bodies have gone by the bucket's retention, or it has none but those of
    /// renders, and the archive's policy kept none of these.
    pub stored: bool,
    /// Some of it cannot be read, and is not counted in the size: the row of a render, or a block of the archive, is
    /// damaged.
    pub damaged: bool,
    /// The revision's own row cannot be read: of its record the number alone is known, and of the other fields nothing.
    pub unreadable: bool,
}

impl RevisionSummary {
    /// Of a revision whose row cannot be read.
    pub fn unreadable(rev: Revision) -> Self {
        let record = RevisionRecord {
            rev,
            parent: None,
            timestamp: Timestamp::EPOCH,
            user: None,
            comment: None,
            minor: false,
            export: ExportRecord::default(),
            erased: None,
        };
        Self {
            record: Arc::new(record),
            tid: Tid::new(Timestamp::EPOCH, 0),
            renders: 0,
            newest_renders: Vec::new(),
            size: 0,
            stored: true,
            damaged: true,
            unreadable: true,
        }
    }
}

/// A revision as an export needs it.
#[derive(Debug, Clone)]
pub struct StoredRevision {
    /// What is known of it.
    pub record: Arc<RevisionRecord>,
    /// The properties that belong to the revision.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
    /// `false`: it was superseded, and its own bodies have gone by the bucket's retention.
    pub stored: bool,
    /// Its renders, oldest first, each with the properties that are its own.
    pub renders: Vec<RenderInfo>,
}

/// A part of a listing, and where the next begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T, P> {
    /// The part.
    pub items: Vec<T>,
    /// What to give as `after` for the next part; `None` at the end.
    pub next: Option<P>,
}

/// A property that is to be stored.
#[derive(Debug, Clone)]
pub struct NewProperty {
    /// Its name; given once in a write.
    pub name: PropertyName,
    /// Its content type; `None`: that of its definition.
    pub content_type: Option<String>,
    /// Its other headers, their names in lower case.
    pub other_headers: BTreeMap<String, String>,
    /// Its bytes.
    pub body: Staged,
}

/// A revision that is to be stored, with its first render.
#[derive(Debug, Clone)]
pub struct NewRevision {
    /// Its number.
    pub rev: Revision,
    /// What it was made from, where that is known. Not itself.
    pub parent: Option<Parent>,
    /// When it was made, for history; `None`: now.
    pub timestamp: Option<Timestamp>,
    /// Who made it.
    pub user: Option<String>,
    /// The summary.
    pub comment: Option<String>,
    /// Whether it is minor.
    pub minor: bool,
    /// Store it only if the latest revision is this one.
    pub if_latest: Option<Parent>,
    /// Its properties; at least one.
    pub properties: Vec<NewProperty>,
}

impl NewRevision {
    /// A revision made now, of which nothing but this is known, and on no condition.
    pub fn new(rev: Revision, properties: Vec<NewProperty>) -> Self {
        Self {
            rev,
            parent: None,
            timestamp: None,
            user: None,
            comment: None,
            minor: false,
            if_latest: None,
            properties,
        }
    }
}

/// What a new render is a render of, and takes over from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderBase {
    /// The newest render of this revision.
    Revision(Revision),
    /// This render.
    Render(Tid),
}

/// A render that is to be stored.
#[derive(Debug, Clone)]
pub struct NewRender {
    /// What it is based on.
    pub base: RenderBase,
    /// When it was made, for history: then it is taken as it is. `None`: now.
    pub timestamp: Option<Timestamp>,
    /// Store it only if the latest revision is this one.
    pub if_latest: Option<Parent>,
    /// Its properties; at least one.
    pub properties: Vec<NewProperty>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Tid,
    /// `false`: it stood so already, and nothing was changed.
    pub created: bool,
}

/// What became of a replacement in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The property's version now.
    pub version: PropertyVersion,
    /// What is known of it now.
    pub info: PropertyInfo,
    /// `false`: it stood so already, and nothing was changed.
    pub replaced: bool,
}

/// Which version a property must have for a write to it to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Any.
    Any,
    /// One of these.
    OneOf(Vec<PropertyVersion>),
}

/// A revision of history, taken as it is.
#[derive(Debug, Clone)]
pub struct ImportRevision {
    /// What is known of it.
    pub record: RevisionRecord,
    /// The properties that belong to the revision, each with the time it was last replaced in place.
    pub properties: Vec<(NewProperty, Option<Timestamp>)>,
    /// Its renders, at least one, in any order. Where none is known, one of [`Tid::imported`] without
    /// properties.
    pub renders: Vec<ImportRender>,
}

/// A render of history, taken as it is.
#[derive(Debug, Clone)]
pub struct ImportRender {
    /// Its name.
    pub tid: Tid,
    /// Its properties, each with the time it was last replaced in place.
    pub properties: Vec<(NewProperty, Option<Timestamp>)>,
}

/// What became of a revision that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// It is stored now, or some of its renders are.
    Created,
    /// It stood so already.
    Unchanged,
    /// It stands otherwise, or cannot be as it is given. Nothing of it was stored; says why.
    Conflict(String),
    /// It was erased, and stays so. Nothing of it was stored.
    Erased(Erasure),
}
