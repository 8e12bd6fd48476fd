//! The domain and the bucket of a request that may be forwarded, and the right that the request needs.

use std::collections::HashMap;

use crate::access::Right;
use http::{HeaderMap, Method, Uri};
use rashomon_pages::{BucketName, DomainName};

use crate::{
    extract::{READ_METHODS, bucket_and_key_of_wiki, domain_of_host, parse_bucket, percent_decode},
    problem::{Problem, Result},
};

/// The path of a request that another backend may answer.
#[derive(Debug)]
pub(super) struct ForwardTarget {
    pub(super) domain: DomainName,
    pub(super) bucket: BucketName,
    /// The domain, the bucket, and the parts of the title or the key. For `/v1/{domain}/`, only the domain.
    pub(super) path: Vec<String>,
    pub(super) is_import: bool,
    pub(super) kind: TargetKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// `/v1/{domain}/`
    Domain,
    /// `/v1/{domain}/import`
    Import,
    /// `/v1/{domain}/page/{title}`
    Page,
    /// `/wiki/{title}`
    Wiki,
    /// `/v1/{domain}/{bucket}`
    Bucket,
    /// `/v1/{domain}/{bucket}/{key}`
    Entry,
}

impl ForwardTarget {
    /// Finds the target of a request. `None` if the path is malformed, or not inside a domain, or if a request for
    /// `/wiki/` is not a read. The routes of this server answer a request that has no target.
    pub(super) fn of(
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        hosts: &HashMap<String, DomainName>,
    ) -> Option<Self> {
        if let Some(title) = uri.path().strip_prefix("/wiki/") {
            if !matches!(*method, Method::GET | Method::HEAD) {
                return None;
            }
            let domain = domain_of_host(uri, headers, hosts).ok()?;
            if let Some((bucket, key)) = bucket_and_key_of_wiki(uri.query()).filter(|_| title.is_empty()) {
                return Self::new(domain, bucket.ok()?, key, TargetKind::Wiki);
            }
            return Self::new(domain, BucketName::page(), title, TargetKind::Wiki);
        }
        let rest = uri.path().strip_prefix("/v1/")?;
        let (domain, rest) = rest.split_once('/').map_or((rest, None), |(domain, rest)| (domain, Some(rest)));
        let domain = DomainName::new(domain).ok()?;
        let rest = match rest {
            None | Some("") => {
                let path = vec![domain.to_string()];
                let (bucket, kind) = (BucketName::page(), TargetKind::Domain);
                return Some(Self { domain, bucket, path, is_import: false, kind });
            }
            // An import goes to the backend of the bucket as a whole.
            Some("import") => {
                let named = uri.query().and_then(|query| query.strip_prefix("bucket="));
                let bucket = named.map_or(Ok(BucketName::page()), parse_bucket).ok()?;
                return Self::new(domain, bucket, "", TargetKind::Import);
            }
            Some(rest) => rest,
        };
        let (bucket, key) = rest.split_once('/').map_or((rest, None), |(bucket, key)| (bucket, Some(key)));
        let bucket = parse_bucket(bucket).ok()?;
        let kind = match key {
            None => TargetKind::Bucket,
            Some(_) if bucket == BucketName::page() => TargetKind::Page,
            Some(_) => TargetKind::Entry,
        };
        let key = percent_decode(key.unwrap_or_default())?;
        // This server does not know whether the bucket has pages in the backend. A query such as `rev/` shows that the
        // key is a title.
        let key = if is_of_page(uri.query()) { with_underscores(&key) } else { key.into_owned() };
        Some(Self::of_decoded(domain, bucket, key, kind))
    }

    fn new(domain: DomainName, bucket: BucketName, key: &str, kind: TargetKind) -> Option<Self> {
        Some(Self::of_decoded(domain, bucket, percent_decode(key)?.into_owned(), kind))
    }

    fn of_decoded(domain: DomainName, bucket: BucketName, mut key: String, kind: TargetKind) -> Self {
        if bucket == BucketName::page() {
            key = with_underscores(&key);
        }
        let mut path = vec![domain.to_string(), bucket.to_string()];
        if !key.is_empty() {
            path.extend(key.split('/').map(str::to_owned));
        }
        Self { domain, bucket, path, is_import: kind == TargetKind::Import, kind }
    }

