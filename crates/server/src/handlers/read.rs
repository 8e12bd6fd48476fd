//! Reads of revisions, renders and properties.

use axum::response::Response;
use http::{HeaderMap, header};
use rashomon_pages::{Error, MementosAround, Missing, Page, PropertyName, Render, Revision, Tid};

use crate::{
    Api,
    answer::{self, redirect},
    caching::Caching,
    collecting,
    extract::ListRange,
    json,
    links::{DEFAULT_PROPERTY, PageUrl},
    problem::{Problem, Result},
    representation::Address,
    versions::VersionedRead,
};

/// The default number of entries in a result page.
const DEFAULT_LIMIT: usize = 50;

/// The page itself: redirects to the default property of the latest, with the links to its states.
pub(crate) async fn page(api: &Api, page: &Page, url: &PageUrl) -> Result<Response> {
    let name = PropertyName::new(DEFAULT_PROPERTY)?;
    let latest = match api.read(api.buckets.latest_version(page, &name)).await? {
        // The redirect leads to the answer that says what is missing.
        Err(Error::NotFound(_)) => None,
        latest => latest.map_err(|error| Problem::of_page(error, page))?,
    };
    let mut response = redirect(&format!("?rev/latest/{name}"), Caching::Mutable);
    let links = match latest {
        Some(latest) => url.links_to(&name, &latest, &MementosAround::default()),
        None => url.links(&name),
    };
    response.headers_mut().insert(header::LINK, links);
    Ok(response)
}

/// `?rev/latest/html`
pub(crate) async fn latest(
    api: &Api,
    page: &Page,
    name: &PropertyName,
    url: &PageUrl,
    request: &HeaderMap,
) -> Result<Response> {
    let property = api.read(api.buckets.latest(page, name)).await?;
    let property =
        property.map_err(|error| Problem::of_latest(error, page, name, |query| url.of_query(query)))?;
    let of = VersionedRead { api, title: &page.title, name, property: &property, address: Address::Latest };
    of.answer(request, || {
        let (prepared, was_prepared) = api.prepared.of(&property, || of.representation());
        if was_prepared {
            api.metrics.prepared_hits.inc();
        }
        prepared.answer(request, &property.body)
    })
    .await
    .map(|response| with_links(response, url, name))
}

/// `?rev/{tid}/html`
pub(crate) async fn property(
    api: &Api,
    page: &Page,
    tid: Tid,
    name: &PropertyName,
    url: &PageUrl,
    request: &HeaderMap,
) -> Result<Response> {
    let property = api.read_page(page, api.buckets.property(page, tid, name)).await?;
    let of = VersionedRead { api, title: &page.title, name, property: &property, address: Address::Tid };
    let answer = of.answer(request, || of.representation().answer(request, &property.body)).await;
    answer.map(|response| with_links(response, url, name))
}

/// Adds the links to the states of the page. They are not prepared, since each client has its own URL of the page.
fn with_links(mut response: Response, url: &PageUrl, name: &PropertyName) -> Response {
    response.headers_mut().insert(header::LINK, url.links(name));
    response
}

/// `?rev/12345/html`: redirects to the newest render of the revision from which the property can be read.
pub(crate) async fn newest_of_revision(
    api: &Api,
    page: &Page,
    rev: Revision,
    name: &PropertyName,
) -> Result<Response> {
    let tid = api.read(api.buckets.newest_with(page, rev, name)).await?;
    match tid {
        Ok(tid) => Ok(redirect(&format!("?rev/{tid}/{name}"), Caching::Mutable)),
        // The error names the properties of the revision's newest render.
        Err(Error::NotFound(Missing::Property { .. })) => {
            let render = api.read_page(page, api.buckets.newest_render(page, rev)).await?;
            redirect_to_property(&render, name, Caching::Mutable)
        }
        Err(error) => Err(Problem::of_page(error, page)),
    }
}

/// Redirects to a property of a render with 302, or answers with 404 if the render does not have the property.
pub(crate) fn redirect_to_property(
    render: &Render,
    name: &PropertyName,
    caching: Caching,
) -> Result<Response> {
    let Render { record, tid, properties } = render;
    if properties.contains_key(name) {
        return Ok(redirect(&format!("?rev/{tid}/{name}"), caching));
    }
    let names: Vec<_> = properties.keys().map(PropertyName::as_str).collect();
    Err(Problem::not_found(format!(
        "render {tid} of revision {} has no {name}; it has {}",
        record.rev,
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    )))
}

/// `?rev/latest/`
pub(crate) async fn latest_render(api: &Api, page: &Page, request: &HeaderMap) -> Result<Response> {
    let render = api.read_page(page, api.buckets.latest_render(page)).await?;
    answer::json(request, "render", &json::render(page, &render))
}

/// `?rev/{tid}/`
pub(crate) async fn render(api: &Api, page: &Page, tid: Tid, request: &HeaderMap) -> Result<Response> {
    let render = api.read_page(page, api.buckets.render(page, tid)).await?;
    answer::json(request, "render", &json::render(page, &render))
}

/// `?rev/12345/`
pub(crate) async fn revision(
    api: &Api,
    page: &Page,
    rev: Revision,
    list: ListRange<Tid>,
    request: &HeaderMap,
) -> Result<Response> {
    let limit = list.limit.unwrap_or(DEFAULT_LIMIT);
    let _permit = api.collecting.take(collecting::OF_ROWS).await?;
    let (detail, next) = api.read_page(page, api.buckets.revision_page(page, rev, list.after, limit)).await?;
    let document = json::revision(&detail, next, list.limit);
    answer::json_with_caching(request, "revision", &document, list.caching())
}

/// `?rev/`
pub(crate) async fn revisions(
    api: &Api,
    page: &Page,
    list: ListRange<Revision>,
    request: &HeaderMap,
) -> Result<Response> {
    let limit = list.limit.unwrap_or(DEFAULT_LIMIT);
    let _permit = api.collecting.take(collecting::OF_ROWS).await?;
    let listing = api.read_page(page, api.buckets.revisions(page, list.after, limit)).await?;
    let document = json::revision_list(page, &listing, list.limit);
    answer::json_with_caching(request, "revision-list", &document, list.caching())
}
