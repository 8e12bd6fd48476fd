//! The timemap of RFC 7089: all states of a page, in the format of RFC 6690.

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use rashomon_pages::{Listing, MementoPosition, Page, PropertyName, PropertyVersion};

use crate::{
    Api, answer, collecting,
    extract::{ListRange, MAX_LIMIT},
    links::{LINK_FORMAT, PageUrl, from_until},
    page_token::list_href,
    problem::Result,
};

/// `?timemap/html`
pub(crate) async fn list(
    api: &Api,
    page: &Page,
    name: &PropertyName,
    url: &PageUrl,
    list: ListRange<MementoPosition>,
    request: &HeaderMap,
) -> Result<Response> {
    let limit = list.limit.unwrap_or(MAX_LIMIT);
    let _permit = api.collecting.take(collecting::OF_ROWS).await?;
    let mementos = api.read_page(page, api.buckets.mementos(page, name, list.after, limit)).await?;
    let body = link_format(name, url, &list, &mementos);
    let content_type = HeaderValue::from_static("application/link-format");
    answer::document(request, content_type, body.into_bytes(), list.caching())
}

/// Formats the links: to the page, to this list and its next part, and to the states.
fn link_format(
    name: &PropertyName,
    url: &PageUrl,
    list: &ListRange<MementoPosition>,
    mementos: &Listing<PropertyVersion, MementoPosition>,
) -> String {
    let timemap = format!("?timemap/{name}");
    let part = |after| url.of_query(&list_href(&timemap, list.limit, after));
    let range = match (mementos.items.first(), mementos.items.last()) {
        (Some(first), Some(last)) => from_until(first.tid, last.tid),
        _ => String::new(),
    };
    let mut links = vec![
        format!("<{}>; rel=\"original\"", url.original(name)),
        format!("<{}>; rel=\"latest-version\"", url.latest(name)),
        format!("<{}>; rel=\"timegate\"", url.of_query(&format!("?timegate/{name}"))),
        format!("<{}>; rel=\"self\"; {LINK_FORMAT}{range}", part(list.after)),
    ];
    if mementos.next.is_some() {
        links.push(format!("<{}>; rel=\"next timemap\"; {LINK_FORMAT}", part(mementos.next)));
    }
    for (index, memento) in mementos.items.iter().enumerate() {
        let first = list.after.is_none() && index == 0;
        let last = mementos.next.is_none() && index + 1 == mementos.items.len();
        let relation = match (first, last) {
            (true, true) => "first last memento",
            (true, false) => "first memento",
            (false, true) => "last memento",
            (false, false) => "memento",
        };
        links.push(url.memento(name, memento.tid, relation));
    }
    links.join(",\n") + "\n"
}
