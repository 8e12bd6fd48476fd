//! The first page: the list of domains.

use crate::access::{BucketKind, Caller, Right};
use askama::Template;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt, stream};
use rashomon_pages::DomainName;

use super::{address::bucket_url, html};
use crate::{
    Api, caching,
    problem::{Problem, Result},
};

/// The number of domains on one page.
const DOMAINS_PER_PAGE: usize = 100;

/// The maximum number of wiki names that are read concurrently.
const MAX_CONCURRENT_NAME_READS: usize = 8;

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

/// `/` and `/?after=enwiki`. `base` is the address of this server.
pub(super) async fn list(api: &Api, caller: &Caller, query: Option<&str>, base: String) -> Result<Response> {
    api.check_somewhere(caller, Right::Read)?;
    let after = match query.filter(|query| !query.is_empty()) {
        None => None,
        Some(query) => match query.strip_prefix("after=") {
            Some(name) => Some(DomainName::new(name)?),
            None => return Err(Problem::malformed("This page takes only ?after=, with a domain.")),
        },
    };
    let (names, has_more) = readable(api, caller, after).await?;
    let next = names.last().filter(|_| has_more).map(|last| format!("/?after={last}"));
    let domains = stream::iter(names)
        .map(|name| line(api, name))
        .buffered(MAX_CONCURRENT_NAME_READS)
        .try_collect()
        .await?;
    let mut response = html(&DomainsPage { domains, next, base })?;
    if !api.access.may_everywhere(&Caller::Anonymous, Right::Read) {
        caching::restrict(response.headers_mut());
    }
    Ok(response)
}

/// Returns the next domains that a caller may read, and whether there are more of them.
async fn readable(
    api: &Api,
    caller: &Caller,
    mut after: Option<DomainName>,
) -> Result<(Vec<DomainName>, bool)> {
    let mut names = Vec::new();
    loop {
        let listing =
            api.read_catalog(api.buckets.catalog().domain_list(after.as_ref(), DOMAINS_PER_PAGE)).await?;
        for name in listing.items {
            if may_read(api, caller, &name).await? {
                names.push(name);
            }
        }
        after = listing.next;
        if names.len() > DOMAINS_PER_PAGE || after.is_none() {
            break;
        }
    }
    let has_more = names.len() > DOMAINS_PER_PAGE;
    names.truncate(DOMAINS_PER_PAGE);
    Ok((names, has_more))
}

/// Whether a caller may read at least one bucket of pages of a domain.
async fn may_read(api: &Api, caller: &Caller, domain: &DomainName) -> Result<bool> {
    let may = |bucket| api.access.may(caller, Right::Read, domain, bucket, BucketKind::Revisioned);
    if may(&api.page_bucket) {
        return Ok(true);
    }
    if !api.access.may_in(caller, Right::Read, domain) {
        return Ok(false);
    }
    let buckets = api.read_key_value(api.key_value.page_buckets(domain)).await?;
    Ok(buckets.iter().any(may))
}

async fn line(api: &Api, name: DomainName) -> Result<DomainLine> {
    let site = site_name(api, &name).await?;
    Ok(DomainLine { url: bucket_url(&name, &api.page_bucket), site, name })
}

/// The wiki's own name, if an import had it.
pub(super) async fn site_name(api: &Api, domain: &DomainName) -> Result<Option<String>> {
    let site = api.read_catalog(api.buckets.catalog().site_info(domain)).await?;
    Ok(site.and_then(|(site, _)| site.name).filter(|name| !name.is_empty()))
}
