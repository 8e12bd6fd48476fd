//! One render of a page: its content, and the list of its properties.

use std::num::NonZeroUsize;

use askama::Template;
use axum::response::Response;
use rashomon_pages::{Body, Page, PropertyName, Render, RendersBeside, Revision, Tid};

use super::{
    address::PageAddresses,
    history::parent,
    html,
    notation::{self, RenderLink, Time, grouped},
};
use crate::{Api, answer::redirect, caching::Caching, json::render_href, problem::Result};

/// The maximum number of renders of the same revision that are listed before the shown render, and after it.
const MAX_RENDERS_PER_SIDE: NonZeroUsize = NonZeroUsize::new(50).expect("not zero");

/// The maximum number of bytes of a text that are shown.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The part of a render's content that the page shows.
enum Content {
    /// The HTML of the render, in a frame.
    Html,
    /// The wikitext of the render, or the beginning of it.
    Text { text: String, whole: bool },
    /// A notice that the content was erased.
    Erased(notation::Erased),
    /// A notice that the wiki of origin had hidden the text, so that there is none.
    Hidden,
    /// Nothing: the render has neither HTML nor wikitext.
    Nothing,
}

struct PropertyLine {
    name: PropertyName,
    content_type: String,
    bytes: String,
    sha1: String,
    damaged: bool,
}

#[derive(Template)]
#[template(path = "render.html")]
struct RenderPage {
    page: PageAddresses,
    rev: Revision,
    tid: Tid,
    time: Time,
    by: String,
    comment: String,
    minor: bool,
    parent: Option<Revision>,
    /// Whether this is the latest render.
    is_latest: bool,
    older: Option<Revision>,
    newer: Option<Revision>,
    content: Content,
    renders: Vec<RenderLink>,
    /// Whether there may be further renders, newer or older ones.
    more_renders: bool,
    older_render: Option<Tid>,
    newer_render: Option<Tid>,
    properties: Vec<PropertyLine>,
}

/// `?rev/12345/`: redirects to the newest render of the revision.
pub(super) async fn newest_of(api: &Api, page: &Page, rev: Revision) -> Result<Response> {
    let render = api.read_page(page, api.buckets.newest_render(page, rev)).await?;
    Ok(redirect(&render_href(render.tid), Caching::Mutable))
}

/// `?rev/latest/`: redirects to the newest render of the latest revision.
pub(super) async fn latest(api: &Api, page: &Page) -> Result<Response> {
    let render = api.read_page(page, api.buckets.latest_render(page)).await?;
    Ok(redirect(&render_href(render.tid), Caching::Mutable))
}

/// `?rev/{tid}/`
pub(super) async fn show(api: &Api, page: &Page, tid: Tid) -> Result<Response> {
    let render = api.read_page(page, api.buckets.render(page, tid)).await?;
    let record = &render.record;
    let around = futures::future::try_join3(
        api.buckets.renders_beside(page, record.rev, tid, MAX_RENDERS_PER_SIDE),
        api.buckets.revisions(page, Some(record.rev), 1),
        api.buckets.next_revision(page, record.rev),
    );
    let (RendersBeside { newer: newer_renders, older: older_renders }, older, newer) =
        api.read_page(page, around).await?;
    let (newer_render, older_render) = (newer_renders.last().copied(), older_renders.first().copied());
    let is_full = |renders: &[Tid]| renders.len() == MAX_RENDERS_PER_SIDE.get();
    let more_renders = is_full(&newer_renders) || is_full(&older_renders);
    let renders = newer_renders.into_iter().chain([tid]).chain(older_renders).map(RenderLink::from).collect();
    html(&RenderPage {
        page: PageAddresses::of(page),
        rev: record.rev,
        tid,
        time: record.timestamp.into(),
        by: notation::by(record),
        comment: notation::comment(record),
        minor: record.minor,
        parent: parent(record.parent),
        is_latest: newer.is_none() && newer_render.is_none(),
        older: older.items.first().map(|revision| revision.record.rev),
        newer,
        content: content(api, page, &render).await?,
        renders,
        more_renders,
        older_render,
        newer_render,
        properties: properties(&render),
    })
}

fn properties(render: &Render) -> Vec<PropertyLine> {
    let line = |(name, info): (&PropertyName, &rashomon_pages::PropertyInfo)| PropertyLine {
        name: name.clone(),
        content_type: info.headers.content_type.clone(),
        bytes: grouped(info.size),
        sha1: info.sha1.to_string(),
        damaged: info.is_damaged(),
    };
    render.properties.iter().map(line).collect()
}

async fn content(api: &Api, page: &Page, render: &Render) -> Result<Content> {
    if let Some(erased) = notation::erased(&render.record) {
        return Ok(Content::Erased(erased));
    }
    let has = |wanted: &str| render.properties.keys().any(|name| name.as_str() == wanted);
    if has("html") {
        Ok(Content::Html)
    } else if has("wikitext") {
        let property =
            api.read_page(page, api.buckets.property(page, render.tid, &PropertyName::wikitext())).await?;
        beginning(api, page, &property.body, property.info.size).await
    } else if notation::text_is_hidden(&render.record) {
        Ok(Content::Hidden)
    } else {
        Ok(Content::Nothing)
    }
}

/// Returns the beginning of a text, at most [`MAX_TEXT_BYTES`] bytes.
async fn beginning(api: &Api, page: &Page, body: &Body, size: u64) -> Result<Content> {
    let bytes = match body {
        Body::Inline(body) => body.plain.clone(),
        Body::Chunked(body) => api.read_page(page, body.chunk(0)).await?.plain,
    };
    let mut shown = &bytes[..bytes.len().min(MAX_TEXT_BYTES)];
    let whole = shown.len() as u64 == size;
    // If the end cuts a character in two, the character is left out.
    if let Some(error) =
        std::str::from_utf8(shown).err().filter(|error| !whole && error.error_len().is_none())
    {
        shown = &shown[..error.valid_up_to()];
    }
    Ok(Content::Text { text: String::from_utf8_lossy(shown).into_owned(), whole })
}
