//! The definitions of buckets, the list of the buckets of a domain, and the lists of entries and counters.

mod definition;
mod entries;
mod list;

use std::sync::Arc;

use crate::access::{BucketKind, Right};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use rashomon_entries::{Bucket, BucketType, Definition, Error};
use rashomon_protocol::conditional::{self, Verdict, WriteCondition};

pub(super) use self::entries::list as list_entries;
pub(crate) use self::{definition::MAX_DEFINITION_BYTES, list::list};
use crate::{
    Api,
    answer::{check_version, json_type, of_type, options},
    audit::Audit,
    authorize::{Writer, caller_of, kind_of},
    caching::Caching,
    entry_answer::quoted,
    extract::{BucketTarget, bucket_of_v1, refuse_query},
    json,
    no_body::no_body,
    problem::{ACCEPT, Kind, Problem, Result, header_value},
};

const METHODS: &str = "GET, HEAD, PUT, DELETE, OPTIONS";
const METHODS_OF_PAGE: &str = "GET, HEAD, PUT, OPTIONS";

/// The entity tag of the definition of `page`, which never changes.
const TAG_OF_PAGE: &str = "page";

/// A definition and its entity tag. The tag has quotes.
#[derive(PartialEq)]
struct TaggedDefinition {
    definition: Definition,
    etag: String,
}

impl TaggedDefinition {
    fn of(bucket: &Bucket) -> Self {
        Self { definition: bucket.definition.clone(), etag: quoted(&bucket.etag) }
    }

    /// The definition of the built-in bucket of pages.
    fn page() -> Self {
        Self { definition: Definition::of(BucketType::Revisioned), etag: format!("\"{TAG_OF_PAGE}\"") }
    }

    fn to_json(&self, api: &Api) -> Result<Vec<u8>> {
        let filled = self.definition.with_defaults(api.key_value.body_limit());
        serde_json::to_vec(&json::bucket(&filled)).map_err(|error| {
            Problem::new(Kind::Internal, format!("a definition cannot be written as JSON: {error}"))
        })
    }

    fn answer(&self, api: &Api, status: StatusCode) -> Result<Response> {
        let mut response = of_type(json_type("bucket"), Caching::NoStore, self.to_json(api)?);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::ETAG, header_value(&self.etag));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Ok(response)
    }
}

/// `/v1/{domain}/{bucket}`
pub(crate) async fn v1(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let target = bucket_of_v1(head.uri.path())?;
    let is_page = target.bucket == api.page_bucket;
    let methods = if is_page { METHODS_OF_PAGE } else { METHODS };
    match head.method {
        Method::GET | Method::HEAD => get(&api, &target, &head).await,
        Method::PUT => Box::pin(put(&api, target, &head, body)).await,
        Method::DELETE if !is_page => Box::pin(delete(&api, target, &head)).await,
        Method::OPTIONS => Ok(options(methods)),
        _ => Err(Problem::method_not_allowed(methods)),
    }
}

async fn get(api: &Api, target: &BucketTarget, head: &Parts) -> Result<Response> {
    refuse_query(head.uri.query())?;
    let caller = caller_of(&head.extensions);
    if target.bucket == api.page_bucket {
        let BucketTarget { domain, bucket } = target;
        api.check_right(caller, Right::Read, domain, bucket, BucketKind::Revisioned)?;
        return definition_of(api, &TaggedDefinition::page(), head);
    }
    let bucket = api.bucket_for(caller, Right::Read, target).await?;
    let answer = definition_of(api, &TaggedDefinition::of(&bucket), head);
    api.open_to_browsers(&bucket, &head.method, answer)
}

