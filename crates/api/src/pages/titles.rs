//! The pages of a domain.

use askama::Template;
use axum::response::Response;
use rashomon_buckets::{DomainName, Page, Title};

use super::{
    address::{domain_url, encode_value, form_value, page_url},
    domains::site_name,
    html,
};
use crate::{
    Api,
    answer::redirect,
    caching::Caching,
    problem::{Problem, Result},
};

/// The number of titles on one page.
const TITLES: usize = 200;

struct TitleLine {
    text: String,
    url: String,
}

#[derive(Template)]
#[template(path = "titles.html")]
struct TitlesPage {
    domain: DomainName,
    /// The wiki's own name.
    site: Option<String>,
    url: String,
    titles: Vec<TitleLine>,
    /// The requested title, if there is no such page.
    missing_title: Option<String>,
    /// Whether other titles come before these.
    continued: bool,
    next: Option<String>,
}

/// A query about the titles of a domain.
#[derive(Debug, PartialEq, Eq)]
enum TitleQuery {
    /// List the titles after this one: `?after=`
    After(Option<Title>),
    /// Open the page with this title: `?title=`
    Open(Title),
}

/// `/pages/{domain}/`
pub(super) async fn list(api: &Api, domain: &DomainName, query: Option<&str>) -> Result<Response> {
    let (after, missing_title) = match parse(query)? {
        TitleQuery::After(title) => (title, None),
        TitleQuery::Open(title) if exists(api, domain, &title).await? => {
            return Ok(redirect(&page_url(domain, &title), Caching::NoStore));
        }
        TitleQuery::Open(title) => (Some(title.clone()), Some(title.to_text())),
    };
    let catalog = api.buckets.catalog();
    let listing = catalog.titles(domain, &api.page_bucket, after.as_ref(), TITLES);
    let listing = api.read_catalog(listing).await?;
    if listing.items.is_empty() && !api.read_catalog(catalog.has_domain(domain)).await? {
        return Err(Problem::not_found(format!("There is no domain {domain} here.")));
    }
    let line = |title: &Title| TitleLine { text: title.to_text(), url: page_url(domain, title) };
    html(&TitlesPage {
        domain: domain.clone(),
        site: site_name(api, domain).await?,
        url: domain_url(domain),
        titles: listing.items.iter().map(line).collect(),
        continued: after.is_some(),
        missing_title,
        next: listing.next.map(|last| format!("?after={}", encode_value(&last))),
    })
}

fn parse(query: Option<&str>) -> Result<TitleQuery> {
    let query = query.unwrap_or_default();
    if query.is_empty() {
        return Ok(TitleQuery::After(None));
    }
    match query.split_once('=') {
        Some(("after", title)) => Ok(TitleQuery::After(Some(Title::new(&form_value("after", title)?)?))),
        Some(("title", title)) => Ok(TitleQuery::Open(Title::new(form_value("title", title)?.trim())?)),
        _ => Err(Problem::malformed("This page takes ?after= or ?title=, each with a title.")),
    }
}

/// Whether there is a page with this title.
async fn exists(api: &Api, domain: &DomainName, title: &Title) -> Result<bool> {
    let page = Page { domain: domain.clone(), bucket: api.page_bucket.clone(), title: title.clone() };
    match api.read_page(&page, api.buckets.revisions(&page, None, 1)).await {
        Ok(_) => Ok(true),
        Err(problem) if problem.kind() == crate::problem::Kind::NotFound => Ok(false),
        Err(problem) => Err(problem),
    }
}
