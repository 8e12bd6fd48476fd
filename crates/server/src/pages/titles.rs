//! The list of the pages of a bucket.

use crate::access::{BucketKind, Caller, Right};
use askama::Template;
use axum::response::Response;
use rashomon_pages::{BucketName, DomainName, Page, Title};

use super::{
    address::{bucket_text, bucket_url, encode_value, form_value, page_url},
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
const TITLES_PER_PAGE: usize = 200;

struct TitleLine {
    text: String,
    url: String,
}

#[derive(Template)]
#[template(path = "titles.html")]
struct TitlesPage {
    /// The name of the bucket for people.
    bucket: String,
    /// The wiki's own name.
    site: Option<String>,
    url: String,
    /// The other buckets of pages of the domain.
    buckets: Vec<TitleLine>,
    titles: Vec<TitleLine>,
    /// The requested title, if no page has this title.
    missing_title: Option<String>,
    /// Whether there are titles before the listed ones.
    continued: bool,
    next: Option<String>,
}

/// A query about the titles of a bucket.
#[derive(Debug, PartialEq, Eq)]
enum TitleQuery {
    /// List the titles after this one: `?after=`
    After(Option<Title>),
    /// Open the page with this title: `?title=`
    Open(Title),
}

/// `/pages/{domain}/` and `/buckets/{domain}/{bucket}/`. The bucket has its id.
pub(super) async fn list(
    api: &Api,
    caller: &Caller,
    (domain, bucket): (&DomainName, &BucketName),
    query: Option<&str>,
) -> Result<Response> {
    let page_of = |title| Page { domain: domain.clone(), bucket: bucket.clone(), title };
    let (after, missing_title) = match parse(query)? {
        TitleQuery::After(title) => (title, None),
        TitleQuery::Open(title) => {
            let page = page_of(title);
            if exists(api, &page).await? {
                return Ok(redirect(&page_url(&page), Caching::NoStore));
            }
            let text = page.title.to_text();
            (Some(page.title), Some(text))
        }
    };
    let catalog = api.buckets.catalog();
    let listing = catalog.titles(domain, bucket, after.as_ref(), TITLES_PER_PAGE);
    let listing = api.read_catalog(listing).await?;
    if listing.items.is_empty() && !api.read_catalog(catalog.has_domain(domain)).await? {
        return Err(Problem::not_found(format!("There is no domain {domain} here.")));
    }
    let line = |title: &Title| TitleLine { text: title.to_text(), url: page_url(&page_of(title.clone())) };
    html(&TitlesPage {
        bucket: bucket_text(domain, bucket),
        site: site_name(api, domain).await?,
        url: bucket_url(domain, bucket),
        buckets: other_buckets(api, caller, domain, bucket).await?,
        titles: listing.items.iter().map(line).collect(),
        continued: after.is_some(),
        missing_title,
        next: listing.next.map(|last| format!("?after={}", encode_value(&last))),
    })
}

/// The other buckets of pages of the domain that the caller may read.
async fn other_buckets(
    api: &Api,
    caller: &Caller,
    domain: &DomainName,
    shown: &BucketName,
) -> Result<Vec<TitleLine>> {
    let buckets = api.read_key_value(api.key_value.page_buckets(domain)).await?;
    let may = |bucket| api.access.may(caller, Right::Read, domain, bucket, BucketKind::Revisioned);
    let others = buckets.iter().filter(|bucket| *bucket != shown && may(bucket));
    let line = |bucket| TitleLine { text: bucket_text(domain, bucket), url: bucket_url(domain, bucket) };
    Ok(others.map(line).collect())
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

/// Whether a page exists.
async fn exists(api: &Api, page: &Page) -> Result<bool> {
    match api.read_page(page, api.buckets.revisions(page, None, 1)).await {
        Ok(_) => Ok(true),
        Err(problem) if problem.kind() == crate::problem::Kind::NotFound => Ok(false),
        Err(problem) => Err(problem),
    }
}
