//! The state of a page at a time.

use axum::response::Response;
use rashomon_clock::Timestamp;
use rashomon_pages::{Page, PropertyName};

use super::read::redirect_to_property;
use crate::{
    Api,
    caching::Caching,
    problem::{Problem, Result},
};

/// `?rev/2013-02-23T22:23:24Z/html`
pub(crate) async fn property(
    api: &Api,
    page: &Page,
    time: Timestamp,
    name: &PropertyName,
) -> Result<Response> {
    let render = api.read_page(page, api.buckets.at_time_with(page, time, name)).await?;
    render.check_not_erased().map_err(|error| Problem::of_page(error, page))?;
    redirect_to_property(&render, name, Caching::NoStore)
}
