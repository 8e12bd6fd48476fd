//! A page and its sub-resources: dispatches requests to their handlers.

use crate::access::Right;
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, Method, header, request::Parts};
use rashomon_pages::{BucketName, DomainName, Page, RenderBase};

use super::{read, rewrite, time, timegate, timemap, wiki, write};
use crate::{
    Api,
    answer::{check_version, json_type, options, redirect, redirect_to_canonical},
    authorize::caller_of,
    caching::{self, Caching},
    extract::{
        ListRange, READ_METHODS, Resource, Selector, Target, page_in_bucket, page_of_v1, page_of_wiki,
    },
    links::{PageUrl, in_link},
    problem::{Problem, Result},
};

/// `/v1/{domain}/page/{title}`
pub(crate) async fn v1(State(api): State<Api>, request: Request) -> Result<Response> {
    let (mut head, body) = request.into_parts();
    ignore_range_unless_get(&mut head);
    let target = page_of_v1(head.uri.path(), &api.page_bucket)?;
    answer(&api, target, &head, body).await
}

/// `/v1/{domain}/{bucket}/{title}`, in a further bucket of pages. `bucket` has its id. The caller has one of the rights
/// that requests with the method need; the exact right is checked here.
pub(super) async fn in_bucket(
    api: &Api,
    domain: DomainName,
    bucket: BucketName,
    raw_title: &str,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    answer(api, page_in_bucket(domain, bucket, raw_title)?, head, body).await
}

async fn answer(api: &Api, target: Target, head: &Parts, body: Body) -> Result<Response> {
    if let Some(redirect) = wiki::translated(api, &target, head)? {
        return Ok(redirect);
    }
    let resource = parse_resource(head)?;
    match head.method {
        // Boxed, so that the future of a read does not contain the larger one of a write: the future is moved
        // several times.
        Method::POST | Method::PUT => Box::pin(write(api, target.page, resource, head, body)).await,
        _ => {
            let methods = resource.methods();
            read(api, &target, resource, methods, head).await
        }
    }
}

/// Parses the query. If both the method and the parameters after `&` are wrong, the error is about the method.
fn parse_resource(head: &Parts) -> Result<Resource> {
    const PAGE_METHODS: [Method; 5] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS];
    let query = head.uri.query();
    Resource::parse(query).map_err(|problem| {
        let path = query.and_then(|query| query.split('&').next());
        let methods = match Resource::parse(path) {
            Ok(resource) => resource.methods(),
            Err(_) if PAGE_METHODS.contains(&head.method) => return problem,
            Err(_) => READ_METHODS,
        };
        let is_supported = methods.split(", ").any(|method| method == head.method.as_str());
        if is_supported { problem } else { Problem::method_not_allowed(methods) }
    })
}

/// Removes the header `Range` from requests other than GET, for which it has no meaning (RFC 9110, section 14.2).
pub(super) fn ignore_range_unless_get(head: &mut Parts) {
    if head.method != Method::GET {
        head.headers.remove(header::RANGE);
    }
}

async fn write(api: &Api, page: Page, resource: Resource, head: &Parts, body: Body) -> Result<Response> {
    let methods = resource.methods();
    if methods != READ_METHODS && api.settings.read_only {
        return Err(Problem::read_only());
    }
    // Checked before the write: a client that does not accept the answer would take the write for failed.
    if methods != READ_METHODS {
        check_version(&head.headers, &json_type("written"))?;
    }
    let caller = caller_of(&head.extensions);
    let may = |right| api.check_write(caller, right, &page, &head.headers);
    let writer;
    let written = match (&head.method, resource) {
        (&Method::POST, Resource::RevisionList(list)) => {
            check_whole_list(&list)?;
            writer = may(Right::Write)?;
            write::revision(api, page, writer, head, body).await
        }
        (&Method::POST, Resource::RenderList(rev, list)) => {
            check_whole_list(&list)?;
            writer = may(Right::Write)?;
            write::render(api, page, RenderBase::Revision(rev), writer, head, body).await
        }
        (&Method::POST, Resource::Document(Selector::Render(tid))) => {
            writer = may(Right::Write)?;
            write::render(api, page, RenderBase::Render(tid), writer, head, body).await
        }
        (&Method::PUT, Resource::Property(Selector::Render(tid), name)) => {
            writer = may(Right::Rewrite)?;
            rewrite::property(api, page, tid, name, writer, head, body).await
        }
        _ => return Err(Problem::method_not_allowed(methods)),
    };
    written.map_err(|problem| writer.conceal(problem))
}

/// Checks that a write addresses the whole list, not a part of the list.
fn check_whole_list<T: PartialEq>(list: &ListRange<T>) -> Result<()> {
    if *list == ListRange::default() {
        return Ok(());
    }
    Err(Problem::malformed("a write takes no &limit= and no &page=: POST to ?rev/ or ?rev/12345/"))
}

