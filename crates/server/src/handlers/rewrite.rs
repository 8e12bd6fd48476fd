//! Replaces a property in place.

use crate::forms::{RequestBody, refuse_content_encoding};
use axum::{body::Body, response::Response};
use http::{HeaderMap, StatusCode, header, request::Parts};
use http_body::Body as _;
use rashomon_pages::{
    Expect, NewProperty, Page, PropertyName, PropertyVersion, RequestHeaders, Rewritten, Staged, Tid, Written,
};
use rashomon_protocol::conditional;

use super::form::spill;
use crate::{
    Api, answer,
    audit::Audit,
    authorize::Writer,
    overload::hold_while,
    problem::{Kind, Problem, Result, header_value},
    staging::Claim,
    stored_headers::{self, HeaderRules},
};

/// `PUT ?rev/{tid}/html`
pub(crate) async fn property(
    api: &Api,
    page: Page,
    tid: Tid,
    name: PropertyName,
    writer: Writer,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    let headers = &head.headers;
    if body.size_hint().exact() == Some(0) && !headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Problem::new(
            Kind::Malformed,
            "the request has no body: send the new bytes, or Content-Length: 0 for an empty property",
        ));
    }
    let mut body = api.receive_body(body)?;
    let (stored, staged, expect, claim) = receive(api, &page, tid, &name, headers, &mut body).await?;
    let new =
        NewProperty { name, content_type: stored.content_type, other_headers: stored.other, body: staged };
    let (buckets, target) = (api.buckets.clone(), page.clone());
    let write = Box::pin(async move { buckets.rewrite(&target, tid, new, expect).await });
    let rewritten = api.write_with_copies(claim, Audit::of(&head.extensions), write).await?;
    let Rewritten { version, replaced, .. } = rewritten.map_err(|error| Problem::of_page(error, &page))?;
    // A client that may not read must not learn whether the stored bytes were the same.
    let message = if replaced || !writer.may_read() { "Replaced" } else { "Unchanged" };
    let written = Written { rev: version.rev, tid: version.tid, created: false };
    let mut response = answer::written(&page, StatusCode::OK, message, &written);
    if writer.may_read() {
        response.headers_mut().insert(header::ETAG, header_value(&conditional::etag(&version)));
    }
    Ok(response)
}

/// Receives the new bytes. Checks first that the property exists and may be replaced.
async fn receive(
    api: &Api,
    page: &Page,
    tid: Tid,
    name: &PropertyName,
    headers: &HeaderMap,
    body: &mut RequestBody,
) -> Result<(RequestHeaders, Staged, Expect, Claim)> {
    refuse_content_encoding(headers)?;
    if headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::CONTENT_RANGE) {
        return Err(Problem::malformed(
            "a PUT replaces an existing property as a whole: use If-Match or If-Unmodified-Since as its \
             condition, and no Content-Range",
        ));
    }
    let stored = kept_headers(headers, HeaderRules::of(api))?;
    let on_page = |error| Problem::of_page(error, page);
    let render = api.read_page(page, api.buckets.render(page, tid)).await?;
    let rev = render.record.rev;
    // Checked before any part of the body is stored.
    render.check_not_erased().map_err(on_page)?;
    let Some(old) = render.properties.get(name) else {
        return Err(Problem::not_found(format!(
            "render {tid} has no {name} to be replaced; POST it to ?rev/{rev}/ instead"
        )));
    };
    let version = PropertyVersion { rev, tid, rewritten_at: old.rewritten_at };
    let expect = conditional::expectation(headers, &version);
    let mut claim = api.claim(body.length()).await?;
    let mut sink = api.buckets.stage(page, name);
    let room = claim.room();
    let receive = async {
        while let Some(piece) = body.next().await? {
            body.hold(room.arrive(piece.len())?);
            sink.write(&piece).await.map_err(on_page)?;
        }
        sink.finish().await.map_err(on_page)
    };
    let mut staged = hold_while(&mut claim.permit, &room, receive).await?;
    if !claim.keep(staged.memory()) {
        staged = spill(api, page, staged).await?;
    }
    Ok((stored, staged, expect, claim))
}

/// The headers of the request that are stored: type and language. `X-` headers are not stored: they often come from
/// proxies rather than from the client, and may identify users.
fn kept_headers(headers: &HeaderMap, rules: HeaderRules<'_>) -> Result<RequestHeaders> {
    let mut kept = Vec::new();
    for name in [header::CONTENT_TYPE, header::CONTENT_LANGUAGE] {
        for value in headers.get_all(&name) {
            let value =
                value.to_str().map_err(|_| Problem::malformed(format!("{name} must be visible ASCII")))?;
            kept.push((name.as_str().to_owned(), value));
        }
    }
    stored_headers::parse(kept.iter().map(|(name, value)| (name.as_str(), *value)), rules)
}
