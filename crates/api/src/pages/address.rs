//! The addresses of the HTML pages.

use std::borrow::Cow;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rashomon_buckets::{BucketName, DomainName, Page, Title};

use crate::{
    extract::{encode_title, parse_title, percent_decode},
    problem::{Problem, Result},
};

/// The object of a path under `/pages/`, and whether its spelling is canonical.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// The pages of a domain.
    Domain { domain: DomainName, canonical: bool },
    /// A page.
    Page { page: Page, canonical: bool },
}

impl Address {
    /// Parses the raw path.
    pub(super) fn parse(path: &str, bucket: &BucketName) -> Result<Self> {
        let rest = path.strip_prefix("/pages/").unwrap_or_default();
        let (domain, title) = match rest.split_once('/') {
            Some((domain, title)) => (DomainName::new(domain)?, title),
            None => return Ok(Self::Domain { domain: DomainName::new(rest)?, canonical: false }),
        };
        if title.is_empty() {
            return Ok(Self::Domain { domain, canonical: true });
        }
        let (title, canonical) = parse_title(title)?;
        Ok(Self::Page { page: Page { domain, bucket: bucket.clone(), title }, canonical })
    }

    /// The domain of the address.
    pub(super) fn domain(&self) -> &DomainName {
        match self {
            Self::Domain { domain, .. } => domain,
            Self::Page { page, .. } => &page.domain,
        }
    }

    /// The canonical path, if the request's path was spelled differently.
    pub(super) fn canonical_path(&self) -> Option<String> {
        match self {
            Self::Domain { canonical: true, .. } | Self::Page { canonical: true, .. } => None,
            Self::Domain { domain, .. } => Some(domain_url(domain)),
            Self::Page { page, .. } => Some(page_url(&page.domain, &page.title)),
        }
    }
}

/// The address of the list of a domain's pages.
pub(super) fn domain_url(domain: &DomainName) -> String {
    format!("/pages/{domain}/")
}

/// The address of a page.
pub(super) fn page_url(domain: &DomainName, title: &Title) -> String {
    format!("/pages/{domain}/{}", encode_title(title))
}

/// Encodes a title as a value in a query.
pub(super) fn encode_value(title: &Title) -> String {
    utf8_percent_encode(title.as_str(), NON_ALPHANUMERIC).to_string()
}

/// Decodes a value that an HTML form sent in a query.
pub(super) fn form_value(raw: &str) -> Result<String> {
    let spaced = if raw.contains('+') { Cow::Owned(raw.replace('+', " ")) } else { Cow::Borrowed(raw) };
    percent_decode(&spaced)
        .map(Cow::into_owned)
        .ok_or_else(|| Problem::malformed("The value after the '=' must be percent-encoded UTF-8."))
}

/// A page's names and addresses, for templates.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) domain: DomainName,
    pub(super) domain_url: String,
    /// The title as people write it.
    pub(super) text: String,
    pub(super) url: String,
    pub(super) api_url: String,
}

impl Place {
    pub(super) fn of(page: &Page) -> Self {
        Self {
            domain_url: domain_url(&page.domain),
            text: page.title.to_text(),
            url: page_url(&page.domain, &page.title),
            api_url: format!("/v1/{}/page/{}", page.domain, encode_title(&page.title)),
            domain: page.domain.clone(),
        }
    }
}
