//! The timegate of RFC 7089: leads from a page and a date to the page's state at that date.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use rashomon_clock::{Timestamp, http_date};
use rashomon_pages::{Error, MementosAround, Missing, Page, PropertyName};

use crate::{
    Api,
    answer::redirect,
    caching::Caching,
    links::PageUrl,
    problem::{Problem, Result},
};

const ACCEPT_DATETIME: HeaderName = HeaderName::from_static("accept-datetime");

/// The value of `Vary` for an answer that depends on the date.
const VARY: HeaderValue = HeaderValue::from_static("accept-datetime");

/// `?timegate/html`
pub(crate) async fn select(
    api: &Api,
    page: &Page,
    name: &PropertyName,
    url: &PageUrl,
    request: &HeaderMap,
) -> Result<Response> {
    let selected = redirect_to_state(api, page, name, url, request).await;
    selected.map_err(|problem| problem.with_header(header::VARY, VARY))
}

async fn redirect_to_state(
    api: &Api,
    page: &Page,
    name: &PropertyName,
    url: &PageUrl,
    request: &HeaderMap,
) -> Result<Response> {
    let time = accepted_time(request)?;
    let memento = api.read(api.buckets.memento(page, name, time)).await?;
    let memento = memento.map_err(|error| {
        let is_out_of_reach = matches!(error, Error::NotFound(Missing::OutOfReach { .. }));
        let problem = Problem::of_page(error, page);
        match is_out_of_reach {
            true => problem.with_header(header::LINK, url.links(name)),
            false => problem,
        }
    })?;
    // The redirect is right even if the states around the selected one cannot be read.
    let around = match api.read(api.buckets.mementos_around(page, name, &memento)).await {
        Ok(Ok(around)) => around,
        _ => MementosAround::default(),
    };
    let mut response = redirect(&format!("?rev/{}/{name}", memento.tid), Caching::NoStore);
    let headers = response.headers_mut();
    headers.insert(header::VARY, VARY);
    headers.insert(header::LINK, url.links_to(name, &memento, &around));
    Ok(response)
}

/// Returns the end of the second in `Accept-Datetime`. Dates in headers have whole seconds, and the date of a state
/// must select this state.
fn accepted_time(request: &HeaderMap) -> Result<Option<Timestamp>> {
    let mut dates = request.get_all(ACCEPT_DATETIME).iter();
    let (first, second) = (dates.next(), dates.next());
    let Some(date) = first else { return Ok(None) };
    let time = date.to_str().ok().and_then(http_date::parse).filter(|_| second.is_none());
    match time {
        Some(time) => Ok(Some(Timestamp::from_micros(time.as_micros() + 999_999))),
        None => Err(Problem::malformed(
            "Accept-Datetime must be one date such as 'Thu, 31 May 2007 20:35:00 GMT'",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_datetime_means_the_end_of_its_second() {
        let mut headers = HeaderMap::new();
        assert_eq!(accepted_time(&headers).unwrap(), None);
        headers.append(ACCEPT_DATETIME, "Thu, 31 May 2007 20:35:00 GMT".parse().unwrap());
        let end = Timestamp::from_micros(1_180_643_700_999_999);
        assert_eq!(accepted_time(&headers).unwrap(), Some(end));
        headers.append(ACCEPT_DATETIME, "Thu, 31 May 2007 20:35:00 GMT".parse().unwrap());
        assert!(accepted_time(&headers).is_err());
        headers.insert(ACCEPT_DATETIME, "2007-05-31T20:35:00Z".parse().unwrap());
        assert!(accepted_time(&headers).is_err());
    }
}
