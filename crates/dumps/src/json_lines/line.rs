//! The lines of the format, as types for serde.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{
    Erasure, ExportRecord, PageInfo, Parent, PropertyName, RequestHeaders, Revision, RevisionRecord,
    SiteInfo, Tid, Title, excerpt,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{LeftOutReason, Problem, SourceProperty, timestamps};

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Siteinfo,
    Page,
    Revision,
    Render,
    End,
}

/// Any line: only its member `kind` is read.
#[derive(Debug, Deserialize)]
pub(super) struct AnyLine {
    pub(super) kind: Kind,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteLine {
    pub(super) kind: Kind,
    pub(super) version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<SiteInfo>,
}

/// The beginning of a page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageLine {
    pub(super) kind: Kind,
    /// Checked later, so that an invalid title affects only its page.
    pub(super) title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) info: Option<PageInfo>,
}

impl PageLine {
    pub(super) fn new(title: &Title, info: Option<&PageInfo>) -> Self {
        Self { kind: Kind::Page, title: title.as_str().to_owned(), info: info.cloned() }
    }
}

/// A revision of the last page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionLine {
    pub(super) kind: Kind,
    /// Checked later, so that an invalid number affects only its revision.
    pub(super) rev: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) comment: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) minor: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) export: ExportRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) erased: Option<ErasureValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) properties: BTreeMap<PropertyName, PropertyValue>,
}

impl RevisionLine {
    pub(super) fn new(record: &RevisionRecord, properties: BTreeMap<PropertyName, PropertyValue>) -> Self {
        Self {
            kind: Kind::Revision,
            rev: Number(Some(record.rev.get())),
            parent: record.parent.map(Parent::to_number),
            timestamp: Some(rfc3339::format(record.timestamp)),
            user: record.user.clone(),
            comment: record.comment.clone(),
            minor: record.minor,
            export: record.export.clone(),
            erased: record.erased.as_ref().map(ErasureValue::new),
            properties,
        }
    }
}

/// The record that the content of a revision was erased.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErasureValue {
    pub(super) at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl ErasureValue {
    fn new(erasure: &Erasure) -> Self {
        Self { at: Time(erasure.at), by: erasure.by.clone(), reason: erasure.reason.clone() }
    }

    pub(super) fn to_erasure(&self) -> Erasure {
        Erasure { at: self.at.0, by: self.by.clone(), reason: self.reason.clone() }
    }
}

/// A render of the last revision.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RenderLine {
    pub(super) kind: Kind,
    pub(super) tid: Tid,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) properties: BTreeMap<PropertyName, PropertyValue>,
}

/// The last line. An input without it is truncated.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    pub(super) kind: Kind,
    pub(super) pages: u64,
    pub(super) revisions: u64,
    pub(super) renders: u64,
}

/// The fault of a line that is JSON.
#[derive(Debug)]
pub(super) enum Fault {
    /// The line does not conform to the format, so the following lines may mean something else.
    Problem(Problem),
    /// The line conforms to the format, but its content cannot be stored.
    LeftOut(LeftOutReason),
}

impl From<LeftOutReason> for Fault {
    fn from(reason: LeftOutReason) -> Self {
        Self::LeftOut(reason)
    }
}

/// A property: its bytes as `text` if they are UTF-8, or else as `base64`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PropertyValue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rewritten_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha1: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

impl PropertyValue {
    /// Converts the value to a property, or returns its fault.
    pub(super) fn into_property(self, name: PropertyName) -> Result<SourceProperty, Fault> {
        let malformed = |what| Fault::Problem(Problem::Malformed(what));
        let content_type = self.content_type.iter().map(|value| ("content-type", value.as_str()));
        let others = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = match RequestHeaders::parse_any(content_type.chain(others)) {
            Ok(headers) => headers,
            Err(fault) => return Err(LeftOutReason::BadProperty { name, fault }.into()),
        };
        let body = match (self.text, self.base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => {
                let bytes = BASE64_STANDARD.decode(base64);
                bytes
                    .map_err(|error| malformed(format!("property {name} has invalid base64: {error}")))?
                    .into()
            }
            _ => return Err(malformed(format!("property {name} needs exactly one of `text` and `base64`"))),
        };
        Ok(SourceProperty {
            name,
            content_type: headers.content_type,
            other_headers: headers.other,
            rewritten_at: self.rewritten_at.map(|Time(time)| time),
            sha1: self.sha1,
            body,
        })
    }

    /// Sets the bytes: as text if they are UTF-8.
    pub(super) fn set_body(&mut self, body: &[u8]) {
        match std::str::from_utf8(body) {
            Ok(text) => self.text = Some(text.to_owned()),
            Err(_) => self.base64 = Some(BASE64_STANDARD.encode(body)),
        }
    }
}

/// A time of RFC 3339.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339::format(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = timestamps::parse(&text);
        time.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "{:?} is not a time of RFC 3339 from 1583 to 5235 with at most six digits after the second",
                excerpt(&text)
            ))
        })
    }
}

/// A number, or `None` if the line has something else in its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(pub(super) Option<i64>);

impl Number {
    pub(super) fn to_revision(self) -> Option<Revision> {
        self.0.and_then(Revision::new)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(value.as_i64()))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
