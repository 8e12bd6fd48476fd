//! Checks against attacks through browsers. A web page of another origin may change nothing, unless its origin is
//! configured; requests with neither `Origin` nor `Sec-Fetch-Site` pass this check. With `check_host`, requests of all
//! clients for an unknown host are refused, against DNS rebinding.
//!
//! Web pages of every origin may read what `[access]` opens to everybody ([`EverybodyMayRead`]). Nothing is opened to
//! them where access is open because nothing is configured: such a server may be reachable only by the browser.
//!
//! [`check_browser_request`] decides without I/O. The middleware (`observe`) calls it before a request reaches its
//! handler.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use crate::access::{Access, BucketKind, Caller, Right};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION, ORIGIN, VARY,
    },
};
use rashomon_pages::{BucketName, DomainName, excerpt};

use crate::{
    extract::{bucket_and_key_of_wiki, domain_of_host},
    host::{authority_of, configured_names, split_port},
    once_per_minute::OncePerMinute,
    problem::{Kind, Problem, Result},
    settings::Settings,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How long a browser may keep the answer to a preflight.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");

/// The headers of answers that web pages of the configured origins may read.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "ETag, Location, Content-Location, Content-Range, Link, Memento-Datetime, Allow, Retry-After, WWW-Authenticate, \
     x-rev, x-parent, x-request-id",
);

/// The value of `Access-Control-Allow-Origin` for every origin. A browser then sends neither cookies nor other
/// credentials, since `Access-Control-Allow-Credentials` is never sent.
const EVERY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

/// The extension of an answer that everybody may read, because `[access]` says so. The answer may be an error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EverybodyMayRead;

/// The data for the headers of an answer to a web page of a configured origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrossOrigin {
    /// The value of the request's `Origin`.
    origin: HeaderValue,
    /// `None` if the request is not a preflight. Otherwise the headers that the preflight asks for, if any.
    preflight: Option<Option<HeaderValue>>,
}

