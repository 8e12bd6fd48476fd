//! The timemap of RFC 7089: all states of a page, in the format of RFC 6690.

use std::fmt::Write;

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use rashomon_buckets::{Listing, MementoPosition, Page, PropertyName, PropertyVersion};
use rashomon_clock::http_date;

use crate::{
    Api, answer, collecting,
    extract::{ListRange, MAX_LIMIT},
    page_token::list_href,
    problem::Result,
};

/// `?timemap/html`
pub(crate) async fn list(
    api: &Api,
    page: &Page,
    name: &PropertyName,
    list: ListRange<MementoPosition>,
    request: &HeaderMap,
) -> Result<Response> {
    let limit = list.limit.unwrap_or(MAX_LIMIT);
    let _permit = api.collecting.take(collecting::OF_ROWS).await?;
    let mementos = api.read_page(page, api.buckets.mementos(page, name, list.after, limit)).await?;
    let body = link_format(name, &list, &mementos);
    let content_type = HeaderValue::from_static("application/link-format");
    answer::document(request, content_type, body.into_bytes(), list.caching())
}

/// Formats the links: to the page, to this list and its next part, and to the states.
fn link_format(
    name: &PropertyName,
    list: &ListRange<MementoPosition>,
    mementos: &Listing<PropertyVersion, MementoPosition>,
) -> String {
    const TYPE: &str = "type=\"application/link-format\"";
    let timemap = format!("?timemap/{name}");
    let this = list_href(&timemap, list.limit, list.after);
    let mut links = format!(
        "<?rev/latest/{name}>; rel=\"original latest-version\",\n<?timegate/{name}>; rel=\"timegate\",\n\
         <{this}>; rel=\"self timemap\"; {TYPE}"
    );
    if let Some(next) = mementos.next {
        let next = list_href(&timemap, list.limit, Some(next));
        // Writing to a string does not fail.
        let _ = write!(links, ",\n<{next}>; rel=\"next timemap\"; {TYPE}");
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
        let datetime = http_date::format(memento.tid.time());
        let _ =
            write!(links, ",\n<?rev/{}/{name}>; rel=\"{relation}\"; datetime=\"{datetime}\"", memento.tid);
    }
    links.push('\n');
    links
}
