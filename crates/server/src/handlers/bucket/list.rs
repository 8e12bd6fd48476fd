//! The list of the buckets of a domain.

use crate::access::{BucketKind, Caller, Right};
use axum::{
    extract::{Request, State},
    response::Response,
};
use http::{HeaderValue, Method, header};
use rashomon_entries::BucketType;
use rashomon_pages::{BucketName, DomainName};

use crate::{
    Api,
    answer::{check_version, json_type, of_type, options},
    authorize::{caller_of, kind_of},
    caching::Caching,
    extract::{Parameters, READ_METHODS, domain_of_v1},
    json::{BucketListJson, BucketSummaryJson},
    problem::{Kind, Problem, Result},
};

/// The default number of buckets in a list.
const DEFAULT_LIMIT: usize = 50;

/// Paths of other resources with an additional slash at the end. They look like the path of a domain.
const PATHS_WITHOUT_DOMAIN: [&str; 2] = ["/v1/batch/", "/v1/tokens/"];

/// `/v1/{domain}/`
pub(crate) async fn list(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, _) = request.into_parts();
    if PATHS_WITHOUT_DOMAIN.contains(&head.uri.path()) {
        return Err(Problem::not_found("no resource has this path: leave out the last slash"));
    }
    let (domain, _) = domain_of_v1(head.uri.path())?;
    match head.method {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return Ok(options(READ_METHODS)),
        _ => return Err(Problem::method_not_allowed(READ_METHODS)),
    }
    let parameters = Parameters::parse(head.uri.query(), &["limit", "after"])?;
    let limit = parameters.limit()?;
    let after = parameters.get("after").map(BucketName::new).transpose()?;
    let caller = caller_of(&head.extensions);
    api.check_domain(caller, Right::Read, &domain)?;
    check_version(&head.headers, &json_type("bucket-list"))?;
    let mut buckets = readable(&api, caller, &domain, after, limit.unwrap_or(DEFAULT_LIMIT)).await?;
    let has_more = buckets.len() > limit.unwrap_or(DEFAULT_LIMIT);
    buckets.truncate(limit.unwrap_or(DEFAULT_LIMIT));
    let size = limit.map(|limit| format!("limit={limit}&")).unwrap_or_default();
    let next = buckets.last().filter(|_| has_more).map(|last| format!("?{size}after={}", last.name));
    let body = serde_json::to_vec(&BucketListJson { buckets, next }).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    let mut response = of_type(json_type("bucket-list"), Caching::NoStore, body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Returns the first `limit` buckets after `after` that the client may read, and one more bucket if there are more.
async fn readable(
    api: &Api,
    caller: &Caller,
    domain: &DomainName,
    after: Option<BucketName>,
    limit: usize,
) -> Result<Vec<BucketSummaryJson>> {
    let may = |name: &BucketName, kind| api.access.may(caller, Right::Read, domain, name, kind);
    let page = &api.page_bucket;
    let mut found = Vec::new();
    // The bucket `page` is in the list only if it has a page.
    if after.as_ref().is_none_or(|after| after < page) && may(page, BucketKind::Revisioned) {
        let titles = api.read_catalog(api.buckets.catalog().titles(domain, page, None, 1)).await?;
        if !titles.items.is_empty() {
            let bucket_type = BucketType::Revisioned.as_str();
            found.push(BucketSummaryJson { name: page.to_string(), bucket_type });
        }
    }
    let (mut position, mut readable) = (after, 0);
    loop {
        let listing = api.read_key_value(api.key_value.buckets(domain, position.as_ref(), limit)).await?;
        for bucket in listing.items.iter().filter(|bucket| may(&bucket.name, kind_of(bucket))) {
            readable += 1;
            found.push(BucketSummaryJson {
                name: bucket.name.to_string(),
                bucket_type: bucket.bucket_type().as_str(),
            });
        }
        position = listing.next;
        if position.is_none() || readable > limit {
            break;
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found.truncate(limit + 1);
    Ok(found)
}
