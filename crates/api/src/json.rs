//! The answers in JSON, each member in the order of the design.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rashomon_buckets::{
    Listing, Page, Parent, PropertyInfo, PropertyName, Render, RenderInfo, Revision, RevisionDetail,
    RevisionRecord, RevisionSummary, Tid, Written,
};
use serde::Serialize;

use crate::{
    caching::Caching,
    conditional::{self, Verdict},
    extract::PageToken,
    no_body::NoBody,
    problem::{Kind, Problem, Result},
    times,
};

/// A property, in a render.
#[derive(Serialize)]
struct PropertyJson<'a> {
    content_type: &'a str,
    size: u64,
    sha1: String,
    href: String,
}

type PropertiesJson<'a> = BTreeMap<&'a str, PropertyJson<'a>>;

fn properties(tid: Tid, properties: &BTreeMap<PropertyName, PropertyInfo>) -> PropertiesJson<'_> {
    let mut json = BTreeMap::new();
    for (name, PropertyInfo { headers, size, sha1, .. }) in properties {
        let href = format!("?rev/{tid}/{name}");
        let property =
            PropertyJson { content_type: &headers.content_type, size: *size, sha1: sha1.to_string(), href };
        json.insert(name.as_str(), property);
    }
    json
}

/// The number of a parent; absent where there is none, or none is known.
fn parent_number(parent: Option<Parent>) -> Option<i64> {
    parent.map(Parent::to_number).filter(|number| *number != 0)
}

/// A text; absent where it is empty.
fn text(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|text| !text.is_empty())
}

/// A render: `?rev/latest/`, `?rev/{tid}/`, and the `latest` of a conflict.
#[derive(Serialize)]
pub(crate) struct RenderJson<'a> {
    domain: &'a str,
    title: &'a str,
    rev: i64,
    parent: Option<i64>,
    tid: Tid,
    timestamp: String,
    user: Option<&'a str>,
    comment: Option<&'a str>,
    minor: bool,
    href: String,
    properties: PropertiesJson<'a>,
}

/// A render.
pub(crate) fn render<'a>(page: &'a Page, render: &'a Render) -> RenderJson<'a> {
    let RevisionRecord { rev, parent, user, comment, minor, .. } = &*render.record;
    RenderJson {
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        rev: rev.get(),
        parent: parent_number(*parent),
        tid: render.tid,
        timestamp: times::format_rfc3339(render.tid.time()),
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        href: render_href(render.tid),
        properties: properties(render.tid, &render.properties),
    }
}

/// A render, as a value.
pub(crate) fn render_value(page: &Page, of: &Render) -> serde_json::Value {
    serde_json::to_value(render(page, of)).unwrap_or_default()
}

/// A render, in its revision.
#[derive(Serialize)]
struct RenderOfRevisionJson<'a> {
    tid: Tid,
    timestamp: String,
    href: String,
    properties: PropertiesJson<'a>,
}

/// A revision: `?rev/12345/`.
#[derive(Serialize)]
pub(crate) struct RevisionJson<'a> {
    rev: i64,
    parent: Option<i64>,
    timestamp: String,
    user: Option<&'a str>,
    comment: Option<&'a str>,
    minor: bool,
    href: String,
    renders: Vec<RenderOfRevisionJson<'a>>,
}

/// A revision with its renders.
pub(crate) fn revision(detail: &RevisionDetail) -> RevisionJson<'_> {
    let RevisionRecord { rev, parent, timestamp, user, comment, minor, .. } = &*detail.record;
    RevisionJson {
        rev: rev.get(),
        parent: parent_number(*parent),
        timestamp: times::format_rfc3339(*timestamp),
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        href: revision_href(*rev),
        renders: (detail.renders.iter())
            .map(|RenderInfo { tid, properties: of_render }| RenderOfRevisionJson {
                tid: *tid,
                timestamp: times::format_rfc3339(tid.time()),
                href: render_href(*tid),
                properties: properties(*tid, of_render),
            })
            .collect(),
    }
}