    /// Whether the routes of this server answer a request although its path belongs to other servers: OPTIONS and
    /// unsupported methods of imports, and of what every domain has. Their answers do not depend on stored content.
    pub(super) fn is_answered_here(&self, method: &Method) -> bool {
        (self.is_import || self.bucket == BucketName::page()) && self.right(method, None).is_none()
    }

    /// Refuses a path that a proxy between the servers might change to the path of another bucket.
    pub(super) fn check_segments(&self) -> Result<()> {
        let is_bad = |part: &String| part == "." || part == ".." || part.chars().any(char::is_control);
        if self.path.iter().any(is_bad) {
            let detail =
                "a part of a path between slashes must not be '.' or '..', or have control characters";
            return Err(Problem::malformed(detail));
        }
        Ok(())
    }

    /// The right that a request needs. `None` if the target does not support the method.
    pub(super) fn right(&self, method: &Method, query: Option<&str>) -> Option<Right> {
        let is_revision = || query.is_some_and(|query| query.starts_with("rev/"));
        match (self.kind, method.as_str()) {
            (TargetKind::Import, "POST") => Some(Right::Import),
            (TargetKind::Import, _) => None,
            (_, "GET" | "HEAD") => Some(Right::Read),
            (TargetKind::Domain | TargetKind::Wiki, _) => None,
            (TargetKind::Page, "POST") => Some(Right::Write),
            (TargetKind::Page, "PUT") => Some(Right::Rewrite),
            (TargetKind::Page, _) => None,
            (TargetKind::Bucket, "DELETE") if self.bucket == BucketName::page() => None,
            (TargetKind::Bucket, "PUT" | "DELETE") => Some(Right::Admin),
            (_, "PUT") if is_revision() => Some(Right::Rewrite),
            (_, "DELETE") if is_revision() => Some(Right::Admin),
            (TargetKind::Entry, "PUT" | "POST" | "DELETE") => Some(Right::Write),
            _ => None,
        }
    }

    /// The methods of the target.
    pub(super) fn methods(&self) -> &'static str {
        match self.kind {
            TargetKind::Domain | TargetKind::Wiki => READ_METHODS,
            TargetKind::Import => "POST, OPTIONS",
            TargetKind::Page => "GET, HEAD, POST, PUT, OPTIONS",
            TargetKind::Bucket => "GET, HEAD, PUT, DELETE, OPTIONS",
            TargetKind::Entry => "GET, HEAD, POST, PUT, DELETE, OPTIONS",
        }
    }
}

/// Replaces spaces with underscores. In a title, both mean the same.
fn with_underscores(title: &str) -> String {
    title.replace(' ', "_")
}

