//! The types of requests that store bodies.

use std::collections::BTreeMap;

use rashomon_clock::Timestamp;

use crate::{Parent, PropertyName, Revision, RevisionRecord, Staged, Tid};

/// A property to be stored.
#[derive(Debug, Clone)]
pub struct NewProperty {
    /// The name. A write has each name at most once.
    pub name: PropertyName,
    /// The content type. `None`: the content type in the definition of the property.
    pub content_type: Option<String>,
    /// The other headers. Their names are in lower case.
    pub other_headers: BTreeMap<String, String>,
    /// The bytes.
    pub body: Staged,
}

/// A revision to be stored, with its first render.
#[derive(Debug, Clone)]
pub struct NewRevision {
    /// The number of the revision.
    pub rev: Revision,
    /// The parent, if it is known. It is never the revision itself.
    pub parent: Option<Parent>,
    /// The time of the edit, for an edit in the past. `None` means now.
    pub timestamp: Option<Timestamp>,
    /// The user who made the edit.
    pub user: Option<String>,
    /// The edit summary.
    pub comment: Option<String>,
    /// Whether the edit is minor.
    pub minor: bool,
    /// The condition of the write: the latest revision has to be this one. With [`Parent::None`], the page must not
    /// exist. `None`: there is no condition.
    pub if_latest: Option<Parent>,
    /// The properties, at least one.
    pub properties: Vec<NewProperty>,
}

impl NewRevision {
    /// Creates a revision with only a number and properties, made now, and without a condition.
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

/// The base of a new render: its revision, and the render from which it takes over properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderBase {
    /// The newest render of this revision.
    Revision(Revision),
    /// This render.
    Render(Tid),
}

/// A render to be stored.
#[derive(Debug, Clone)]
pub struct NewRender {
    /// The base of the render.
    pub base: RenderBase,
    /// The time of the render, for a render in the past. Such a render takes no properties over from its base. `None`
    /// means now.
    pub timestamp: Option<Timestamp>,
    /// The condition of the write: the latest revision has to be this one. `None`: there is no condition.
    pub if_latest: Option<Parent>,
    /// The properties, at least one.
    pub properties: Vec<NewProperty>,
}

/// A revision of an imported history.
#[derive(Debug, Clone)]
pub struct ImportRevision {
    /// The record of the revision.
    pub record: RevisionRecord,
    /// The properties of the revision, each with the time at which it was last replaced in place.
    pub properties: Vec<(NewProperty, Option<Timestamp>)>,
    /// The renders, at least one, in any order. If no render is known, this is a single render without properties, with
    /// the tid [`Tid::imported`].
    pub renders: Vec<ImportRender>,
}

/// A render of an imported history.
#[derive(Debug, Clone)]
pub struct ImportRender {
    /// The name of the render.
    pub tid: Tid,
    /// The properties, each with the time at which it was last replaced in place.
    pub properties: Vec<(NewProperty, Option<Timestamp>)>,
}