/// `/wiki/{title}`: the same resources, read-only, in the domain of the host.
pub(crate) async fn wiki(State(api): State<Api>, request: Request) -> Result<Response> {
    let (mut head, _) = request.into_parts();
    ignore_range_unless_get(&mut head);
    if let Some(redirect) = wiki::titled(&api, &head)? {
        return Ok(redirect);
    }
    let target = page_of_wiki(&head.uri, &head.headers, &api.settings.hosts, &api.page_bucket)?;
    if let Some(redirect) = wiki::translated(&api, &target, &head)? {
        return Ok(redirect);
    }
    let resource = parse_resource(&head)?;
    if let Some(redirect) = wiki::other_case(&api, &target, &head).await? {
        return Ok(redirect);
    }
    read(&api, &target, resource, READ_METHODS, &head).await
}

async fn read(
    api: &Api,
    target: &Target,
    resource: Resource,
    methods: &'static str,
    head: &Parts,
) -> Result<Response> {
    match head.method {
        Method::GET | Method::HEAD => api.check_read(caller_of(&head.extensions), &target.page)?,
        // A browser asks for the methods without a token.
        Method::OPTIONS => return Ok(options(methods)),
        _ => return Err(Problem::method_not_allowed(methods)),
    }
    // Purges name the page without a question mark.
    let can_be_purged = resource.can_be_purged() && head.uri.query() != Some("");
    let tid = resource.tid_of_property();
    // Links have a spelling of their own for a semicolon, and clients take a redirect at a timegate for an error. No
    // cache keeps the answer of a timegate, so it may have two URLs.
    let is_linked_timegate = matches!(resource, Resource::Timegate(_))
        && target.needs_redirect
        && head.uri.path() == in_link(&target.canonical_path());
    let mut response = if target.needs_redirect && !is_linked_timegate {
        redirect_to_canonical(target.canonical_path(), head.uri.query(), Caching::Tid)
    } else {
        let url = PageUrl::of(api, head);
        get(api, &target.page, resource, &url, &head.headers).await?
    };
    if !api.is_public(&target.page) {
        caching::restrict(response.headers_mut());
    } else if can_be_purged {
        api.mark_page(&mut response, &target.page, tid);
    }
    Ok(response)
}

async fn get(
    api: &Api,
    page: &Page,
    resource: Resource,
    url: &PageUrl,
    headers: &HeaderMap,
) -> Result<Response> {
    match resource {
        Resource::Property(Selector::Latest, name) => read::latest(api, page, &name, url, headers).await,
        // Boxed, so that the future of the most frequent read stays small.
        other => Box::pin(get_other(api, page, other, url, headers)).await,
    }
}

async fn get_other(
    api: &Api,
    page: &Page,
    resource: Resource,
    url: &PageUrl,
    headers: &HeaderMap,
) -> Result<Response> {
    match resource {
        Resource::Page => read::page(api, page, url).await,
        Resource::Bare(Selector::Latest) => Ok(redirect("?rev/latest/html", Caching::Mutable)),
        Resource::Revisions => Ok(redirect("?rev/", Caching::Mutable)),
        Resource::RevisionList(list) => read::revisions(api, page, list, headers).await,
        Resource::Bare(Selector::Revision(rev)) => Ok(redirect(&format!("?rev/{rev}/"), Caching::Mutable)),
        Resource::Bare(Selector::Render(tid)) => Ok(redirect(&format!("?rev/{tid}/"), Caching::Mutable)),
        Resource::Document(Selector::Latest) => read::latest_render(api, page, headers).await,
        Resource::RenderList(rev, list) => read::revision(api, page, rev, list, headers).await,
        Resource::Document(Selector::Render(tid)) => read::render(api, page, tid, headers).await,
        Resource::Property(Selector::Latest, name) => read::latest(api, page, &name, url, headers).await,
        Resource::Property(Selector::Revision(rev), name) => {
            read::newest_of_revision(api, page, rev, &name).await
        }
        Resource::Property(Selector::Render(tid), name) => {
            read::property(api, page, tid, &name, url, headers).await
        }
        Resource::Property(Selector::Time(at), name) => time::property(api, page, at, &name).await,
        Resource::Timegate(name) => timegate::select(api, page, &name, url, headers).await,
        Resource::Timemap(name, list) => timemap::list(api, page, &name, url, list, headers).await,
        // The parser never returns these resources.
        Resource::Bare(Selector::Time(_)) | Resource::Document(Selector::Time(_) | Selector::Revision(_)) => {
            Err(Problem::not_found("a time must be followed by a property"))
        }
    }
}
