//! Answers in HTML: pages, and problems as pages.

use askama::Template;
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, Request, header};
use ipnet::IpNet;

use super::address::{Address, PageAddresses, bucket_text, bucket_url, encode_value};
use crate::{
    caching::Caching,
    client_url,
    html_text::HtmlText,
    problem::{Kind, Problem, Result},
};

/// The content security policy of the server's own pages. These pages load a style sheet and an icon of this server,
/// show stored content in frames, and send forms to this server. They need no script, and nothing from other servers.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

/// Answers with an HTML page that changes when the store changes.
pub(crate) fn html<T: Template>(template: &T) -> Result<Response> {
    let text = template.render().map_err(|error| {
        tracing::error!(%error, "cannot render an HTML page");
        Problem::new(Kind::Internal, "The page cannot be written as HTML; the server's log has the cause.")
    })?;
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(HtmlText(text));
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::Mutable.header());
    insert_html_headers(response.headers_mut());
    Ok(response)
}

fn insert_html_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Returns the address of this server as the client knows it, for examples that work when pasted into a shell.
pub(crate) fn base_url<B>(request: &Request<B>, proxies: &[IpNet]) -> String {
    let base = client_url::base_url(request.uri(), request.headers(), request.extensions(), proxies);
    base.unwrap_or_else(|| "http://localhost".to_owned())
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    status: u16,
    title: &'a str,
    detail: String,
    bucket: Option<String>,
    links: Vec<HelpLink>,
}

/// A link to another page, on the page of a problem.
struct HelpLink {
    text: &'static str,
    /// The name of the link's target, if it has one.
    name: Option<String>,
    url: String,
}

/// Answers with a problem as an HTML page. The status is the same as in the answer to a program.
pub(super) fn problem_page(problem: &Problem, address: Option<&Address>, has_query: bool) -> Response {
    let mut response = problem.to_response(None);
    let template = ProblemPage {
        status: response.status().as_u16(),
        title: problem.kind().describe().2,
        detail: sentence(problem.detail()),
        bucket: address.map(|address| bucket_text(address.domain(), address.bucket())),
        links: address.map_or_else(Vec::new, |address| help_links(address, has_query)),
    };
    if let Ok(text) = template.render() {
        *response.body_mut() = Body::empty();
        response.extensions_mut().insert(HtmlText(text));
        insert_html_headers(response.headers_mut());
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    }
    response
}

/// Returns the links that help when a page or a part of a page is missing. If the URL has a query, a part of the page
/// is assumed to be missing, and otherwise the page itself.
fn help_links(address: &Address, has_query: bool) -> Vec<HelpLink> {
    let mut links = Vec::new();
    if let Address::Page { page, .. } = address {
        let PageAddresses { text, url, bucket_url, .. } = PageAddresses::of(page);
        links.push(if has_query {
            HelpLink { text: "All revisions of", name: Some(text), url }
        } else {
            let url = format!("{bucket_url}?after={}", encode_value(&page.title));
            HelpLink { text: "The titles after", name: Some(text), url }
        });
    }
    if has_query || matches!(address, Address::Page { .. }) {
        let (domain, bucket) = (address.domain(), address.bucket());
        links.push(HelpLink {
            text: "The pages of",
            name: Some(bucket_text(domain, bucket)),
            url: bucket_url(domain, bucket),
        });
    }
    links
}

/// Makes a sentence from the detail of a problem: with a capital letter and a full stop.
fn sentence(detail: &str) -> String {
    let mut letters = detail.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let stop = if detail.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}
