//! Checks the rights of the caller of a request.

use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderMap, HeaderValue, Method, header};
use std::sync::Arc;

use crate::access::{BucketKind, Caller, Right, Rights};
use rashomon_entries::{Bucket, BucketType};
use rashomon_pages::{BucketName, DomainName, Page};

use crate::{
    Api,
    browsers::EverybodyMayRead,
    caching,
    extract::BucketTarget,
    problem::{Kind, Problem, Result},
    settings::OperatorPages,
};

/// The challenge in an answer to a request without a token (RFC 6750, section 3).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer");

/// The headers that make a request conditional.
pub(crate) const CONDITIONS: [http::HeaderName; 5] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

/// The header of a request that waives all rights of the caller except those that it lists. A server that forwards
/// requests with a token of its own sends the rights of its client, so that the backend answers by them.
pub(crate) const RIGHTS: http::HeaderName = http::HeaderName::from_static("rashomon-rights");

static ANONYMOUS: Caller = Caller::Anonymous;

/// The caller of a request, without the rights that the request waives. An unknown name is a right that this server
/// does not have.
pub(crate) fn limited_by(headers: &HeaderMap, caller: Caller) -> Caller {
    headers.get_all(RIGHTS).iter().fold(caller, |caller, value| {
        let names = value.to_str().unwrap_or_default().split(',');
        caller.limited_to(names.filter_map(|name| name.trim().parse::<Right>().ok()).collect())
    })
}

/// The caller of a request.
pub(crate) fn caller_of(extensions: &Extensions) -> &Caller {
    extensions.get().unwrap_or(&ANONYMOUS)
}

/// The rights of a caller that writes, as far as the answer depends on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    /// Whether the caller has no token. A refusal then asks for a token.
    is_anonymous: bool,
    may_read: bool,
    may_import: bool,
}

impl Api {
    /// Checks that a caller has a right on a bucket of a domain.
    ///
    /// # Errors
    ///
    /// Returns 401 for a caller without a token, and 403 for a caller with a token. The answer depends only on the
    /// rights of the caller and on the request, not on what is stored.
    pub(crate) fn check_right(
        &self,
        caller: &Caller,
        right: Right,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
    ) -> Result<()> {
        if self.access.may(caller, right, domain, bucket, kind) {
            return Ok(());
        }
        Err(refusal_on(caller, right, domain, bucket))
    }

    /// Finds a key-value bucket for a caller that needs a right on it.
    ///
    /// # Errors
    ///
    /// Returns 401 or 403 like [`Self::check_right`]. A caller without the right gets the same answer whether the
    /// bucket exists or not. A caller with the right gets 404 for a missing bucket.
    pub(crate) async fn bucket_for(
        &self,
        caller: &Caller,
        right: Right,
        target: &BucketTarget,
    ) -> Result<Arc<Bucket>> {
        self.bucket_for_any(caller, &[right], target).await
    }

    /// Finds a key-value bucket for a caller that needs one of several rights on it. Fails like
    /// [`Self::bucket_for`]; a refusal names the first of the rights.
    pub(crate) async fn bucket_for_any(
        &self,
        caller: &Caller,
        rights: &[Right],
        target: &BucketTarget,
    ) -> Result<Arc<Bucket>> {
        let BucketTarget { domain, bucket: name } = target;
        let right = rights[0];
        let may = |kind| rights.iter().any(|right| self.access.may(caller, *right, domain, name, kind));
        // The store is not asked if the answer does not depend on the bucket.
        if ![BucketKind::Private, BucketKind::Public, BucketKind::Revisioned].into_iter().any(may) {
            return Err(refusal_on(caller, right, domain, name));
        }
        let bucket = self.read_key_value(self.key_value.bucket(domain, name)).await?;
        if !may(bucket.as_deref().map_or(BucketKind::Private, kind_of)) {
            return Err(refusal_on(caller, right, domain, name));
        }
        bucket.ok_or_else(|| {
            let detail = format!(
                "the domain '{domain}' has no bucket '{name}': create it with PUT /v1/{domain}/{name}"
            );
            Problem::not_found(detail)
        })
    }

