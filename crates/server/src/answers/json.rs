//! The JSON answers. The order of their members is fixed.

mod buckets;

use std::collections::BTreeMap;

use rashomon_clock::rfc3339;
use rashomon_pages::{
    Listing, Page, Parent, PropertyInfo, PropertyName, Render, RenderInfo, Revision, RevisionDetail,
    RevisionRecord, RevisionSummary, Shown, Tid, Written, visible,
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(crate) use self::buckets::{
    BucketJson, BucketListJson, BucketSummaryJson, CounterJson, CounterSummaryJson, EntryListJson,
    EntrySummaryJson, ListItemJson, bucket,
};
use crate::answers::page_token::list_href;

/// Serialises a document that quotes a request, such as a problem. Many clients print it, so characters of its strings
/// that are unsafe to show are escaped.
pub(crate) fn to_shown_json(document: &impl Serialize) -> String {
    let json = serde_json::to_string(document).unwrap_or_default();
    visible(&json, Shown::AsJson).into_owned()
}

/// A property of a render.
#[derive(Serialize, ToSchema)]
#[schema(as = Property)]
struct PropertyJson<'a> {
    /// The stored content type.
    content_type: &'a str,
    /// The size in bytes; absent if the property is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size: Option<u64>,
    /// The SHA-1 of the bytes, in lower-case hex; absent if the property is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[0-9a-f]{40}$")]
    sha1: Option<String>,
    /// `true` if the bytes cannot be read because a block of the archive is damaged; else absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    damaged: bool,
    /// The URL of the bytes, relative to the page.
    href: String,
}

type PropertiesJson<'a> = BTreeMap<&'a str, PropertyJson<'a>>;

fn properties(tid: Tid, properties: &BTreeMap<PropertyName, PropertyInfo>) -> PropertiesJson<'_> {
    let mut json = BTreeMap::new();
    for (name, info) in properties {
        let damaged = info.is_damaged();
        let property = PropertyJson {
            content_type: &info.headers.content_type,
            size: (!damaged).then_some(info.size),
            sha1: (!damaged).then(|| info.sha1.to_string()),
            damaged,
            href: format!("?rev/{tid}/{name}"),
        };
        json.insert(name.as_str(), property);
    }
    json
}

/// Returns the number of a parent; `None` if there is no parent, or if it is unknown.
fn parent_number(parent: Option<Parent>) -> Option<i64> {
    parent.map(Parent::to_number).filter(|number| *number != 0)
}

/// Returns a text; `None` if it is empty.
fn text(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|text| !text.is_empty())
}

/// A render: `?rev/latest/`, `?rev/{tid}/`, and the member `latest` of a problem of type `not-latest`.
#[derive(Serialize, ToSchema)]
#[schema(as = Render)]
pub(crate) struct RenderJson<'a> {
    /// The wiki.
    domain: &'a str,
    /// The title of the page, with `_` for spaces.
    title: &'a str,
    /// The number of the revision.
    #[schema(minimum = 1)]
    rev: i64,
    /// The number of the parent revision; `null` if there is none or it is unknown.
    #[schema(required = true)]
    parent: Option<i64>,
    /// The identifier of the render.
    #[schema(value_type = String, format = "uuid")]
    tid: Tid,
    /// The time of the render, which is part of its tid.
    #[schema(format = DateTime)]
    timestamp: String,
    /// The author of the revision: a name or an IP address.
    #[schema(required = true)]
    user: Option<&'a str>,
    /// The edit summary of the revision.
    #[schema(required = true)]
    comment: Option<&'a str>,
    /// Whether the revision is marked as minor.
    minor: bool,
    /// Time and author of the erasure; absent if the content was not erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ErasureJson<'_>>, nullable = false)]
    erased: Option<ErasureJson<'a>>,
    /// The URL, relative to the page.
    href: String,
    /// The properties by name, including those of the revision.
    #[schema(value_type = BTreeMap<String, PropertyJson<'_>>)]
    properties: PropertiesJson<'a>,
}

/// Makes the document of a render.
pub(crate) fn render<'a>(page: &'a Page, render: &'a Render) -> RenderJson<'a> {
    let RevisionRecord { rev, parent, user, comment, minor, .. } = &*render.record;
    RenderJson {
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        rev: rev.get(),
        parent: parent_number(*parent),
        tid: render.tid,
        timestamp: rfc3339::format(render.tid.time()),
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        erased: erased(&render.record),
        href: render_href(render.tid),
        properties: properties(render.tid, &render.properties),
    }
}

