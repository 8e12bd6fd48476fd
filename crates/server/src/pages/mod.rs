//! The HTML pages for people. They show the stored content in plain HTML that works without scripts.
//!
//! `/` lists the domains, and `/pages/{domain}/` the pages of one domain. A page under
//! `/pages/{domain}/{title}` has those sub-resources of the API that people want to see, and `?at=` in
//! addition. The pages of a further bucket are under `/buckets/{domain}/{bucket}/`.

mod address;
mod answer;
mod assets;
mod domains;
mod history;
mod notation;
mod render;
mod titles;

use crate::access::{BucketKind, Caller, Right};
use axum::{
    extract::{Request, State},
    response::Response,
    routing::{MethodRouter, get},
};
use http::{Uri, header};
use rashomon_pages::{BucketName, Page};

pub(crate) use self::answer::{base_url, html};
use self::{address::Address, answer::problem_page};
use crate::{
    Api,
    answer::{redirect, redirect_to_canonical},
    authorize::caller_of,
    caching::{self, Caching},
    extract::{BucketTarget, ListRange, Resource, Selector},
    problem::{Problem, Result},
};

/// The routes of the pages and their files.
pub(crate) fn routes() -> [(&'static str, MethodRouter<Api>); 9] {
    [
        ("/", get(domain_list)),
        ("/pages/{domain}", get(bucket_or_page)),
        ("/pages/{domain}/", get(bucket_or_page)),
        ("/pages/{domain}/{*title}", get(bucket_or_page)),
        ("/buckets/{domain}/{bucket}", get(bucket_or_page)),
        ("/buckets/{domain}/{bucket}/", get(bucket_or_page)),
        ("/buckets/{domain}/{bucket}/{*title}", get(bucket_or_page)),
        ("/assets/style.css", get(assets::style)),
        ("/assets/icon.svg", get(assets::icon)),
    ]
}

/// `/`
async fn domain_list(State(api): State<Api>, request: Request) -> Result<Response> {
    let caller = caller_of(request.extensions());
    let base = base_url(&request, &api.settings.proxies);
    let answer = domains::list(&api, caller, request.uri().query(), base).await;
    answer.or_else(|problem| explain(problem, &request, None))
}

/// All paths under `/pages/` and `/buckets/`.
async fn bucket_or_page(State(api): State<Api>, request: Request) -> Result<Response> {
    let mut address = match Address::parse(request.uri().path(), &api.page_bucket) {
        Ok(address) => address,
        Err(problem) => return explain(problem, &request, None),
    };
    let caller = caller_of(request.extensions());
    let answer = match find_bucket(&api, caller, &address).await {
        Ok(bucket) => {
            address.set_bucket(bucket);
            dispatch(&api, caller, &address, request.uri()).await
        }
        Err(problem) => Err(problem),
    };
    let answer = answer.map(|mut response| {
        let (domain, bucket) = (address.domain(), address.bucket());
        if !api.access.anybody_may(Right::Read, domain, bucket, BucketKind::Revisioned) {
            caching::restrict(response.headers_mut());
        }
        response
    });
    answer.or_else(|problem| explain(problem, &request, Some(&address)))
}

/// Finds the bucket of an address, with its id. Checks that the caller may read the bucket.
async fn find_bucket(api: &Api, caller: &Caller, address: &Address) -> Result<BucketName> {
    let (domain, name) = (address.domain(), address.bucket());
    if *name == api.page_bucket {
        api.check_right(caller, Right::Read, domain, name, BucketKind::Revisioned)?;
        return Ok(name.clone());
    }
    let target = BucketTarget { domain: domain.clone(), bucket: name.clone() };
    let bucket = api.bucket_for(caller, Right::Read, &target).await?;
    let type_of = bucket.bucket_type();
    bucket
        .pages()
        .ok_or_else(|| Problem::not_found(format!("The bucket {name} has the type {type_of}, and no pages.")))
}

/// Answers with a problem: as an HTML page to clients whose `Accept` names HTML, as browsers do, and otherwise in the
/// usual format.
fn explain(problem: Problem, request: &Request, address: Option<&Address>) -> Result<Response> {
    let accepted = request.headers().get_all(header::ACCEPT);
    let is_browser =
        accepted.iter().any(|value| value.to_str().is_ok_and(|accept| accept.contains("text/html")));
    if is_browser {
        Ok(problem_page(&problem, address, request.uri().query().is_some()))
    } else {
        Err(problem.varying_by_accept())
    }
}

async fn dispatch(api: &Api, caller: &Caller, address: &Address, uri: &Uri) -> Result<Response> {
    if let Some(path) = address.redirect_target() {
        return Ok(redirect_to_canonical(path, uri.query(), Caching::Mutable));
    }
    match address {
        Address::Bucket { domain, bucket, .. } => {
            titles::list(api, caller, (domain, bucket), uri.query()).await
        }
        Address::Page { page, .. } => match uri.query().and_then(|query| query.strip_prefix("at=")) {
            Some(time) => history::redirect_to_time(api, page, time).await,
            None => sub_resource(api, page, Resource::parse(uri.query())?).await,
        },
    }
}

async fn sub_resource(api: &Api, page: &Page, resource: Resource) -> Result<Response> {
    match resource {
        Resource::Page => history::list(api, page, None).await,
        Resource::RevisionList(ListRange { limit: None, after }) => history::list(api, page, after).await,
        Resource::Document(Selector::Render(tid)) => render::show(api, page, tid).await,
        Resource::RenderList(rev, list) if list == ListRange::default() => {
            render::newest_of(api, page, rev).await
        }
        Resource::Document(Selector::Latest) => render::latest(api, page).await,
        Resource::Bare(Selector::Render(tid)) => Ok(redirect(&format!("?rev/{tid}/"), Caching::Mutable)),
        Resource::Bare(Selector::Revision(rev)) => Ok(redirect(&format!("?rev/{rev}/"), Caching::Mutable)),
        Resource::Bare(Selector::Latest) => Ok(redirect("?rev/latest/", Caching::Mutable)),
        Resource::Revisions => Ok(redirect("?rev/", Caching::Mutable)),
        _ => Err(Problem::not_found("This resource has no HTML page. Programs find it under /v1/.")),
    }
}
