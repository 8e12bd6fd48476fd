//! New revisions and new renders.

use axum::{body::Body, response::Response};
use http::{StatusCode, request::Parts};
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{NewRender, NewRevision, Page, Parent, RenderBase, Title, Written};

use super::form::Form;
use crate::{
    Api, answer,
    audit::Audit,
    authorize::Writer,
    extract::{RevisionReference, parse_parent},
    problem::{Problem, Result},
};

/// The maximum size of a comment and of a user.
pub(crate) const MAX_COMMENT_BYTES: usize = 4 << 10;

/// The fields of a new revision.
const REVISION_FIELDS: [&str; 7] =
    ["_rev", "_parent", "_timestamp", "_comment", "_user", "_minor", "_if_latest"];

/// The fields of a new render.
const RENDER_FIELDS: [&str; 2] = ["_timestamp", "_if_latest"];

/// `POST ?rev/`
pub(crate) async fn revision(
    api: &Api,
    page: Page,
    writer: Writer,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    let body = api.receive_body(body)?;
    let (form, claim) = Form::receive(api, &page, &head.headers, body, &REVISION_FIELDS).await?;
    let new = parse_revision(form, &page.title, writer)?;
    let (buckets, target) = (api.buckets.clone(), page.clone());
    let written = api
        .write(claim, Audit::of(&head.extensions), async move { buckets.put_revision(&target, new).await })
        .await?;
    respond(&page, writer, written)
}

/// `POST ?rev/12345/` and `POST ?rev/{tid}/`
pub(crate) async fn render(
    api: &Api,
    page: Page,
    base: RenderBase,
    writer: Writer,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    let body = api.receive_body(body)?;
    // Refuses an erased revision before any of the form is stored. Whether the revision exists is checked
    // after the form has arrived.
    api.read_page(&page, api.buckets.check_takes_renders(&page, base)).await?;
    let (form, claim) = Form::receive(api, &page, &head.headers, body, &RENDER_FIELDS).await?;
    let new = parse_render(form, base, &page.title, writer)?;
    let (buckets, target) = (api.buckets.clone(), page.clone());
    let write = Box::pin(async move { buckets.put_render(&target, new).await });
    let written = api.write_with_copies(claim, Audit::of(&head.extensions), write).await?;
    respond(&page, writer, written)
}

fn respond(page: &Page, writer: Writer, written: rashomon_pages::Result<Written>) -> Result<Response> {
    let written = written.map_err(|error| Problem::of_page(error, page))?;
    // A client that may not read must not learn whether the write was stored before.
    let is_new = written.created || !writer.may_read();
    let (status, message) =
        if is_new { (StatusCode::CREATED, "Created") } else { (StatusCode::OK, "Unchanged") };
    Ok(answer::written(page, status, message, &written))
}

fn parse_revision(mut form: Form, page: &Title, writer: Writer) -> Result<NewRevision> {
    let rev = form.take("_rev").ok_or_else(|| {
        Problem::malformed("a new revision needs the field _rev, its number, such as 12345")
    })?;
    Ok(NewRevision {
        rev: RevisionReference::parse(&rev)?.of_page(page, "_rev")?,
        parent: form.take("_parent").map(|text| parse_parent(&text, page, "_parent")).transpose()?,
        timestamp: take_timestamp(&mut form, writer)?,
        user: take_short_text(&mut form, "_user")?,
        comment: take_short_text(&mut form, "_comment")?,
        minor: take_minor(&mut form)?,
        if_latest: take_if_latest(&mut form, page, writer)?,
        properties: form.properties,
    })
}

fn parse_render(mut form: Form, base: RenderBase, page: &Title, writer: Writer) -> Result<NewRender> {
    Ok(NewRender {
        base,
        timestamp: take_timestamp(&mut form, writer)?,
        if_latest: take_if_latest(&mut form, page, writer)?,
        properties: form.properties,
    })
}

fn take_timestamp(form: &mut Form, writer: Writer) -> Result<Option<Timestamp>> {
    let parse = |text: String| {
        rfc3339::parse(&text).ok_or_else(|| {
            Problem::malformed(
                "_timestamp must have the format of RFC 3339, such as 2013-02-23T22:23:24Z, with at most six \
                 digits after the seconds",
            )
        })
    };
    let timestamp = form.take("_timestamp");
    if timestamp.is_some() {
        writer.check_timestamp()?;
    }
    timestamp.map(parse).transpose()
}

fn take_if_latest(form: &mut Form, page: &Title, writer: Writer) -> Result<Option<Parent>> {
    let latest = form.take("_if_latest");
    if latest.is_some() {
        writer.check_condition("_if_latest")?;
    }
    latest.map(|text| parse_parent(&text, page, "_if_latest")).transpose()
}

fn take_minor(form: &mut Form) -> Result<bool> {
    match form.take("_minor").as_deref() {
        None => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Problem::malformed("_minor must be 1, or be left out")),
    }
}

/// Takes a comment or a user from the form; an empty text counts as none.
fn take_short_text(form: &mut Form, name: &str) -> Result<Option<String>> {
    match form.take(name) {
        Some(text) if text.len() > MAX_COMMENT_BYTES => {
            Err(Problem::invalid(format!("{name} must have at most {MAX_COMMENT_BYTES} bytes")))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}