/// Makes a render, or `null`, as a part of another document. The members keep their order, which a `Value` would not
/// preserve.
pub(crate) fn render_or_null(page: &Page, of: Option<&Render>) -> Box<RawValue> {
    let json = of.map(|of| render(page, of));
    serde_json::value::to_raw_value(&json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A render, as part of a revision.
#[derive(Serialize, ToSchema)]
#[schema(as = RenderOfRevision)]
struct RenderOfRevisionJson<'a> {
    /// The identifier of the render.
    #[schema(value_type = String, format = "uuid")]
    tid: Tid,
    /// The time of the render, which is part of its tid.
    #[schema(format = DateTime)]
    timestamp: String,
    /// The URL, relative to the page.
    href: String,
    /// `false` if the bodies are no longer stored because the render was superseded; else absent.
    #[serde(skip_serializing_if = "is_true")]
    #[schema(required = false)]
    stored: bool,
    /// The properties by name, including those of the revision.
    #[schema(value_type = BTreeMap<String, PropertyJson<'_>>)]
    properties: PropertiesJson<'a>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_true(value: &bool) -> bool {
    *value
}

/// The erasure of a revision's content.
#[derive(Serialize, ToSchema)]
#[schema(as = Erasure)]
struct ErasureJson<'a> {
    /// The time of the erasure.
    #[schema(format = DateTime)]
    at: String,
    /// The author of the erasure; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<&'a str>,
}

fn erased(record: &RevisionRecord) -> Option<ErasureJson<'_>> {
    let erasure = record.erased.as_ref()?;
    Some(ErasureJson { at: rfc3339::format(erasure.at), by: erasure.by.as_deref() })
}

/// A revision: `?rev/12345/`.
#[derive(Serialize, ToSchema)]
#[schema(as = Revision)]
pub(crate) struct RevisionJson<'a> {
    /// The number of the revision.
    #[schema(minimum = 1)]
    rev: i64,
    /// The number of the parent revision; `null` if there is none or it is unknown.
    #[schema(required = true)]
    parent: Option<i64>,
    /// The time of the edit: as given, else the time of the first write.
    #[schema(format = DateTime)]
    timestamp: String,
    /// The author: a name or an IP address.
    #[schema(required = true)]
    user: Option<&'a str>,
    /// The edit summary.
    #[schema(required = true)]
    comment: Option<&'a str>,
    /// Whether the revision is marked as minor.
    minor: bool,
    /// Time and author of the erasure; absent if the content was not erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ErasureJson<'_>>, nullable = false)]
    erased: Option<ErasureJson<'a>>,
    /// The URL, relative to the page.
    href: String,
    /// The renders, newest first; not all of them if there is a `next`.
    renders: Vec<RenderOfRevisionJson<'a>>,
    /// The URL of the next renders, relative to the page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// Makes the document of a revision with a part of its renders. `limit` is the requested number of renders;
/// the link to the next part repeats it.
pub(crate) fn revision<'a>(
    detail: &'a RevisionDetail,
    next: Option<Tid>,
    limit: Option<usize>,
) -> RevisionJson<'a> {
    let RevisionRecord { rev, parent, timestamp, user, comment, minor, .. } = &*detail.record;
    let json = RevisionJson {
        rev: rev.get(),
        parent: parent_number(*parent),
        timestamp: rfc3339::format(*timestamp),
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        erased: erased(&detail.record),
        href: revision_href(*rev),
        renders: Vec::new(),
        next: None,
    };
    let renders = detail.renders.iter().map(|RenderInfo { tid, properties: of_render, stored }| {
        let render = RenderOfRevisionJson {
            tid: *tid,
            timestamp: rfc3339::format(tid.time()),
            href: render_href(*tid),
            stored: *stored,
            properties: properties(*tid, of_render),
        };
        (render, *tid)
    });
    let (renders, next) = fitting(renders, next);
    let next = next.map(|after| list_href(&json.href, limit, Some(after)));
    RevisionJson { renders, next, ..json }
}

/// The maximum size of the entries in a part of a JSON list. The first entry is always included, even if it is larger.
pub(crate) const MAX_RESULT_PAGE_BYTES: usize = 1 << 20;

/// Returns the entries that fit into a part of at most [`MAX_RESULT_PAGE_BYTES`], and always the first one. Also
/// returns the position after which the next part begins. `next` is that position if all entries fit.
fn fitting<T: Serialize, P: Copy>(
    entries: impl Iterator<Item = (T, P)>,
    next: Option<P>,
) -> (Vec<T>, Option<P>) {
    let (mut fitting, mut last, mut bytes) = (Vec::new(), None, 0);
    for (entry, position) in entries {
        bytes += size_in_json(&entry);
        if bytes > MAX_RESULT_PAGE_BYTES && last.is_some() {
            return (fitting, last);
        }
        fitting.push(entry);
        last = Some(position);
    }
    (fitting, next)
}

/// Returns the size of a document in JSON. An error of serialisation is ignored here, since it occurs again when the
/// answer is written.
fn size_in_json(document: &impl Serialize) -> usize {
    let mut counter = ByteCounter::default();
    let _ = serde_json::to_writer(&mut counter, document);
    counter.0
}