/// Checks the host of a request, and the web page that sent it. Returns the data for CORS headers if the request
/// comes from a configured origin, otherwise `None`. Call [`add_headers`] in both cases.
///
/// # Errors
///
/// Returns 421 if `check_host` is set and the host of the request is not one of this server. Returns 403 if
/// a web page of another origin would change something.
pub(crate) fn check_browser_request(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    settings: &Settings,
) -> Result<Option<CrossOrigin>> {
    let authority = authority_of(uri, headers).filter(|authority| !authority.is_empty());
    if settings.check_host
        && let Some(authority) = authority
        && !is_known(authority, settings)
    {
        return Err(misdirected(authority));
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let (origin, another) = (origins.next(), origins.next());
    if let Some(origin) =
        origin.filter(|origin| another.is_none() && is_configured(origin, &settings.origins))
    {
        return Ok(Some(CrossOrigin { origin: origin.clone(), preflight: preflight(method, headers) }));
    }
    if method.is_safe() {
        return Ok(None);
    }
    // `same-site` is another origin; `none` is a typed address.
    let fetch_site_allows =
        headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none");
    let own_origin = headers.get_all(ORIGIN).iter().all(|origin| is_own(origin, authority));
    if fetch_site_allows && own_origin { Ok(None) } else { Err(cross_site(origin)) }
}

/// Whether everybody may read the page or the list that a request names, because `[access]` says so. `false` for key-value
/// buckets, since their definitions decide: the handler marks such answers with [`EverybodyMayRead`].
pub(crate) fn is_open_read(
    access: &Access,
    hosts: &HashMap<String, DomainName>,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
) -> bool {
    if access.is_open() || !matches!(*method, Method::GET | Method::HEAD) {
        return false;
    }
    let may_read_pages = |domain: &DomainName| {
        access.anybody_may(Right::Read, domain, &BucketName::page(), BucketKind::Revisioned)
    };
    let path = uri.path();
    if let Some(title) = path.strip_prefix("/wiki/") {
        let names_entry = title.is_empty() && bucket_and_key_of_wiki(uri.query()).is_some();
        return !names_entry
            && domain_of_host(uri, headers, hosts).is_ok_and(|domain| may_read_pages(&domain));
    }
    let Some((domain, rest)) = path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let Ok(domain) = DomainName::new(domain) else { return false };
    match rest {
        // The list of buckets shows more to a caller with a token.
        "" => !headers.contains_key(AUTHORIZATION) && access.may_in(&Caller::Anonymous, Right::Read, &domain),
        rest => (rest == "page" || rest.starts_with("page/")) && may_read_pages(&domain),
    }
}

/// Adds the headers for browsers to an answer. `has_origins`: whether any origins are configured. `is_open`: whether
/// everybody may read the answer, because `[access]` says so.
pub(crate) fn add_headers(
    headers: &mut HeaderMap,
    status: StatusCode,
    cross: Option<CrossOrigin>,
    has_origins: bool,
    is_open: bool,
) {
    if has_origins {
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    // Another backend may have opened its answer to every origin. The rights of this server count.
    if headers.get(ACCESS_CONTROL_ALLOW_ORIGIN) == Some(&EVERY_ORIGIN) {
        headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(ACCESS_CONTROL_EXPOSE_HEADERS);
    }
    let Some(CrossOrigin { origin, preflight }) = cross else {
        if is_open {
            // Also for a request without Origin: a cache may answer a web page with this answer.
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, EVERY_ORIGIN);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        }
        return;
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    match preflight {
        None => {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        }
        Some(wanted) if status.is_success() => {
            if let Some(methods) = headers.get(ALLOW).cloned() {
                headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
            }
            if let Some(wanted) = wanted {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
            }
            headers.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
        }
        Some(_) => {}
    }
}

fn preflight(method: &Method, headers: &HeaderMap) -> Option<Option<HeaderValue>> {
    let is_preflight = method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    is_preflight.then(|| headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned())
}

fn is_configured(origin: &HeaderValue, origins: &BTreeSet<String>) -> bool {
    origin.to_str().is_ok_and(|origin| origins.contains(&origin.to_ascii_lowercase()))
}

/// Whether an origin is the one of the request's host. `null` is never the origin of a host.
fn is_own(origin: &HeaderValue, authority: Option<&str>) -> bool {
    let (Some((scheme, host)), Some(authority)) =
        (origin.to_str().ok().and_then(|origin| origin.split_once("://")), authority)
    else {
        return false;
    };
    let usual = match scheme {
        "http" => "80",
        "https" => "443",
        _ => return false,
    };
    let (host, port) = split_port(host);
    let (own_host, own_port) = split_port(authority);
    host.eq_ignore_ascii_case(own_host) && port.unwrap_or(usual) == own_port.unwrap_or(usual)
}

/// Whether a server on loopback answers requests for a host: a name of loopback, or a configured name.
fn is_known(authority: &str, settings: &Settings) -> bool {
    let (host, with_port) = configured_names(authority);
    let configured = |name: &str| settings.hosts.contains_key(name) || settings.other_hosts.contains(name);
    is_loopback(&host) || configured(&host) || with_port.is_some_and(|name| configured(&name))
}

/// Whether a host is a name or an address of loopback. Browsers resolve `localhost` and names below it
/// themselves, so DNS rebinding cannot use these names.
fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host == "localhost"
        || host.ends_with(".localhost")
        || address.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

fn misdirected(authority: &str) -> Problem {
    let authority = excerpt(authority);
    Problem::new(
        Kind::Misdirected,
        format!(
            "the host '{authority}' is not a name of this server, which listens on loopback and refuses \
             other hosts as a guard against DNS rebinding: use localhost, or, if a proxy passes this host \
             on, add it to the setting 'hosts' (\"*\" allows any host)"
        ),
    )
}

fn cross_site(origin: Option<&HeaderValue>) -> Problem {
    let is_http = |origin: &&str| origin.starts_with("http://") || origin.starts_with("https://");
    let detail = match origin.and_then(|origin| origin.to_str().ok()).filter(is_http) {
        Some(origin) => format!(
            "a web page of {} may not write here: to allow its writes, add this origin to the setting \
             'origins' of [access]; if the web page comes from this server, let the proxy pass the Host \
             header on",
            excerpt(origin)
        ),
        None => {
            "a web page without a usable origin may not write here (the header Origin is null, missing or \
                 unreadable, or its scheme is not http or https): serve the page over http or https, without \
                 the referrer policy no-referrer, and add its origin to the setting 'origins' of [access] \
                 unless the page comes from this server"
                .to_owned()
        }
    };
    Problem::new(Kind::CrossSite, detail)
}

/// Logs the refusals by [`check_browser_request`], each kind at most once per minute. The line names the setting that
/// allows such requests, since a refused request may be legitimate and come through a proxy.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    misdirected: OncePerMinute,
    cross_site: OncePerMinute,
}

impl RefusalLog {
    /// Logs a refusal by [`check_browser_request`]; other problems are not logged here. `now` is a time of a monotonic
    /// clock.
    pub(crate) fn log(&self, problem: &Problem, now: Duration) {
        let detail = problem.detail();
        match problem.kind() {
            Kind::Misdirected if self.misdirected.should_log(now) => {
                tracing::warn!(
                    detail,
                    "request refused: its Host header does not name this server; see the setting 'hosts'"
                );
            }
            Kind::CrossSite if self.cross_site.should_log(now) => {
                tracing::warn!(
                    detail,
                    "write refused: a web page of another origin sent it; see the setting 'origins' of \
                     [access]"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
