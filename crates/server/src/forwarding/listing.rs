//! The list of the buckets of a domain that other servers have.
//!
//! These servers list what the token of this server may read. The list is read, as a whole if necessary, and the caller
//! gets the buckets that it may read itself.

use crate::access::{BucketKind, Caller, Right, Rights};
use crate::forms::RequestBody;
use axum::{body::Body, response::Response};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use rashomon_pages::BucketName;
use serde::{Deserialize, Serialize};

use super::{concealment::read, sender_of, target::ForwardTarget, waive_other_rights};
use crate::{
    Api,
    answer::{json_type, of_type},
    authorize::CONDITIONS,
    caching::Caching,
    extract::Parameters,
    problem::{Kind, Problem, Result},
    registry::PrefixServers,
};

/// The default number of buckets in a list.
const DEFAULT_LIMIT: usize = 50;

/// The number of buckets that one request to the backend reads: the maximum of `limit`.
const PART: usize = 500;

/// The maximum number of requests for one list. A backend that never ends its list is given up.
const MAX_PARTS: usize = 1000;

/// A list of buckets, or a part of one. The types are those of the backend, which may know more of them.
#[derive(Serialize, Deserialize)]
struct BucketList {
    buckets: Vec<ListedBucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ListedBucket {
    name: String,
    #[serde(rename = "type")]
    bucket_type: String,
}

/// Answers `GET /v1/{domain}/` with the buckets that the caller may read, like the list of this server's own store.
pub(super) async fn list(
    api: &Api,
    target: &ForwardTarget,
    upstream: &PrefixServers,
    caller: &Caller,
    mut head: Parts,
) -> Result<Response> {
    let uri = head.uri.clone();
    let parameters = Parameters::parse(uri.query(), &["limit", "after"])?;
    let asked = parameters.limit()?;
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    let mut after = parameters.get("after").map(BucketName::new).transpose()?;
    head.method = Method::GET;
    for name in CONDITIONS.iter().chain(&[header::RANGE, header::ACCEPT_ENCODING]) {
        head.headers.remove(name);
    }
    waive_other_rights(&mut head.headers, Rights::from_iter([Right::Read]));
    let sender = sender_of(api, &head);
    let mut buckets: Vec<ListedBucket> = Vec::new();
    for _ in 0..MAX_PARTS {
        let mut head = head.clone();
        let position = after.as_ref().map(|after| format!("&after={after}")).unwrap_or_default();
        let path = format!("/v1/{}/?limit={PART}{position}", target.domain);
        head.uri = path.parse().map_err(|_| no_list())?;
        let body = RequestBody::new(Body::empty(), api.body_limits(), api.metrics.received_bytes.clone())?;
        let answer = upstream.send(head, body, sender).await?;
        if answer.status() != StatusCode::OK {
            return Ok(answer);
        }
        let part: BucketList =
            serde_json::from_slice(&read(answer.into_body()).await?).map_err(|_| no_list())?;
        let has_more = part.next.is_some();
        if has_more && part.buckets.is_empty() {
            return Err(no_list());
        }
        for bucket in part.buckets {
            let name = BucketName::new(&bucket.name).map_err(|_| no_list())?;
            // A list that does not go on would be read without end.
            if after.as_ref().is_some_and(|after| *after >= name) {
                return Err(no_list());
            }
            let kind = match &*bucket.bucket_type {
                "revisioned" => BucketKind::Revisioned,
                _ if upstream.is_public() => BucketKind::Public,
                _ => BucketKind::Private,
            };
            if api.access.may(caller, Right::Read, &target.domain, &name, kind) {
                buckets.push(bucket);
            }
            after = Some(name);
        }
        if !has_more || buckets.len() > limit {
            return answer_of(buckets, limit, asked);
        }
    }
    Err(no_list())
}

fn answer_of(mut buckets: Vec<ListedBucket>, limit: usize, asked: Option<usize>) -> Result<Response> {
    let has_more = buckets.len() > limit;
    buckets.truncate(limit);
    let size = asked.map(|limit| format!("limit={limit}&")).unwrap_or_default();
    let next = buckets.last().filter(|_| has_more).map(|last| format!("?{size}after={}", last.name));
    let body = serde_json::to_vec(&BucketList { buckets, next }).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    let mut response = of_type(json_type("bucket-list"), Caching::NoStore, body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn no_list() -> Problem {
    let detail = "the backend of this path did not answer with a list of buckets: the server's operator has to see \
                  what answers there";
    Problem::new(Kind::BackendFailed, detail)
}