    /// Returns the rights of a caller that writes to a key-value bucket.
    ///
    /// # Errors
    ///
    /// Returns 401 or 403 for a conditional request of a caller that may not read.
    pub(crate) fn writer_to(
        &self,
        caller: &Caller,
        target: &BucketTarget,
        kind: BucketKind,
        headers: &HeaderMap,
    ) -> Result<Writer> {
        self.writer(caller, &target.domain, &target.bucket, kind, headers)
    }

    /// Whether everybody may read a key-value bucket, so that shared caches may keep the answer.
    pub(crate) fn is_public_bucket(&self, bucket: &Bucket) -> bool {
        self.access.anybody_may(Right::Read, &bucket.domain, &bucket.name, kind_of(bucket))
    }

    /// Opens an answer of a key-value bucket to web pages of every origin, if `[access]` lets everybody read it.
    pub(crate) fn open_to_browsers(
        &self,
        bucket: &Bucket,
        method: &Method,
        answer: Result<Response>,
    ) -> Result<Response> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if !is_read || self.access.is_open() || !self.is_public_bucket(bucket) {
            return answer;
        }
        let mut answer = answer.unwrap_or_else(IntoResponse::into_response);
        answer.extensions_mut().insert(EverybodyMayRead);
        Ok(answer)
    }

    /// Checks that a caller has a right on some bucket of a domain.
    pub(crate) fn check_domain(&self, caller: &Caller, right: Right, domain: &DomainName) -> Result<()> {
        if self.access.may_in(caller, right, domain) {
            return Ok(());
        }
        let needed = format!("the right '{right}' on a bucket of the domain '{domain}'");
        Err(refusal(caller.lacks_token_for(right), needed))
    }

    /// Checks that a caller may read a page.
    pub(crate) fn check_read(&self, caller: &Caller, page: &Page) -> Result<()> {
        self.check_right(caller, Right::Read, &page.domain, &page.bucket, BucketKind::Revisioned)
    }

    /// Checks that a caller has a right to write to a page, such as `write` or `rewrite`.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::check_right`] does. Also fails for a conditional request of a caller that may not read, since
    /// the answer would show whether the condition holds for the stored content.
    pub(crate) fn check_write(
        &self,
        caller: &Caller,
        right: Right,
        page: &Page,
        headers: &HeaderMap,
    ) -> Result<Writer> {
        let kind = BucketKind::Revisioned;
        self.check_right(caller, right, &page.domain, &page.bucket, kind)?;
        self.writer(caller, &page.domain, &page.bucket, kind, headers)
    }

    fn writer(
        &self,
        caller: &Caller,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
        headers: &HeaderMap,
    ) -> Result<Writer> {
        let may = |right| self.access.may(caller, right, domain, bucket, kind);
        let writer = Writer {
            is_anonymous: matches!(caller, Caller::Anonymous),
            may_read: may(Right::Read),
            may_import: may(Right::Import),
        };
        if CONDITIONS.iter().any(|name| headers.contains_key(name)) {
            writer.check_condition("a condition, such as If-Match")?;
        }
        Ok(writer)
    }

    /// Checks that a caller has a right on everything.
    pub(crate) fn check_everywhere(&self, caller: &Caller, right: Right) -> Result<()> {
        if self.access.may_everywhere(caller, right) {
            return Ok(());
        }
        let needed = format!("the right '{right}' on every domain and every bucket");
        Err(refusal(caller.lacks_token_for(right), needed))
    }

    /// Checks that a caller has a right on some domain, which need not exist.
    pub(crate) fn check_somewhere(&self, caller: &Caller, right: Right) -> Result<()> {
        if self.access.may_somewhere(caller, right) {
            return Ok(());
        }
        Err(refusal(caller.lacks_token_for(right), format!("the right '{right}' on a domain")))
    }

    /// Checks that a caller may read `/metrics`, `/docs` and `/openapi.json`. If these resources are not open, a token
    /// is needed even where everybody may read everything, since they show more than the pages do.
    pub(crate) fn check_operator(&self, caller: &Caller) -> Result<()> {
        let is_open = self.settings.operator_pages == OperatorPages::Open;
        if is_open || self.access.token_grants_everywhere(caller, Right::Read) {
            return Ok(());
        }
        let needed = "the right 'read' on every domain and every bucket, granted by the token itself";
        Err(refusal(caller.lacks_token_for(Right::Read), needed.to_owned()))
    }

    /// Keeps shared caches from storing a page for operators, if clients need a token to read the page.
    pub(crate) fn restrict_operator(&self, mut response: Response) -> Response {
        if self.settings.operator_pages == OperatorPages::Token {
            caching::restrict(response.headers_mut());
        }
        response
    }

    /// Whether everybody may read a page, so that shared caches may keep the answer.
    pub(crate) fn is_public(&self, page: &Page) -> bool {
        self.access.anybody_may(Right::Read, &page.domain, &page.bucket, BucketKind::Revisioned)
    }
}

