//! Requests for entries of key-value buckets.

use std::sync::Arc;

use crate::access::{BucketKind, Right};
use crate::forms::{RequestBody, refuse_content_encoding};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{Method, StatusCode, header, request::Parts};
use http_body::Body as _;
use rashomon_clock::http_date;
use rashomon_entries::{Bucket, BucketType, Entry, EntryKey, EntryTag, PutOutcome};
use rashomon_pages::{Headers, Staged};
use rashomon_protocol::conditional::WriteCondition;

use super::page::{self, ignore_range_unless_get};
use crate::{
    Api,
    answer::{options, redirect_to_canonical},
    audit::Audit,
    authorize::{Writer, caller_of, kind_of},
    caching::{self, Caching},
    entry_answer::{EntryAnswer, quoted},
    extract::{
        BucketTarget, EntryTarget, READ_METHODS, bucket_and_key_of_wiki, domain_of_host, refuse_query,
    },
    no_body::no_body,
    overload::hold_while,
    problem::{Problem, Result, header_value},
    staging::Claim,
    stored_headers::{self, HeaderRules},
};

/// The methods of an entry.
const METHODS: &str = "GET, HEAD, PUT, DELETE, OPTIONS";

/// Answers a request for an entry. The caller has one of the rights on the bucket that the method may need; the exact
/// right is checked here.
pub(super) async fn v1(
    api: &Api,
    bucket: Arc<Bucket>,
    target: EntryTarget,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    match head.method {
        Method::GET | Method::HEAD => get(api, &bucket, &target, head).await,
        // Boxed, so that the future of a read does not contain the larger one of a write.
        Method::PUT => Box::pin(put(api, &bucket, &target, head, body)).await,
        Method::DELETE => Box::pin(delete(api, bucket, target, head)).await,
        _ => Err(Problem::method_not_allowed(METHODS)),
    }
}

async fn get(api: &Api, bucket: &Bucket, target: &EntryTarget, head: &Parts) -> Result<Response> {
    refuse_query(head.uri.query())?;
    if target.needs_redirect {
        return Ok(canonical_redirect(api, bucket, target));
    }
    read(api, bucket, target, head).await
}

/// `/wiki/?blob/{bucket}/{key}`: an entry of a public bucket, in the domain of the host. A request with another query
/// is refused, since it names neither an entry nor a title.
pub(crate) async fn wiki(State(api): State<Api>, request: Request) -> Result<Response> {
    let query = request.uri().query();
    let Some((name, raw)) = bucket_and_key_of_wiki(query) else {
        if query.is_some_and(|query| query == "blob" || query.starts_with("blob/")) {
            return Err(Problem::malformed(
                "an entry of a public bucket is at /wiki/?blob/{bucket}/{key}: name the bucket, and then the key",
            ));
        }
        return page::wiki(State(api), request).await;
    };
    let domain = domain_of_host(request.uri(), request.headers(), &api.settings.hosts)?;
    let target = EntryTarget::parse(BucketTarget { domain, bucket: name? }, raw)?;
    let (mut head, _) = request.into_parts();
    match head.method {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return Ok(options(READ_METHODS)),
        _ => return Err(Problem::method_not_allowed(READ_METHODS)),
    }
    ignore_range_unless_get(&mut head);
    let BucketTarget { domain, bucket: name } = &target.of;
    api.check_right(caller_of(&head.extensions), Right::Read, domain, name, BucketKind::Public)?;
    let bucket = api.read_key_value(api.key_value.bucket(domain, name)).await?;
    let is_served = |bucket: &Arc<Bucket>| {
        let has_entries = matches!(bucket.bucket_type(), BucketType::Blob | BucketType::OrderedBlob);
        has_entries && bucket.definition.public
    };
    // The answer does not show whether the bucket is private or missing.
    let bucket = bucket.filter(is_served).ok_or_else(|| {
        Problem::not_found(format!("this wiki has no public bucket '{name}' of type blob or ordered-blob"))
    })?;
    if target.needs_redirect {
        let mut response = redirect_to_canonical(target.canonical_url_of_wiki(), None, Caching::Tid);
        if !api.is_public_bucket(&bucket) {
            caching::restrict(response.headers_mut());
        }
        return api.open_to_browsers(&bucket, &head.method, Ok(response));
    }
    let answer = read(&api, &bucket, &target, &head).await;
    api.open_to_browsers(&bucket, &head.method, answer)
}

async fn read(api: &Api, bucket: &Bucket, target: &EntryTarget, head: &Parts) -> Result<Response> {
    let is_public = api.is_public_bucket(bucket);
    let entry = api.read_key_value(api.key_value.entry(bucket, &target.key)).await?;
    let entry = entry.ok_or_else(|| {
        let BucketTarget { domain, bucket: name } = &target.of;
        Problem::not_found(format!(
            "the bucket '{name}' has no entry under this key, or the entry has expired: GET /v1/{domain}/{name}/ lists the \
             entries, and a PUT to /v1/{domain}/{name}/{{key}} stores one"
        ))
    })?;
    answer(api, (bucket, &target.key), &entry, is_public, head)
}

/// Redirects to the canonical spelling of a key.
pub(super) fn canonical_redirect(api: &Api, bucket: &Bucket, target: &EntryTarget) -> Response {
    let mut response = redirect_to_canonical(target.canonical_path(), None, Caching::Tid);
    if !api.is_public_bucket(bucket) {
        caching::restrict(response.headers_mut());
    }
    response
}

