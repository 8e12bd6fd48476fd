//! The JSON documents in answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{RevisionNumber, Tid, Timestamp};

/// A render, with the metadata of its revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Render {
    /// The wiki.
    pub domain: String,
    /// The title of the page, with `_` for spaces.
    pub title: String,
    /// The number of the revision.
    #[serde(rename = "rev")]
    pub number: RevisionNumber,
    /// The number of the parent revision. `None` if there is none, or if the number is unknown.
    pub parent: Option<RevisionNumber>,
    /// The name of the render.
    pub tid: Tid,
    /// The time of the render, which is part of its tid.
    pub timestamp: Timestamp,
    /// The author of the revision: a name or an IP address.
    pub user: Option<String>,
    /// The edit summary of the revision.
    pub comment: Option<String>,
    /// Whether the revision is marked as minor.
    #[serde(default)]
    pub minor: bool,
    /// Time and author of the erasure. `None` if the content was not erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased: Option<Erasure>,
    /// The properties by name, including those of the revision.
    pub properties: BTreeMap<String, PropertyInfo>,
}

/// A property of a render, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PropertyInfo {
    /// The stored content type.
    pub content_type: String,
    /// The size in bytes. `None` if the property is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-1 of the bytes, in lower-case hex. `None` if the property is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// Whether the bytes cannot be read because the stored data is damaged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub damaged: bool,
}

/// The erasure of a revision's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Erasure {
    /// The time of the erasure.
    pub at: Timestamp,
    /// The author of the erasure. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A revision, with summaries of its newest renders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Revision {
    /// The number of the revision.
    #[serde(rename = "rev")]
    pub number: RevisionNumber,
    /// The number of the parent revision. `None` if there is none, or if the number is unknown.
    pub parent: Option<RevisionNumber>,
    /// The time of the edit as the writer specified it, else the time of the first write.
    pub timestamp: Timestamp,
    /// The author: a name or an IP address.
    pub user: Option<String>,
    /// The edit summary.
    pub comment: Option<String>,
    /// Whether the revision is marked as minor.
    #[serde(default)]
    pub minor: bool,
    /// Time and author of the erasure. `None` if the content was not erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased: Option<Erasure>,
    /// The first result page of the renders, newest first. [`Page::renders`](crate::Page::renders) lists all of them.
    pub renders: Vec<RenderSummary>,
}

/// A render, as an entry of the list of a revision's renders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RenderSummary {
    /// The name of the render.
    pub tid: Tid,
    /// The time of the render, which is part of its tid.
    pub timestamp: Timestamp,
    /// Whether the bodies are stored. They may have been deleted because the render was superseded.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub stored: bool,
    /// The properties by name, including those of the revision.
    pub properties: BTreeMap<String, PropertyInfo>,
}

/// A revision, as an entry of the revision list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RevisionSummary {
    /// The number of the revision.
    #[serde(rename = "rev")]
    pub number: RevisionNumber,
    /// The number of the parent revision. `None` if there is none, or if the number is unknown.
    pub parent: Option<RevisionNumber>,
    /// The time of the edit as the writer specified it, else the time of the first write. `None` if the revision is
    /// damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// The newest render whose bodies are stored, else the newest render. `None` if the revision is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<Tid>,
    /// The number of renders, counted up to 5,000.
    pub renders: u64,
    /// The total size in bytes of the undamaged properties of the render [`tid`](Self::tid), whether or not they are
    /// still stored.
    pub size: u64,
    /// Whether a part of the revision cannot be read because the stored data is damaged. Without a
    /// [`tid`](Self::tid), only the number is known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub damaged: bool,
    /// Whether any body is stored. The bodies may have been deleted because the revision was superseded.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub stored: bool,
    /// The author: a name or an IP address.
    pub user: Option<String>,
    /// The edit summary.
    pub comment: Option<String>,
    /// Whether the revision is marked as minor.
    #[serde(default)]
    pub minor: bool,
    /// Time and author of the erasure. `None` if the content was not erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased: Option<Erasure>,
}

/// The answer to a write of a page. The write is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Written {
    /// What the write has changed.
    #[serde(rename = "message")]
    pub outcome: Outcome,
    /// The wiki.
    pub domain: String,
    /// The title of the page, with `_` for spaces.
    pub title: String,
    /// The number of the revision.
    #[serde(rename = "rev")]
    pub number: RevisionNumber,
    /// The name of the render.
    pub tid: Tid,
}

/// What a write has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Outcome {
    /// The revision or the render is new.
    Created,
    /// The same content was stored already. A repeated write has this outcome.
    Unchanged,
    /// The bytes of a property were replaced.
    Replaced,
    /// An outcome that this version of the client does not know. The service is newer.
    #[serde(other)]
    Other,
}

const fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_true(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first JSON example in the section `name` of `docs/http-api.md`.
    fn example(name: &str) -> &'static str {
        let page = include_str!("../../../docs/http-api.md");
        let (_, section) = page.split_once(&format!("\n### {name}\n")).unwrap();
        section.split("```").nth(1).unwrap().strip_prefix("json").unwrap()
    }

    #[test]
    fn documents_of_the_api_are_read() {
        let render: Render = serde_json::from_str(example("Render")).unwrap();
        assert_eq!((render.number.get(), render.user.as_deref()), (12345, Some("Ann")));
        assert_eq!(render.timestamp, render.tid.time());
        assert_eq!(render.properties["html"].size, Some(7021));
        let again = serde_json::from_value::<Render>(serde_json::to_value(&render).unwrap()).unwrap();
        assert_eq!(again, render);
        let revision: Revision = serde_json::from_str(example("Revision")).unwrap();
        assert!(revision.renders[0].stored && revision.renders[0].tid == render.tid);
        let written: Written = serde_json::from_str(example("Written")).unwrap();
        assert_eq!((written.outcome, written.tid), (Outcome::Created, render.tid));
    }

    #[test]
    fn damaged_revision_without_a_tid_is_parsed() {
        let damaged = r#"{"rev": 2, "parent": null, "renders": 0, "size": 0, "damaged": true, "stored": false,
            "user": null, "comment": null, "minor": false, "href": "?rev/2/"}"#;
        let summary: RevisionSummary = serde_json::from_str(damaged).unwrap();
        assert_eq!((summary.tid, summary.damaged, summary.stored), (None, true, false));
    }
}