/// Whether a query names a sub-resource of a page.
pub(super) fn is_of_page(query: Option<&str>) -> bool {
    let begins = |query: &str| ["rev/", "timegate/", "timemap/"].iter().any(|name| query.starts_with(name));
    query.is_some_and(|query| query == "rev" || begins(query))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, uri: &str) -> Option<ForwardTarget> {
        let hosts = HashMap::from([("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())]);
        let mut headers = HeaderMap::new();
        headers.insert(http::header::HOST, "en.example.org".parse().unwrap());
        ForwardTarget::of(&method.parse().unwrap(), &uri.parse().unwrap(), &headers, &hosts)
    }

    #[test]
    fn path_is_decoded_into_segments() {
        for (uri, path) in [
            ("/v1/enwiki/page/A%2FB%20c?rev/", Some("enwiki|page|A|B_c")),
            ("/v1/enwiki/math-png/b%20c", Some("enwiki|math-png|b c")),
            ("/v1/enwiki/docs/b%20c?rev/", Some("enwiki|docs|b_c")),
            ("/v1/enwiki/docs/b%20c?timemap/html", Some("enwiki|docs|b_c")),
            ("/v1/enwiki/docs/b%20c?reverse", Some("enwiki|docs|b c")),
            ("/v1/enwiki/math-png", Some("enwiki|math-png")),
            ("/v1/enwiki/math-png/", Some("enwiki|math-png")),
            ("/v1/enwiki/", Some("enwiki")),
            ("/v1/enwiki", Some("enwiki")),
            ("/v1/enwiki/import", Some("enwiki|page")),
            ("/v1/enwiki/import?bucket=drafts", Some("enwiki|drafts")),
            ("/wiki/A?rev/", Some("enwiki|page|A")),
            ("/wiki/?blob/math-png/a%2Fb", Some("enwiki|math-png|a|b")),
            ("/wiki/A?blob/math-png/a", Some("enwiki|page|A")),
            ("/wiki/?blob/Math/a", None),
            ("/v1/enwiki/changes", None),
            ("/v1/enwiki/timeline/a", None),
            ("/v1/enwiki/import/a", None),
            ("/v1/enwiki/import?bucket=changes", None),
            ("/v1/batch", None),
            ("/v1/tokens/1", None),
            ("/v1/En/page/A", None),
            ("/v1/e%6Ewiki/page/A", None),
            ("/v1/enwiki/Page/A", None),
            ("/v1/enwiki//page/A", None),
            ("/v1/enwiki/page/%ff", None),
            ("/healthz", None),
            ("/", None),
        ] {
            let found = target("GET", uri).map(|target| target.path.join("|"));
            assert_eq!(found.as_deref(), path, "{uri}");
        }
        assert!(target("POST", "/wiki/A").is_none());
    }

    #[test]
    fn forwarded_request_needs_the_same_right_as_a_local_request() {
        for (method, uri, right) in [
            ("GET", "/v1/enwiki/page/A?rev/", Some(Right::Read)),
            ("HEAD", "/wiki/A", Some(Right::Read)),
            ("POST", "/v1/enwiki/page/A?rev/", Some(Right::Write)),
            ("POST", "/v1/enwiki/page/A?rev/7/", Some(Right::Write)),
            ("PUT", "/v1/enwiki/page/A?rev/x/html", Some(Right::Rewrite)),
            ("DELETE", "/v1/enwiki/page/A", None),
            ("POST", "/v1/enwiki/import", Some(Right::Import)),
            ("GET", "/v1/enwiki/import", None),
            ("GET", "/v1/enwiki/", Some(Right::Read)),
            ("PUT", "/v1/enwiki/math-png", Some(Right::Admin)),
            ("PUT", "/v1/enwiki/page", Some(Right::Admin)),
            ("DELETE", "/v1/enwiki/page", None),
            ("POST", "/v1/enwiki/page", None),
            ("DELETE", "/v1/enwiki/math-png", Some(Right::Admin)),
            ("POST", "/v1/enwiki/math-png", None),
            ("PUT", "/v1/enwiki/math-png/a", Some(Right::Write)),
            ("DELETE", "/v1/enwiki/math-png/a", Some(Right::Write)),
            ("POST", "/v1/enwiki/clicks/a", Some(Right::Write)),
            ("PUT", "/v1/enwiki/drafts/a?rev/x/html", Some(Right::Rewrite)),
            ("DELETE", "/v1/enwiki/drafts/a?rev/7/", Some(Right::Admin)),
            ("PATCH", "/v1/enwiki/math-png/a", None),
        ] {
            let uri: Uri = uri.parse().unwrap();
            let found =
                target(method, &uri.to_string()).unwrap().right(&method.parse().unwrap(), uri.query());
            assert_eq!(found, right, "{method} {uri}");
        }
    }

    #[test]
    fn path_that_leads_to_another_bucket_is_refused() {
        for uri in [
            "/v1/enwiki/math-png/../page/A",
            "/v1/enwiki/math-png/%2e%2E/page/A",
            "/v1/enwiki/math-png/a%0Ab",
        ] {
            assert!(target("GET", uri).unwrap().check_segments().is_err(), "{uri}");
        }
        assert!(target("GET", "/v1/enwiki/math-png/a..b/...").unwrap().check_segments().is_ok());
    }
}