impl Writer {
    /// Checks that the caller may send a condition. `what` names the condition.
    pub(crate) fn check_condition(self, what: &str) -> Result<()> {
        if self.may_read {
            return Ok(());
        }
        Err(refusal(self.is_anonymous, format!("the right 'read' for {what}")))
    }

    /// Checks that the caller may send `_timestamp`.
    pub(crate) fn check_timestamp(self) -> Result<()> {
        if self.may_import {
            return Ok(());
        }
        Err(refusal(self.is_anonymous, "the right 'import' for _timestamp".to_owned()))
    }

    /// Whether the caller may learn what is stored.
    pub(crate) const fn may_read(self) -> bool {
        self.may_read
    }

    /// Removes the details about stored content from a problem, if the caller may not read. The status stays.
    pub(crate) fn conceal(self, problem: Problem) -> Problem {
        if self.may_read { problem } else { problem.concealed() }
    }
}

/// The problem for a missing right on a bucket.
fn refusal_on(caller: &Caller, right: Right, domain: &DomainName, bucket: &BucketName) -> Problem {
    let needed = format!("the right '{right}' on the bucket '{bucket}' of the domain '{domain}'");
    refusal(caller.lacks_token_for(right), needed)
}

/// Returns the kind of a bucket, on which rights depend.
pub(crate) fn kind_of(bucket: &Bucket) -> BucketKind {
    match bucket.definition.bucket_type {
        BucketType::Revisioned => BucketKind::Revisioned,
        _ if bucket.definition.public => BucketKind::Public,
        _ => BucketKind::Private,
    }
}

/// The beginning of the refusal of a token.
const REFUSED_TOKEN: &str = "the token does not allow this request, which needs ";

/// Returns the problem for a client without a token whose request another server has refused because of the token of
/// this server. `detail` is that of the refusal. `None` for another refusal, and for one that names a right of the
/// client.
pub(crate) fn refusal_without_token(detail: &str, rights: Rights) -> Option<Problem> {
    let needed = detail.strip_prefix(REFUSED_TOKEN)?;
    let right: Right = needed.strip_prefix("the right '")?.split_once('\'')?.0.parse().ok()?;
    (!rights.contains(right)).then(|| refusal(true, needed.to_owned()))
}

/// The problem for a missing right.
fn refusal(is_anonymous: bool, needed: String) -> Problem {
    if is_anonymous {
        Problem::new(
            Kind::Unauthorized,
            format!("this request needs a token with {needed}: send it in the header 'Authorization: Bearer TOKEN'"),
        )
        .with_header(header::WWW_AUTHENTICATE, CHALLENGE)
    } else {
        Problem::new(Kind::Forbidden, format!("{REFUSED_TOKEN}{needed}"))
    }
}
