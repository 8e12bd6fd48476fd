//! Checks answers of a server, and reads their documents.

use http::{HeaderMap, Method, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::{AnswerError, Body, ETag, Problem, Result};

/// The size limit of an error's body. A problem may contain the document of a render.
const MAX_PROBLEM_BYTES: usize = 1 << 20;

/// The size limit of a document. All documents of a server are smaller: a result page has at most 500 entries.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Returns the answer, or its [`Problem`] as an error if the status is 400 or more.
pub(crate) async fn check_status(response: Response<Body>) -> Result<Response<Body>> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    // A body that breaks or is too large counts as empty: the status is enough for an error.
    let body = body.bytes(MAX_PROBLEM_BYTES).await.unwrap_or_default();
    Err(Box::new(Problem::parse(status, &head.headers, &body)).into())
}

/// Checks that an answer has the status 204, which says that something was deleted.
pub(crate) async fn check_deleted(response: Response<Body>) -> Result<()> {
    match check_status(response).await?.status() {
        StatusCode::NO_CONTENT => Ok(()),
        status => Err(AnswerError::Status { status }.into()),
    }
}

/// The entity tag of an answer.
pub(crate) fn etag(headers: &HeaderMap) -> Result<ETag> {
    let etag = headers.get(header::ETAG).and_then(|value| value.to_str().ok());
    Ok(etag.and_then(|tag| tag.parse().ok()).ok_or(AnswerError::Header("ETag"))?)
}

/// Reads the document of an answer whose status is 200 or 201.
pub(crate) async fn document<T: DeserializeOwned>(response: Response<Body>) -> Result<T> {
    let response = check_status(response).await?;
    let status = response.status();
    if !matches!(status.as_u16(), 200 | 201) {
        return Err(AnswerError::Status { status }.into());
    }
    let body = response.into_body().bytes(MAX_DOCUMENT_BYTES).await?;
    Ok(serde_json::from_slice(&body).map_err(AnswerError::Document)?)
}

/// The path to which an answer redirects a request for `path`. `None` if the answer is no redirect, or if the request
/// is no GET.
pub(crate) fn redirect(method: &Method, path: &str, response: &Response<Body>) -> Result<Option<String>> {
    if *method != Method::GET || !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or(AnswerError::Header("Location"))?;
    relative(path, query_of_same_page(path, location).unwrap_or(location), REVISION_QUERY_PREFIX).map(Some)
}

/// Returns the query of an absolute path if the path is that of the request, in any spelling. A proxy may have put a
/// prefix before it.
fn query_of_same_page<'a>(path: &str, location: &'a str) -> Option<&'a str> {
    let (to, query) = location.split_at(location.find('?')?);
    let is_path = to.starts_with('/') && !to.starts_with("//");
    let decoded = |path: &str| percent_decode_str(path).collect::<Vec<u8>>();
    let page = path.split('?').next().unwrap_or_default();
    (is_path && decoded(to).ends_with(&decoded(page))).then_some(query)
}

/// The beginning of the queries that name revisions of a page.
pub(crate) const REVISION_QUERY_PREFIX: &str = "?rev/";

/// Resolves the address `href`, which an answer to a request for `path` contains.
///
/// The address must be a query that begins with `beginning`. Then it leads to the same page or list of the same server.
/// Any other address is an error.
pub(crate) fn relative(path: &str, href: &str, beginning: &str) -> Result<String> {
    let page = path.split('?').next().unwrap_or_default();
    let is_valid = |byte: u8| byte == b'!' || (b'$'..=b'~').contains(&byte);
    if !href.starts_with(beginning) || !href.bytes().all(is_valid) {
        return Err(AnswerError::ForeignLink(crate::error::excerpt(href)).into());
    }
    Ok(format!("{page}{href}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn addresses_lead_to_the_same_page_only() {
        assert_eq!(
            relative("/v1/a/page/B?rev/", "?rev/&page=x", REVISION_QUERY_PREFIX).unwrap(),
            "/v1/a/page/B?rev/&page=x"
        );
        for href in [
            "",
            "/v1/a/page/C?rev/",
            "https://example.org/?rev/",
            "//example.org",
            "?rev/ x",
            "?timemap/html",
        ] {
            let error = relative("/v1/a/page/B?rev/", href, REVISION_QUERY_PREFIX).unwrap_err();
            assert!(matches!(error, Error::Answer(AnswerError::ForeignLink(_))), "{href}");
        }
    }

    #[test]
    fn redirects_lead_to_the_same_page_only() {
        let path = "/v1/a/page/R%26D?rev/1/html";
        let target = |location: &str| {
            let response = Response::builder().status(302).header("location", location);
            redirect(&Method::GET, path, &response.body(Body::empty()).unwrap())
        };
        for location in [
            "?rev/x/html",
            "/v1/a/page/R%26D?rev/x/html",
            "/v1/a/page/R&D?rev/x/html",
            "/store/v1/a/page/R%26D?rev/x/html",
        ] {
            let found = target(location).unwrap();
            assert_eq!(found.as_deref(), Some("/v1/a/page/R%26D?rev/x/html"), "{location}");
        }
        for location in [
            "/v1/a/page/R?rev/x/html",
            "/v1/a/page/R%26D",
            "/v1/a/page/R%26D?timemap/html",
            "//host/v1/a/page/R%26D?rev/x/html",
            "http://host/v1/a/page/R%26D?rev/x/html",
        ] {
            assert!(
                matches!(target(location), Err(Error::Answer(AnswerError::ForeignLink(_)))),
                "{location}"
            );
        }
    }
}