fn definition_of(api: &Api, defined: &TaggedDefinition, head: &Parts) -> Result<Response> {
    check_version(&head.headers, &json_type("bucket"))?;
    match conditional::evaluate(&head.headers, &defined.etag, None) {
        Verdict::Proceed => defined.answer(api, StatusCode::OK),
        Verdict::NotModified { .. } => {
            let mut response = no_body(StatusCode::NOT_MODIFIED);
            response.headers_mut().insert(header::ETAG, header_value(&defined.etag));
            response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
            response.headers_mut().insert(header::VARY, ACCEPT);
            Ok(response)
        }
        Verdict::Failed => Err(Problem::condition_failed().varying_by_accept()),
    }
}

/// Checks that a caller may change the definition of a bucket, and that the server accepts writes. For a caller without
/// a token, a grant that does not name the bucket is not enough.
async fn check_admin(api: &Api, target: &BucketTarget, head: &Parts) -> Result<Writer> {
    refuse_query(head.uri.query())?;
    if api.settings.read_only {
        return Err(Problem::read_only());
    }
    let BucketTarget { domain, bucket } = target;
    let caller = caller_of(&head.extensions);
    api.check_right(caller, Right::Admin, domain, bucket, BucketKind::Private)?;
    let kind = if *bucket == api.page_bucket {
        BucketKind::Revisioned
    } else {
        let stored = api.read_key_value(api.key_value.bucket(domain, bucket)).await?;
        stored.as_deref().map_or(BucketKind::Private, kind_of)
    };
    api.writer_to(caller, target, kind, &head.headers)
}

async fn put(api: &Api, target: BucketTarget, head: &Parts, body: Body) -> Result<Response> {
    let writer = check_admin(api, &target, head).await?;
    let definition = definition::receive(api, &head.headers, body).await?;
    let condition = WriteCondition::of(&head.headers);
    let put = if target.bucket == api.page_bucket {
        put_page(&definition, &condition)
    } else {
        definition::check(&definition, api.key_value.body_limit())?;
        store(api, target, definition.clone(), condition, head).await
    };
    let (is_new, stored) = match put {
        Ok(put) => put,
        Err(PutError::Other(stored)) => return Err(writer.conceal(other_definition(api, &stored)?)),
        Err(PutError::Problem(problem)) => return Err(writer.conceal(problem)),
    };
    if writer.may_read() {
        return stored.answer(api, if is_new { StatusCode::CREATED } else { StatusCode::OK });
    }
    // A client that may not read must not learn whether the bucket existed before.
    let mut response =
        TaggedDefinition { definition, etag: String::new() }.answer(api, StatusCode::CREATED)?;
    response.headers_mut().remove(header::ETAG);
    Ok(response)
}

/// The reason why a definition was not stored.
enum PutError {
    /// The bucket exists with this definition, which is not the requested one.
    Other(TaggedDefinition),
    Problem(Problem),
}

/// Whether a bucket was made, and its definition.
type PutResult = std::result::Result<(bool, TaggedDefinition), PutError>;

/// Answers a PUT of the definition of `page`, which never changes. The request succeeds if its conditions allow this
/// definition, and its body has the same definition.
fn put_page(definition: &Definition, condition: &WriteCondition) -> PutResult {
    let page = TaggedDefinition::page();
    if !condition.allows(Some(TAG_OF_PAGE)) {
        return Err(PutError::Problem(Problem::condition_failed()));
    }
    if *definition == page.definition { Ok((false, page)) } else { Err(PutError::Other(page)) }
}