/// Answers with an entry that was read.
fn answer(
    api: &Api,
    of: (&Bucket, &EntryKey),
    entry: &Arc<Entry>,
    is_public: bool,
    head: &Parts,
) -> Result<Response> {
    let (prepared, was_prepared) =
        api.prepared_entries.of(entry, || EntryAnswer::new(entry, api.stored_headers()));
    if was_prepared {
        api.metrics.prepared_hits.inc();
    }
    let mut response = prepared.answer(&head.headers, entry, is_public, || api.clock.now())?;
    if is_public {
        api.mark_entry(&mut response, of, entry, prepared.has_own_cache_control());
    }
    Ok(response)
}

/// Checks that the caller may write to the bucket. Returns the rights of the caller.
fn check_write(api: &Api, bucket: &Bucket, target: &EntryTarget, head: &Parts) -> Result<Writer> {
    refuse_query(head.uri.query())?;
    let (caller, kind) = (caller_of(&head.extensions), kind_of(bucket));
    api.check_right(caller, Right::Write, &target.of.domain, &target.of.bucket, kind)?;
    api.writer_to(caller, &target.of, kind, &head.headers)
}

/// Checks the conditions of a write before its body is received. The conditions are checked again when the entry is
/// stored.
async fn check_condition(
    api: &Api,
    bucket: &Bucket,
    target: &EntryTarget,
    condition: &mut WriteCondition,
) -> Result<()> {
    if condition.is_empty() {
        return Ok(());
    }
    let entry = api.read_key_value(api.key_value.entry(bucket, &target.key)).await?;
    let tag = entry.as_ref().map(|entry| entry.etag.to_string());
    let modified = entry.map(|entry| entry.modified);
    if condition.allows_now(tag.as_deref().zip(modified)) { Ok(()) } else { Err(Problem::condition_failed()) }
}

/// Whether a condition allows a write to replace the entry with this tag. `None` means that there is no entry.
fn allows(condition: &WriteCondition, tag: Option<&EntryTag>) -> bool {
    condition.is_empty() || condition.allows(tag.map(ToString::to_string).as_deref())
}

async fn put(
    api: &Api,
    bucket: &Arc<Bucket>,
    target: &EntryTarget,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    let writer = check_write(api, bucket, target, head)?;
    let outcome = store(api, bucket, target, head, body).await.map_err(|problem| writer.conceal(problem))?;
    // A client that may not read must not learn whether there was an entry.
    let is_new = !outcome.replaced || !writer.may_read();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, header_value(&quoted(&outcome.etag)));
    headers.insert(header::LAST_MODIFIED, header_value(&http_date::format(outcome.modified)));
    headers.insert(header::CACHE_CONTROL, Caching::NoStore.header());
    Ok(response)
}

async fn store(
    api: &Api,
    bucket: &Arc<Bucket>,
    target: &EntryTarget,
    head: &Parts,
    body: Body,
) -> Result<PutOutcome> {
    if body.size_hint().exact() == Some(0) && !head.headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Problem::malformed(
            "the request has no body: send the bytes of the entry, or Content-Length: 0 for an empty one",
        ));
    }
    let mut condition = WriteCondition::of(&head.headers);
    let mut body = api.receive_body(body)?;
    let (headers, staged, claim) = receive(api, bucket, target, head, &mut condition, &mut body).await?;
    let (key_value, bucket, key) = (api.key_value.clone(), Arc::clone(bucket), target.key.clone());
    let write = Box::pin(async move {
        let allows = |tag: Option<&EntryTag>| allows(&condition, tag);
        key_value.put(&bucket, &key, headers, staged, &allows).await
    });
    let written = api.write(claim, Audit::of(&head.extensions), write).await?;
    written.map_err(Problem::of_key_value)
}

/// Receives an entry. First makes all checks that do not depend on the entry's bytes.
async fn receive(
    api: &Api,
    bucket: &Bucket,
    target: &EntryTarget,
    head: &Parts,
    condition: &mut WriteCondition,
    body: &mut RequestBody,
) -> Result<(Headers, Staged, Claim)> {
    refuse_content_encoding(&head.headers)?;
    if head.headers.contains_key(header::CONTENT_RANGE) {
        return Err(Problem::malformed("a PUT stores a whole entry: send it without Content-Range"));
    }
    let content_type = bucket.definition.content_type();
    let headers = stored_headers::of_entry(&head.headers, content_type, HeaderRules::of(api))?;
    check_condition(api, bucket, target, condition).await?;
    let mut claim = api.claim(body.length()).await?;
    let mut sink = api.key_value.stage(bucket, &target.key);
    let room = claim.room();
    let receive = async {
        while let Some(piece) = body.next().await? {
            body.hold(room.arrive(piece.len())?);
            sink.write(&piece).await.map_err(Problem::of_key_value)?;
        }
        sink.finish().await.map_err(Problem::of_key_value)
    };
    let mut staged = hold_while(&mut claim.permit, &room, receive).await?;
    if !claim.keep(staged.memory()) {
        let spilled = api.key_value.spill(bucket, &target.key, staged).await;
        staged = spilled.map_err(Problem::of_key_value)?;
    }
    Ok((headers, staged, claim))
}

async fn delete(api: &Api, bucket: Arc<Bucket>, target: EntryTarget, head: &Parts) -> Result<Response> {
    let writer = check_write(api, &bucket, &target, head)?;
    let mut condition = WriteCondition::of(&head.headers);
    check_condition(api, &bucket, &target, &mut condition).await?;
    let (key_value, key) = (api.key_value.clone(), target.key);
    let write = Box::pin(async move {
        let allows = |tag: Option<&EntryTag>| allows(&condition, tag);
        key_value.delete(&bucket, &key, &allows).await
    });
    let claim = api.claim(Some(0)).await?;
    let deleted = api.write(claim, Audit::of(&head.extensions), write).await?;
    deleted.map_err(|error| writer.conceal(Problem::of_key_value(error)))?;
    let mut response = no_body(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    Ok(response)
}
