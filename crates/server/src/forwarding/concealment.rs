//! What a caller that may not read gets of the answer of other servers to its write.
//!
//! These servers see the token of this server, which may have more rights than the caller. A server of this version
//! answers by the rights of the caller, which it gets in a header. Any other server answers by those of the token. So
//! this server removes everything from the answer by which its own store would show what is stored.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::target::{ForwardTarget, TargetKind, is_of_page};
use crate::{
    no_body::no_body,
    problem::{Kind, Problem, Result},
};

/// The maximum size of a document that is read as a whole, and of a line of an import's answer.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// The headers of a successful answer that depend on the request only.
const KEPT_HEADERS: [HeaderName; 6] = [
    header::CACHE_CONTROL,
    header::CONTENT_TYPE,
    header::DATE,
    header::LOCATION,
    header::VIA,
    header::X_CONTENT_TYPE_OPTIONS,
];

/// When a client that may not read is told to repeat an increment: the exact time shows when others incremented.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("3600");

const CONCEALED: &str = "it does not fit what is stored; the right 'read' shows why";

/// The document that answers a write to a page. It has no other members.
#[derive(Serialize, Deserialize)]
struct Document {
    message: String,
    domain: String,
    title: String,
    rev: i64,
    tid: String,
    href: String,
}

/// The resource to which a request writes, on which the form of the answer depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Import,
    /// A revision or a render.
    Page,
    /// The definition of a bucket.
    Definition,
    /// An entry or a counter.
    Entry,
}

impl Written {
    fn of(target: &ForwardTarget, query: Option<&str>) -> Self {
        match target.kind {
            TargetKind::Import => Self::Import,
            TargetKind::Page | TargetKind::Wiki | TargetKind::Domain => Self::Page,
            TargetKind::Bucket => Self::Definition,
            TargetKind::Entry if is_of_page(query) => Self::Page,
            TargetKind::Entry => Self::Entry,
        }
    }
}

/// Removes from the answer to a write what shows stored content.
///
/// # Errors
///
/// Returns the problem that the client gets instead of a refusal that depends on stored content.
pub(super) async fn conceal(
    target: &ForwardTarget,
    method: &Method,
    query: Option<&str>,
    answer: Response,
) -> Result<Response> {
    let written = Written::of(target, query);
    let status = answer.status();
    if status.is_success() {
        return success(written, method, answer).await;
    }
    let kind = match status {
        // To a client that may not read, it makes no difference whether there was a bucket.
        StatusCode::NOT_FOUND if written == Written::Definition && *method == Method::DELETE => {
            return Ok(no_body(StatusCode::NO_CONTENT));
        }
        StatusCode::NOT_FOUND => Kind::NotFound,
        StatusCode::CONFLICT => Kind::Conflict,
        StatusCode::GONE => Kind::Erased,
        StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED => Kind::PreconditionFailed,
        StatusCode::UNPROCESSABLE_ENTITY if written == Written::Entry && *method == Method::POST => {
            return Err(Problem::invalid(
                "the increment is not possible: with it, the counter would exceed the range of 64-bit integers, or it \
                 is no 64-bit integer: use an increment that is closer to 0",
            ));
        }
        StatusCode::SERVICE_UNAVAILABLE if written == Written::Entry => {
            let mut answer = answer;
            if let Some(after) = answer.headers_mut().get_mut(header::RETRY_AFTER) {
                *after = RETRY_AFTER;
            }
            return Ok(answer);
        }
        _ => return Ok(answer),
    };
    Err(Problem::new(kind, "the backend's answer says why").concealed())
}