/// A revision, as a line of the list.
#[derive(Serialize)]
struct SummaryJson<'a> {
    rev: i64,
    parent: Option<i64>,
    timestamp: String,
    tid: Tid,
    renders: u64,
    size: u64,
    user: Option<&'a str>,
    comment: Option<&'a str>,
    minor: bool,
    href: String,
}

/// The list of revisions: `?rev/`.
#[derive(Serialize)]
pub(crate) struct RevisionListJson<'a> {
    domain: &'a str,
    title: &'a str,
    revisions: Vec<SummaryJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A page of the list of revisions; the next one is as long, where a length was asked for.
pub(crate) fn revision_list<'a>(
    page: &'a Page,
    listing: &'a Listing<RevisionSummary, Revision>,
    limit: Option<usize>,
) -> RevisionListJson<'a> {
    RevisionListJson {
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        revisions: listing.items.iter().map(summary).collect(),
        next: listing.next.map(|after| next_page("?rev/", limit, &PageToken(after).to_string())),
    }
}

/// The link to the next page of a list.
pub(crate) fn next_page(list: &str, limit: Option<usize>, token: &str) -> String {
    let limit = limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
    format!("{list}{limit}&page={token}")
}

fn summary(summary: &RevisionSummary) -> SummaryJson<'_> {
    let RevisionRecord { rev, parent, timestamp, user, comment, minor, .. } = &*summary.record;
    SummaryJson {
        rev: rev.get(),
        parent: parent_number(*parent),
        timestamp: times::format_rfc3339(*timestamp),
        tid: summary.tid,
        renders: summary.renders,
        size: summary.size,
        user: text(user.as_ref()),
        comment: text(comment.as_ref()),
        minor: *minor,
        href: revision_href(*rev),
    }
}

/// The answer to a write.
#[derive(Serialize)]
pub(crate) struct WrittenJson<'a> {
    message: &'static str,
    domain: &'a str,
    title: &'a str,
    rev: i64,
    tid: Tid,
    href: String,
}

/// The answer to a write: 201 with `Created`, or 200 with what else became of it.
pub(crate) fn written(page: &Page, status: StatusCode, message: &'static str, written: &Written) -> Response {
    let href = render_href(written.tid);
    let location = href.clone();
    let body = WrittenJson {
        message,
        domain: page.domain.as_str(),
        title: page.title.as_str(),
        rev: written.rev.get(),
        tid: written.tid,
        href,
    };
    let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type("written"));
    headers.insert(header::CACHE_CONTROL, Caching::NoStore.header());
    headers.insert(header::LOCATION, crate::problem::header_value(&location));
    response
}

/// The link to a render, relative to its page.
pub(crate) fn render_href(tid: Tid) -> String {
    format!("?rev/{tid}/")
}

fn revision_href(rev: Revision) -> String {
    format!("?rev/{rev}/")
}

/// `application/json` with the profile of one of our documents.
fn content_type(name: &str) -> HeaderValue {
    crate::problem::header_value(&format!("application/json; profile=\"urn:rashomon:{name}/1.0\""))
}

/// A document that can be kept and asked for again: 200 with an entity tag of its bytes, or 304, or 412.
pub(crate) fn answer<T: Serialize>(request: &HeaderMap, name: &str, document: &T) -> Result<Response> {
    let body = serde_json::to_vec(document).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    document_answer(request, content_type(name), body)
}

/// The same for a document in any format.
pub(crate) fn document_answer(
    request: &HeaderMap,
    content_type: HeaderValue,
    body: Vec<u8>,
) -> Result<Response> {
    let etag = format!("\"{:032x}\"", xxhash_rust::xxh3::xxh3_128(&body));
    let mut response = match conditional::evaluate(request, &etag, None) {
        Verdict::Failed => {
            return Err(Problem::new(
                Kind::PreconditionFailed,
                "the document is no longer the one that If-Match names",
            ));
        }
        Verdict::NotModified { .. } => {
            let mut response = Response::new(NoBody.into());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        Verdict::Proceed => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, crate::problem::header_value(&etag));
    headers.insert(header::CACHE_CONTROL, Caching::Mutable.header());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
