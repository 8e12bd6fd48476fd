//! The types of records and results: revisions, renders and properties, without their bodies.

use std::{collections::BTreeMap, sync::Arc};

use rashomon_clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Error, Headers, PropertyName, PropertyVersion, Result, Revision, Sha1, Tid};

/// The revision from which an edit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The revision has no parent: it is the first revision of the page.
    None,
    /// The parent is this revision, which need not be stored.
    Revision(Revision),
}

impl Parent {
    /// Returns the number that requests and rows use: 0 for [`Self::None`].
    #[must_use]
    pub const fn to_number(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Revision(rev) => rev.get(),
        }
    }

    /// Decodes the number of [`Self::to_number`]. `None` for a negative number.
    #[must_use]
    pub const fn from_number(number: i64) -> Option<Self> {
        match Revision::new(number) {
            Some(rev) => Some(Self::Revision(rev)),
            None if number == 0 => Some(Self::None),
            None => None,
        }
    }
}

/// The record of a revision: all its data except the renders and the properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionRecord {
    /// The number of the revision.
    pub rev: Revision,
    /// The parent; `None` if it is unknown.
    pub parent: Option<Parent>,
    /// The time of the edit: the timestamp of the request or, without one, the time of the first write.
    pub timestamp: Timestamp,
    /// The user who made the edit: a name, or an IP address.
    pub user: Option<String>,
    /// The edit summary.
    pub comment: Option<String>,
    /// Whether the edit was marked as minor.
    pub minor: bool,
    /// The fields that only an export of MediaWiki has.
    pub export: ExportRecord,
    /// The erasure of the content, if the content was erased.
    pub erased: Option<Erasure>,
}

impl RevisionRecord {
    /// Fails with `Erased` if the content of the revision was erased.
    pub fn check_not_erased(&self) -> Result<()> {
        match &self.erased {
            None => Ok(()),
            Some(erasure) => Err(Error::Erased { rev: self.rev, at: erasure.at }),
        }
    }
}

/// The erasure of the content of a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erasure {
    /// The time at which the content was erased.
    #[serde(with = "micros")]
    pub at: Timestamp,
    /// The client that erased the content, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason for the erasure, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Serializes a time as a number of microseconds.
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

/// The fields of a revision that only an export of MediaWiki has. They are stored for later exports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportRecord {
    /// The number of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<i64>,
    /// Whether `user` is an IP address.
    #[serde(skip_serializing_if = "is_false")]
    pub user_is_ip: bool,
    /// Whether the user has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub user_deleted: bool,
    /// Whether the comment has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub comment_deleted: bool,
    /// The SHA-1 of the revision in the export, in base 36.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// The main slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<SlotRecord>,
    /// The other slots, by their role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<String, SlotRecord>,
}

/// The fields of one slot of a revision in an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlotRecord {
    /// The content model, such as `wikitext`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The content format, such as `text/x-wiki`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The revision with which the content was first stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<i64>,
    /// Whether the text has been hidden.
    #[serde(skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// The number of bytes of the text, as the export states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The SHA-1 of the text in the export, in base 36.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// The number of the text in the wiki's own storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The address of the text in the wiki's own storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The metadata of a stored property, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyInfo {
    /// The headers of the property.
    pub headers: Headers,
    /// The size of the body in bytes.
    pub size: u64,
    /// The SHA-1 of the body.
    pub sha1: Sha1,
    /// The time at which the property was last replaced in place, if ever.
    pub rewritten_at: Option<Timestamp>,
}

impl PropertyInfo {
    /// Whether the body is in a damaged block of the archive. The bytes of such a body cannot be read, and its size and
    /// SHA-1 are unknown.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.sha1 == Sha1::UNKNOWN
    }
}

/// A render, with the record of its revision, and its properties.
#[derive(Debug, Clone)]
pub struct Render {
    /// The record of the revision.
    pub record: Arc<RevisionRecord>,
    /// The name of the render.
    pub tid: Tid,
    /// The properties of the render, and those of its revision.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
}

impl Render {
    /// Fails with `Erased` if the content of the revision was erased.
    pub fn check_not_erased(&self) -> Result<()> {
        self.record.check_not_erased()
    }
}

/// A render as part of its revision.
#[derive(Debug, Clone)]
pub struct RenderInfo {
    /// The name of the render.
    pub tid: Tid,
    /// The properties of the render and, except in a [`StoredRevision`](crate::StoredRevision), those of its revision.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
    /// Whether the bodies are stored. `false` for a superseded render whose bodies were culled, or were not kept by the
    /// archive's policy.
    pub stored: bool,
}

/// A revision with its renders.
#[derive(Debug, Clone)]
pub struct RevisionDetail {
    /// The record of the revision.
    pub record: Arc<RevisionRecord>,
    /// The renders of the revision, newest first.
    pub renders: Vec<RenderInfo>,
}

/// A line of the revision list of a page.
#[derive(Debug, Clone)]
pub struct RevisionSummary {
    /// The record of the revision.
    pub record: Arc<RevisionRecord>,
    /// The newest render that the archive's policy kept, or the newest of all renders if the policy kept none. The
    /// properties of the revision can be read through any render.
    pub tid: Tid,
    /// The number of renders. Counting ends at `MAX_COUNTED_RENDERS`, or earlier if the rows are very large.
    pub renders: u64,
    /// The newest renders, at most four, newest first.
    pub newest_renders: Vec<Tid>,
    /// The number of bytes of the properties of the render `tid` and of the properties of the revision. If the
    /// archive's policy kept none of the renders, only the properties of the revision count. If the revision has no
    /// properties either, the properties of the render count, although their bodies are not stored.
    pub size: u64,
    /// Whether the bodies are stored. `false` for a superseded revision whose bodies were culled. Also `false` for a
    /// revision that has only properties of renders, if the archive's policy kept none of these renders.
    pub stored: bool,
    /// Whether a part of the revision cannot be read, since the row of a render or a block of the archive is damaged.
    /// The size does not include this part.
    pub damaged: bool,
    /// Whether the row of the revision itself cannot be read. If so, only the number in `record` is valid.
    pub unreadable: bool,
}

impl RevisionSummary {
    /// Creates the summary of a revision whose row cannot be read.
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

/// A result page, and the position of the next result page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T, P> {
    /// The items of the result page.
    pub items: Vec<T>,
    /// The argument `after` for the next result page; `None` at the end.
    pub next: Option<P>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Tid,
    /// Whether the write stored something. `false` if the same data was stored already.
    pub created: bool,
}

/// The result of a replacement in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The version of the property after the call.
    pub version: PropertyVersion,
    /// The metadata of the property after the call.
    pub info: PropertyInfo,
    /// Whether the property was replaced. `false` if the same body and headers were stored already.
    pub replaced: bool,
}

/// The outcome of the import of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The revision, or some of its renders, were stored.
    Created,
    /// The same revision was stored already.
    Unchanged,
    /// Nothing was stored: the revision is stored already with different content, or the input is impossible. The text
    /// gives the reason.
    Conflict(String),
    /// Nothing was stored: the content of the revision was erased before.
    Erased(Erasure),
}