async fn success(written: Written, method: &Method, answer: Response) -> Result<Response> {
    let (head, body) = answer.into_parts();
    let mut kept = HeaderMap::new();
    let entity = [header::ETAG, header::LAST_MODIFIED];
    // Each PUT gives an entry a new version, whatever was there before.
    let of_entry = entity.iter().filter(|_| written == Written::Entry && *method == Method::PUT);
    for name in KEPT_HEADERS.iter().chain(of_entry) {
        for value in head.headers.get_all(name) {
            kept.append(name, value.clone());
        }
    }
    let (status, body) = match (written, method.as_str()) {
        (Written::Import, _) => (head.status, Some(lines(body))),
        (_, "DELETE") => (StatusCode::NO_CONTENT, None),
        (Written::Page, _) => document(method, head.status, body).await?,
        (Written::Definition, _) => (StatusCode::CREATED, Some(body)),
        (Written::Entry, "PUT") => (StatusCode::CREATED, Some(Body::empty())),
        (Written::Entry, _) if head.status == StatusCode::CREATED => (head.status, Some(Body::empty())),
        // The value of a counter.
        (Written::Entry, _) => (StatusCode::NO_CONTENT, None),
    };
    let mut answer = match body {
        Some(body) => Response::new(body),
        None => {
            kept.remove(header::CONTENT_TYPE);
            no_body(status)
        }
    };
    *answer.status_mut() = status;
    answer.headers_mut().extend(kept);
    Ok(answer)
}

/// The answer to a write of a page: a write that was stored before is answered like a new one.
async fn document(method: &Method, status: StatusCode, body: Body) -> Result<(StatusCode, Option<Body>)> {
    let bytes = read(body).await?;
    let Ok(document) = serde_json::from_slice::<Document>(&bytes) else {
        // Another document may show anything.
        return Ok((status, Some(Body::empty())));
    };
    let (status, message) = match *method == Method::POST {
        true => (StatusCode::CREATED, "Created"),
        false => (StatusCode::OK, "Replaced"),
    };
    let document = Document { message: message.to_owned(), ..document };
    Ok((status, Some(serde_json::to_vec(&document).unwrap_or_default().into())))
}

/// Reads a whole body of limited size.
pub(super) async fn read(body: Body) -> Result<Bytes> {
    axum::body::to_bytes(body, MAX_DOCUMENT_BYTES).await.map_err(|error| {
        let detail = "the answer of the backend of this path broke, or is larger than such an answer can be: see \
                      whether the request was carried out before you repeat it";
        Problem::new(Kind::BackendFailed, detail).with_cause(error)
    })
}

/// The lines of the answer to an import, without what shows stored content.
fn lines(body: Body) -> Body {
    let state = (body.into_data_stream(), Vec::new());
    Body::from_stream(stream::try_unfold(state, async |(mut body, mut rest)| {
        loop {
            let Some(piece) = body.next().await.transpose()? else {
                let last = line(&std::mem::take(&mut rest));
                return Ok((!last.is_empty()).then_some((last, (body, rest))));
            };
            rest.extend_from_slice(&piece);
            if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
                let after = rest.split_off(end + 1);
                let complete: Vec<u8> = rest.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect();
                return Ok(Some((complete.into(), (body, after))));
            }
            if rest.len() > MAX_DOCUMENT_BYTES {
                return Err(axum::Error::new(std::io::Error::other(
                    "a line of the backend's answer is too long",
                )));
            }
        }
    }))
}

/// A line of the answer to an import. A line that is no JSON object is left out.
fn line(line: &[u8]) -> Bytes {
    let Ok(mut members) = serde_json::from_slice::<Map<String, Value>>(line) else { return Bytes::new() };
    let unchanged = members.get("unchanged").and_then(Value::as_u64);
    if let (Some(unchanged), Some(created)) = (unchanged, members.get("created").and_then(Value::as_u64)) {
        members.insert("created".to_owned(), created.saturating_add(unchanged).into());
        members.insert("unchanged".to_owned(), 0.into());
    }
    for (name, conceals_all) in [("first_conflicts", true), ("first_left_out", false)] {
        for exception in members.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(detail) = exception.get_mut("detail")
                && (conceals_all || detail.as_str().is_none_or(|detail| detail.contains("erased")))
            {
                *detail = CONCEALED.into();
            }
        }
    }
    format!("{}\n", Value::Object(members)).into()
}
