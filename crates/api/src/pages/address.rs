//! The addresses of the HTML pages.

use std::borrow::Cow;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rashomon_buckets::{BucketName, DomainName, Page, Title};

use crate::{
    extract::{encode_title, parse_title, percent_decode},
    problem::{Problem, Result},
};

/// The domain or the page that a path under `/pages/` names.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// The list of the pages of a domain.
    Domain {
        domain: DomainName,
        /// Whether the path lacks its last slash.
        needs_redirect: bool,
    },
    /// A page.
    Page {
        page: Page,
        /// Whether the title has a spelling that is redirected.
        needs_redirect: bool,
    },
}

impl Address {
    /// Parses the raw path.
    pub(super) fn parse(path: &str, bucket: &BucketName) -> Result<Self> {
        let rest = path.strip_prefix("/pages/").unwrap_or_default();
        let (domain, title) = match rest.split_once('/') {
            Some((domain, title)) => (DomainName::new(domain)?, title),
            None => return Ok(Self::Domain { domain: DomainName::new(rest)?, needs_redirect: true }),
        };
        if title.is_empty() {
            return Ok(Self::Domain { domain, needs_redirect: false });
        }
        let (title, needs_redirect) = parse_title(title)?;
        Ok(Self::Page { page: Page { domain, bucket: bucket.clone(), title }, needs_redirect })
    }

    /// The domain of the address.
    pub(super) fn domain(&self) -> &DomainName {
        match self {
            Self::Domain { domain, .. } => domain,
            Self::Page { page, .. } => &page.domain,
        }
    }

    /// The canonical path, if the path of the request has to be redirected.
    pub(super) fn redirect_target(&self) -> Option<String> {
        match self {
            Self::Domain { needs_redirect: false, .. } | Self::Page { needs_redirect: false, .. } => None,
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

/// Decodes the value of a parameter that an HTML form sent in a query.
pub(super) fn form_value(parameter: &str, raw: &str) -> Result<String> {
    let spaced = if raw.contains('+') { Cow::Owned(raw.replace('+', " ")) } else { Cow::Borrowed(raw) };
    percent_decode(&spaced).map(Cow::into_owned).ok_or_else(|| {
        Problem::malformed(format!("The value of the parameter '{parameter}' must be percent-encoded UTF-8."))
    })
}

/// The domain, the title and the addresses of a page, for templates.
#[derive(Debug)]
pub(super) struct PageAddresses {
    pub(super) domain: DomainName,
    /// The address of the list of the domain's pages.
    pub(super) domain_url: String,
    /// The title as people write it.
    pub(super) text: String,
    /// The address of the HTML page.
    pub(super) url: String,
    /// The address of the page in the API.
    pub(super) api_url: String,
}

impl PageAddresses {
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
