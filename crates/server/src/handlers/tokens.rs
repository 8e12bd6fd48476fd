//! Creates, lists and revokes tokens. Each of these requests needs the right `admin` on everything.

use std::sync::Arc;

use crate::access::{Caller, MAX_LISTED, Right, TokenDocument, TokenId, TokenRequest};
use crate::forms::{BodyLimits, RequestBody, refuse_content_encoding};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use rashomon_pages::{Listing, excerpt};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    Api,
    answer::{json_type, of_type, options},
    audit::Audit,
    authorize::caller_of,
    caching::Caching,
    extract::refuse_query,
    no_body::no_body,
    problem::{Kind, Problem, Result},
};

const METHODS: &str = "GET, HEAD, POST, OPTIONS";
const METHODS_OF_ONE: &str = "DELETE, OPTIONS";

/// The maximum size of a request for a new token.
const MAX_REQUEST_BYTES: u64 = 64 << 10;

/// A new token.
#[derive(Serialize, ToSchema)]
#[schema(as = NewToken)]
pub(crate) struct NewTokenJson<'a> {
    /// The id, which names the token in lists and in the audit log.
    id: &'a str,
    /// The token itself. It is shown only here.
    token: &'a str,
}

/// The tokens, the oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = TokenList)]
pub(crate) struct TokenListJson {
    /// The tokens, without their secrets.
    tokens: Vec<TokenDocument>,
    /// The query of the next page, relative to the list. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// `/v1/tokens`
pub(crate) async fn all(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    match head.method {
        Method::GET | Method::HEAD => {
            check_admin(&api, &head)?;
            list(&api, head.uri.query()).await
        }
        Method::POST => {
            check_admin(&api, &head)?;
            check_writable(&api)?;
            refuse_query(head.uri.query())?;
            create(&api, &head, body).await
        }
        Method::OPTIONS => Ok(options(METHODS)),
        _ => Err(Problem::method_not_allowed(METHODS)),
    }
}

/// `/v1/tokens/{id}`
pub(crate) async fn one(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, _) = request.into_parts();
    match head.method {
        Method::DELETE => {}
        Method::OPTIONS => return Ok(options(METHODS_OF_ONE)),
        _ => return Err(Problem::method_not_allowed(METHODS_OF_ONE)),
    }
    check_admin(&api, &head)?;
    check_writable(&api)?;
    refuse_query(head.uri.query())?;
    let id: TokenId = head.uri.path().strip_prefix("/v1/tokens/").unwrap_or_default().parse()?;
    let (access, by) = (Arc::clone(&api.access), name_of(caller_of(&head.extensions)));
    let claim = api.claim_for_operator().await?;
    let revoked = api.write(claim, Audit::of(&head.extensions), async move {
        let revoked = access.revoke_token(&id).await;
        if matches!(revoked, Ok(true)) {
            tracing::info!(token = %id, by, "token revoked");
        }
        revoked.map(|revoked| (revoked, id))
    });
    let (revoked, id) = revoked.await?.map_err(Problem::of_bucket)?;
    if !revoked {
        return Err(Problem::not_found(format!("there is no token with the id {id}")));
    }
    let mut response = no_body(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    Ok(response)
}

/// The name of a caller, for the log.
fn name_of(caller: &Caller) -> String {
    caller.token().map_or_else(|| "a client without a token".to_owned(), ToString::to_string)
}

fn check_admin(api: &Api, head: &Parts) -> Result<()> {
    api.check_everywhere(caller_of(&head.extensions), Right::Admin)
}

fn check_writable(api: &Api) -> Result<()> {
    if api.settings.read_only { Err(Problem::read_only()) } else { Ok(()) }
}

async fn list(api: &Api, query: Option<&str>) -> Result<Response> {
    let (mut limit, mut after) = (MAX_LISTED, None);
    for parameter in query.unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("limit", value)) => {
                let parsed = value.parse().ok().filter(|limit| (1..=MAX_LISTED).contains(limit));
                limit = parsed.ok_or_else(|| {
                    Problem::malformed(format!("limit= must be a number from 1 to {MAX_LISTED}"))
                })?;
            }
            Some(("after", value)) => after = Some(value.parse::<TokenId>()?),
            _ => {
                let parameter = excerpt(parameter);
                let detail = format!("the list of tokens takes limit= and after=, not '{parameter}'");
                return Err(Problem::malformed(detail));
            }
        }
    }
    let listing = api.read_catalog(api.access.tokens().list(after.as_ref(), limit)).await?;
    let Listing { items, next } = listing;
    let size = if limit == MAX_LISTED { String::new() } else { format!("limit={limit}&") };
    json(
        StatusCode::OK,
        "token-list",
        &TokenListJson {
            tokens: items.into_iter().map(TokenDocument::from).collect(),
            next: next.map(|last| format!("?{size}after={last}")),
        },
    )
}

async fn create(api: &Api, head: &Parts, body: Body) -> Result<Response> {
    let headers = &head.headers;
    refuse_content_encoding(headers)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            Kind::UnsupportedMediaType,
            "the Content-Type of a request for a new token must be application/json",
        ));
    }
    let limits = BodyLimits { bytes: MAX_REQUEST_BYTES, ..api.body_limits() };
    let mut body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let mut text = Vec::new();
    while let Some(piece) = body.next().await? {
        text.extend_from_slice(&piece);
    }
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::malformed("the body is not a JSON object with the members rights and domains"));
    }
    let request: TokenRequest = serde_json::from_slice(&text).map_err(|error| {
        Problem::malformed(format!("the body is not a valid request for a token: {error}"))
    })?;
    let new = request.check(api.clock.now()).map_err(Problem::invalid)?;
    let (access, by) = (Arc::clone(&api.access), name_of(caller_of(&head.extensions)));
    let claim = api.claim_for_operator().await?;
    // Stored and logged even if the client goes away, so that no token exists that no log names.
    let made = api.write(claim, Audit::of(&head.extensions), async move {
        let made = access.create_token(new).await;
        if let Ok(token) = &made {
            tracing::info!(token = %token.id(), by, "token created");
        }
        made
    });
    let token = made.await?.map_err(Problem::of_bucket)?;
    json(StatusCode::CREATED, "new-token", &NewTokenJson { id: token.id().as_str(), token: token.reveal() })
}

fn json(status: StatusCode, name: &str, document: &impl Serialize) -> Result<Response> {
    let body = serde_json::to_vec(document).unwrap_or_default();
    let mut response = of_type(json_type(name), Caching::NoStore, body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