async fn store(
    api: &Api,
    target: BucketTarget,
    definition: Definition,
    mut condition: WriteCondition,
    head: &Parts,
) -> PutResult {
    let key_value = api.key_value.clone();
    let write = async move {
        let BucketTarget { domain, bucket: name } = target;
        let stored = key_value.bucket(&domain, &name).await?;
        let tag = stored.as_ref().map(|stored| stored.etag.to_string());
        if !condition.allows_now(tag.as_deref().zip(stored.map(|stored| stored.changed_at))) {
            return Err(Error::ConditionFailed);
        }
        if condition.has_match() {
            let allows = |tag: &_| condition.allows(Some(&format!("{tag}")));
            let bucket = key_value.replace_definition(&domain, &name, definition, &allows).await?;
            return Ok((false, bucket));
        }
        let limit = key_value.body_limit();
        let filled = definition.with_defaults(limit);
        let (is_new, bucket) = match key_value.create_bucket(&domain, &name, definition).await {
            Ok(created) => (created.is_new, created.bucket),
            Err(Error::OtherDefinition { stored }) if stored.definition.with_defaults(limit) == filled => {
                (false, *stored)
            }
            Err(Error::OtherDefinition { stored }) if !condition.allows(Some(&stored.etag.to_string())) => {
                return Err(Error::ConditionFailed);
            }
            Err(error) => return Err(error),
        };
        if !is_new && !condition.allows(Some(&bucket.etag.to_string())) {
            return Err(Error::ConditionFailed);
        }
        Ok((is_new, bucket))
    };
    let claim = api.claim(Some(0)).await.map_err(PutError::Problem)?;
    let written = api.write(claim, Audit::of(&head.extensions), Box::pin(write)).await;
    match written.map_err(PutError::Problem)? {
        Ok((is_new, bucket)) => Ok((is_new, TaggedDefinition::of(&bucket))),
        Err(Error::OtherDefinition { stored }) => Err(PutError::Other(TaggedDefinition::of(&stored))),
        Err(error) => Err(PutError::Problem(Problem::of_key_value(error))),
    }
}

/// The problem for a bucket that exists with another definition. The problem shows the stored definition.
fn other_definition(api: &Api, stored: &TaggedDefinition) -> Result<Problem> {
    let json = String::from_utf8(stored.to_json(api)?).unwrap_or_default();
    let detail = if *stored == TaggedDefinition::page() {
        format!("the bucket 'page' exists in every domain, and its definition never changes: {json}")
    } else {
        format!(
            "the bucket exists already, with another definition: {json}; its type never changes: for another type, \
             choose another name; to replace the rest, send the request with If-Match and the entity tag of that \
             definition"
        )
    };
    let raw = serde_json::value::RawValue::from_string(json).map_err(|error| {
        Problem::new(Kind::Internal, format!("a definition cannot be written as JSON: {error}"))
    })?;
    let etag = header_value(&stored.etag);
    Ok(Problem::new(Kind::Conflict, detail).with_definition(raw).with_header(header::ETAG, etag))
}

async fn delete(api: &Api, target: BucketTarget, head: &Parts) -> Result<Response> {
    let writer = check_admin(api, &target, head).await?;
    let mut condition = WriteCondition::of(&head.headers);
    let (key_value, audit) = (api.key_value.clone(), Audit::of(&head.extensions));
    let BucketTarget { domain, bucket: name } = target.clone();
    let write = async move {
        if !condition.is_empty() {
            let stored: Option<Arc<Bucket>> = key_value.bucket(&domain, &name).await?;
            let tag = stored.as_ref().map(|stored| stored.etag.to_string());
            if !condition.allows_now(tag.as_deref().zip(stored.map(|stored| stored.changed_at))) {
                return Err(Error::ConditionFailed);
            }
        }
        let allows = |tag: &_| condition.allows(Some(&format!("{tag}")));
        key_value.delete_bucket_if(&domain, &name, &allows).await
    };
    let claim = api.claim(Some(0)).await?;
    let deleted = api.write(claim, audit, Box::pin(write)).await?;
    if !deleted.map_err(|error| writer.conceal(Problem::of_key_value(error)))? && writer.may_read() {
        let BucketTarget { domain, bucket } = target;
        return Err(Problem::not_found(format!(
            "the domain '{domain}' has no bucket '{bucket}', so nothing was deleted: GET /v1/{domain}/ lists its buckets"
        )));
    }
    let mut response = no_body(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    Ok(response)
}