/// Counts the bytes that are written to it.
#[derive(Default)]
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A revision, as an entry of the list.
#[derive(Serialize, ToSchema)]
#[schema(as = RevisionSummary)]
struct SummaryJson<'a> {
    /// The number of the revision.
    #[schema(minimum = 1)]
    rev: i64,
    /// The number of the parent revision; `null` if there is none or it is unknown.
    #[schema(required = true)]
    parent: Option<i64>,
    /// The time of the edit: as given, else the time of the first write. Absent if the row of the revision is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    timestamp: Option<String>,
    /// The newest render whose bodies are stored, else the newest render. Absent if the row of the revision is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    tid: Option<Tid>,
    /// The number of renders, counted up to 5,000, or to fewer if their rows are very large.
    renders: u64,
    /// The total size in bytes of the undamaged properties of the revision and of the render `tid`, whether or
    /// not they are still stored. If the archive kept only properties of the revision, or if the rows of all
    /// renders are damaged, only the properties of the revision count.
    size: u64,
    /// `true` if a part of the revision cannot be read, because a row, or a block of the archive, is damaged; else
    /// absent. If the row of the revision itself is damaged, only the number is known: `timestamp` and `tid` are
    /// absent, and the other members have no meaning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    damaged: bool,
    /// `false` if no body is stored any more because the revision was superseded; else absent.
    #[serde(skip_serializing_if = "is_true")]
    #[schema(required = false)]
    stored: bool,
    /// The author: a name or an IP address.
    #[schema(required = true)]
    user: Option<&'a str>,
    /// The edit summary.
    #[schema(required = true)]
    comment: Option<&'a str>,
    /// Whether the revision is marked as minor.
    minor: bool,
    /// Time and author of the erasure; absent if the content was not erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ErasureJson<'_>>, nullable = false)]
    erased: Option<ErasureJson<'a>>,
    /// The URL, relative to the page.
    href: String,
}

/// The list of revisions: `?rev/`.
#[derive(Serialize, ToSchema)]
#[schema(as = RevisionList)]
pub(crate) struct RevisionListJson<'a> {
    /// The wiki.
    domain: &'a str,
    /// The title of the page, with `_` for spaces.
    title: &'a str,
    /// The revisions, latest first.
    revisions: Vec<SummaryJson<'a>>,
    /// The URL of the next revisions, relative to the page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// Makes the document of a part of the revision list. `limit` is the requested number of revisions; the link
/// to the next part repeats it.
pub(crate) fn revision_list<'a>(
    page: &'a Page,
    listing: &'a Listing<RevisionSummary, Revision>,
    limit: Option<usize>,
) -> RevisionListJson<'a> {
    let lines = listing.items.iter().map(|line| (summary(line), line.record.rev));
    let (revisions, next) = fitting(lines, listing.next);
    RevisionListJson {
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        revisions,
        next: next.map(|after| list_href("?rev/", limit, Some(after))),
    }
}

fn summary(summary: &RevisionSummary) -> SummaryJson<'_> {
    let RevisionRecord { rev, parent, timestamp, user, comment, minor, .. } = &*summary.record;
    SummaryJson {
        rev: rev.get(),
        parent: parent_number(*parent),
        timestamp: (!summary.unreadable).then(|| rfc3339::format(*timestamp)),
        tid: (!summary.unreadable).then_some(summary.tid),
        renders: summary.renders,
        size: summary.size,
        damaged: summary.damaged,
        stored: summary.stored,
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        erased: erased(&summary.record),
        href: revision_href(*rev),
    }
}

/// The answer to a write.
#[derive(Serialize, ToSchema)]
#[schema(as = Written)]
pub(crate) struct WrittenJson<'a> {
    /// `Created`, `Unchanged` or `Replaced`.
    message: &'static str,
    /// The wiki.
    domain: &'a str,
    /// The title of the page, with `_` for spaces.
    title: &'a str,
    /// The revision.
    #[schema(minimum = 1)]
    rev: i64,
    /// The render.
    #[schema(value_type = String, format = "uuid")]
    tid: Tid,
    /// The URL of the render, relative to the page.
    pub href: String,
}

/// Makes the document of a write.
pub(crate) fn written<'a>(page: &'a Page, message: &'static str, written: &Written) -> WrittenJson<'a> {
    WrittenJson {
        message,
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        rev: written.rev.get(),
        tid: written.tid,
        href: render_href(written.tid),
    }
}

/// The link to a render, relative to its page.
pub(crate) fn render_href(tid: Tid) -> String {
    format!("?rev/{tid}/")
}

fn revision_href(rev: Revision) -> String {
    format!("?rev/{rev}/")
}
