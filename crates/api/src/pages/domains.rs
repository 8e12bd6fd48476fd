//! The first page: the list of domains.

use askama::Template;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt, stream};
use http::HeaderMap;
use rashomon_buckets::DomainName;

use super::{address::domain_url, answer::base_url, html};
use crate::{
    Api,
    problem::{Problem, Result},
};

/// The number of domains on one page.
const DOMAINS: usize = 100;

/// The maximum number of wiki names that are read concurrently.
const READ_AT_ONCE: usize = 8;

struct DomainLine {
    name: DomainName,
    url: String,
    /// The wiki's own name.
    site: Option<String>,
}

#[derive(Template)]
#[template(path = "domains.html")]
struct DomainsPage {
    domains: Vec<DomainLine>,
    next: Option<String>,
    /// The address of this server.
    base: String,
}

/// `/` and `/?after=enwiki`
pub(super) async fn list(api: &Api, query: Option<&str>, headers: &HeaderMap) -> Result<Response> {
    let after = match query.filter(|query| !query.is_empty()) {
        None => None,
        Some(query) => match query.strip_prefix("after=") {
            Some(name) => Some(DomainName::new(name)?),
            None => return Err(Problem::malformed("This page takes only ?after=, with a domain.")),
        },
    };
    let listing = api.read_catalog(api.buckets.catalog().domain_list(after.as_ref(), DOMAINS)).await?;
    let next = listing.next.map(|last| format!("/?after={last}"));
    let domains =
        stream::iter(listing.items).map(|name| line(api, name)).buffered(READ_AT_ONCE).try_collect().await?;
    html(&DomainsPage { domains, next, base: base_url(headers) })
}

async fn line(api: &Api, name: DomainName) -> Result<DomainLine> {
    let site = site_name(api, &name).await?;
    Ok(DomainLine { url: domain_url(&name), site, name })
}

/// The wiki's own name, if an import had it.
pub(super) async fn site_name(api: &Api, domain: &DomainName) -> Result<Option<String>> {
    let site = api.read_catalog(api.buckets.catalog().site_info(domain)).await?;
    Ok(site.and_then(|(site, _)| site.name).filter(|name| !name.is_empty()))
}
