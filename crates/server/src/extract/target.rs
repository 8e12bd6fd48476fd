//! The page in a URL, and the path to which another spelling of its title is redirected.

use std::collections::HashMap;

use http::{HeaderMap, Uri};
use rashomon_pages::{BucketName, DomainName, Page, excerpt};

use super::{encode_title, parse_title};
use crate::{
    host::{authority_of, configured_names},
    problem::{Problem, Result},
};

/// The page that a URL names.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The page.
    pub(crate) page: Page,
    /// The part of the path before the title; empty if no redirect is needed.
    prefix: String,
    /// Whether the title is spelled in a way that is redirected to the canonical spelling.
    pub(crate) needs_redirect: bool,
}

impl Target {
    /// The path with the canonical spelling of the title. Call this only if a redirect is needed.
    pub(crate) fn canonical_path(&self) -> String {
        format!("{}{}", self.prefix, encode_title(&self.page.title))
    }
}

/// Parses the page of `/v1/{domain}/page/{title}`. `bucket` is the bucket `page`.
pub(crate) fn page_of_v1(path: &str, bucket: &BucketName) -> Result<Target> {
    let rest = path.strip_prefix("/v1/").unwrap_or_default();
    let (domain, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let domain = DomainName::new(domain)?;
    page_in_bucket(domain, bucket.clone(), rest.strip_prefix("page/").unwrap_or_default())
}

/// Parses the page of `/v1/{domain}/{bucket}/{title}` from its raw title. `bucket` must have its id.
pub(crate) fn page_in_bucket(domain: DomainName, bucket: BucketName, raw: &str) -> Result<Target> {
    let (title, needs_redirect) = parse_title(raw)?;
    let prefix = if needs_redirect { format!("/v1/{domain}/{bucket}/") } else { String::new() };
    Ok(Target { page: Page { domain, bucket, title }, prefix, needs_redirect })
}

/// Parses the page of `/wiki/{title}`, in the domain of the request's host. `bucket` is the bucket `page`.
pub(crate) fn page_of_wiki(
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &HashMap<String, DomainName>,
    bucket: &BucketName,
) -> Result<Target> {
    let domain = domain_of_host(uri, headers, hosts)?;
    let (title, needs_redirect) = parse_title(uri.path().strip_prefix("/wiki/").unwrap_or_default())?;
    Ok(Target {
        page: Page { domain, bucket: bucket.clone(), title },
        prefix: if needs_redirect { "/wiki/".to_owned() } else { String::new() },
        needs_redirect,
    })
}

/// Finds the configured domain of the request's host. A host with its port takes precedence over the host alone.
pub(crate) fn domain_of_host(
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &HashMap<String, DomainName>,
) -> Result<DomainName> {
    let authority = authority_of(uri, headers)
        .ok_or_else(|| Problem::malformed("a request for /wiki/ needs a Host header that names the wiki"))?;
    let (host, with_port) = configured_names(authority);
    with_port.and_then(|name| hosts.get(&name)).or_else(|| hosts.get(&host)).cloned().ok_or_else(|| {
        Problem::not_found(format!(
            "no domain is configured for the host '{}': add the host to 'hosts' in the configuration, \
             or ask for a URL under /v1/{{domain}}/",
            excerpt(host)
        ))
    })
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn wiki(uri: &str, host: &str) -> Result<Target> {
        let hosts = HashMap::from([
            ("en.example.org".to_owned(), DomainName::new("enwiki").unwrap()),
            ("localhost:7231".to_owned(), DomainName::new("demo").unwrap()),
            ("[::1]".to_owned(), DomainName::new("six").unwrap()),
        ]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        page_of_wiki(&uri.parse().unwrap(), &headers, &hosts, &BucketName::page())
    }

    #[test]
    fn the_host_selects_the_domain() {
        for (host, domain) in [
            ("en.example.org", Some("enwiki")),
            ("EN.Example.ORG:8080", Some("enwiki")),
            ("localhost:7231", Some("demo")),
            ("localhost.:7231", Some("demo")),
            ("en.example.org.", Some("enwiki")),
            ("en.example.org.:8080", Some("enwiki")),
            ("en.example.org..", None),
            (".", None),
            ("localhost", None),
            ("[::1]:7231", Some("six")),
            ("de.example.org", None),
            ("", None),
        ] {
            let found = wiki("/wiki/A", host).ok().map(|target| target.page.domain.to_string());
            assert_eq!(found.as_deref(), domain, "{host}");
        }
        assert_eq!(wiki("http://en.example.org/wiki/A", "else").unwrap().page.domain.as_str(), "enwiki");
    }

    #[test]
    fn the_path_names_the_page() {
        let target = page_of_v1("/v1/enwiki/page/A%2FB//C", &BucketName::page()).unwrap();
        assert_eq!(target.page.title.as_str(), "A/B//C");
        assert!(target.needs_redirect);
        assert_eq!(target.canonical_path(), "/v1/enwiki/page/A/B//C");
        assert_eq!(wiki("/wiki/A%20B", "en.example.org").unwrap().canonical_path(), "/wiki/A_B");
        for path in
            ["/v1/En/page/A", "/v1/batch/page/A", "/v1/e%6E/page/A", "/v1/../page/A", "/v1/enwiki/page/"]
        {
            assert!(page_of_v1(path, &BucketName::page()).is_err(), "{path}");
        }
    }
}
