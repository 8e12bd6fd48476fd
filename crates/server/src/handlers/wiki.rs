//! Redirects from the URLs that readers of MediaWiki have to those of this API.

use axum::response::Response;
use http::{Method, StatusCode, request::Parts};
use rashomon_pages::{Page, Title};

use super::letter_case;
use crate::{
    Api,
    answer::redirect,
    authorize::caller_of,
    caching::{self, Caching},
    extract::{Target, domain_of_host, encode_title, mediawiki},
    problem::Result,
};

fn is_read(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
}

/// Redirects a read whose query is one of MediaWiki's, or has parameters that other programs have added. Returns `None`
/// for another query.
pub(super) fn translated(api: &Api, target: &Target, head: &Parts) -> Result<Option<Response>> {
    let Some(query) = head.uri.query().filter(|_| is_read(head)) else { return Ok(None) };
    let translated = mediawiki::translate(query, head.uri.path().starts_with("/wiki/"));
    if matches!(translated, Ok(None)) {
        return Ok(None);
    }
    api.check_read(caller_of(&head.extensions), &target.page)?;
    let path = if target.needs_redirect { target.canonical_path() } else { head.uri.path().to_owned() };
    // The title in the path counts, as in MediaWiki.
    Ok(translated?.map(|found| found_at(api, &target.page, path, found.query.as_deref())))
}

/// Redirects `/wiki/?title=Main_Page`, which names the title in the query, to the URL of that page.
pub(super) fn titled(api: &Api, head: &Parts) -> Result<Option<Response>> {
    let is_index = is_read(head) && head.uri.path() == "/wiki/";
    let Some(query) = head.uri.query().filter(|_| is_index) else { return Ok(None) };
    let Some(mediawiki::Translation { title: Some(title), query }) = mediawiki::translate(query, true)?
    else {
        return Ok(None);
    };
    let domain = domain_of_host(&head.uri, &head.headers, &api.settings.hosts)?;
    let page = Page { domain, bucket: api.page_bucket.clone(), title: Title::new(&title)? };
    api.check_read(caller_of(&head.extensions), &page)?;
    let path = format!("/wiki/{}", encode_title(&page.title));
    Ok(Some(found_at(api, &page, path, query.as_deref())))
}

/// Redirects a title to the spelling of its wiki, with 301: `/wiki/main_Page` to `/wiki/Main_Page`, if the wiki's
/// titles begin with a capital letter. Returns `None` if the wiki has no such rule, if the title fits, or if a page is
/// stored under it.
pub(super) async fn other_case(api: &Api, target: &Target, head: &Parts) -> Result<Option<Response>> {
    let page = &target.page;
    if !is_read(head) || !letter_case::may_differ(page.title.as_str()) {
        return Ok(None);
    }
    api.check_read(caller_of(&head.extensions), page)?;
    let Some((site, _)) = api.read_catalog(api.buckets.catalog().site_info(&page.domain)).await? else {
        return Ok(None);
    };
    let Some(title) = letter_case::spelled_by(&site, page.title.as_str()) else { return Ok(None) };
    let Ok(title) = Title::new(&title) else { return Ok(None) };
    if title == page.title || api.read_catalog(api.buckets.catalog().is_stored(page)).await? {
        return Ok(None);
    }
    // A page may be stored under this spelling later, so caches have to ask again.
    let location = location(format!("/wiki/{}", encode_title(&title)), head.uri.query());
    let mut response = restricted(api, page, redirect(&location, Caching::Mutable));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    Ok(Some(response))
}

fn found_at(api: &Api, page: &Page, path: String, query: Option<&str>) -> Response {
    // The answer does not depend on what is stored.
    restricted(api, page, redirect(&location(path, query), Caching::Tid))
}

fn restricted(api: &Api, page: &Page, mut response: Response) -> Response {
    if !api.is_public(page) {
        caching::restrict(response.headers_mut());
    }
    response
}

fn location(path: String, query: Option<&str>) -> String {
    query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"))
}
