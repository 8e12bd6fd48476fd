//! The addresses of the HTML pages.

use std::borrow::Cow;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rashomon_pages::{BucketName, DomainName, Page, Title};

use crate::{
    extract::{encode_title, parse_bucket, parse_title, percent_decode},
    problem::{Problem, Result},
};

/// The bucket or the page that a path under `/pages/` or `/buckets/` names.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// The list of the pages of a bucket.
    Bucket {
        domain: DomainName,
        bucket: BucketName,
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
    /// Parses the raw path. The bucket of the result has no id yet.
    pub(super) fn parse(path: &str, page: &BucketName) -> Result<Self> {
        let (domain, bucket, title) = match path.strip_prefix("/buckets/") {
            Some(rest) => {
                let (domain, rest) = rest.split_once('/').unwrap_or((rest, ""));
                let (bucket, title) = split(rest);
                (DomainName::new(domain)?, parse_bucket(bucket)?, title)
            }
            None => {
                let (domain, title) = split(path.strip_prefix("/pages/").unwrap_or_default());
                (DomainName::new(domain)?, page.clone(), title)
            }
        };
        match title {
            None | Some("") => Ok(Self::Bucket { domain, bucket, needs_redirect: title.is_none() }),
            Some(title) => {
                let (title, needs_redirect) = parse_title(title)?;
                Ok(Self::Page { page: Page { domain, bucket, title }, needs_redirect })
            }
        }
    }

    /// The domain of the address.
    pub(super) fn domain(&self) -> &DomainName {
        match self {
            Self::Bucket { domain, .. } => domain,
            Self::Page { page, .. } => &page.domain,
        }
    }

    /// The bucket of the address.
    pub(super) fn bucket(&self) -> &BucketName {
        match self {
            Self::Bucket { bucket, .. } => bucket,
            Self::Page { page, .. } => &page.bucket,
        }
    }

    /// Replaces the bucket by the same bucket with its id.
    pub(super) fn set_bucket(&mut self, with_id: BucketName) {
        match self {
            Self::Bucket { bucket, .. } => *bucket = with_id,
            Self::Page { page, .. } => page.bucket = with_id,
        }
    }

    /// The canonical path, if the path of the request has to be redirected.
    pub(super) fn redirect_target(&self) -> Option<String> {
        match self {
            Self::Bucket { needs_redirect: false, .. } | Self::Page { needs_redirect: false, .. } => None,
            Self::Bucket { domain, bucket, .. } => Some(bucket_url(domain, bucket)),
            Self::Page { page, .. } => Some(page_url(page)),
        }
    }
}

/// Splits a path at its first slash.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)))
}

/// The address of the list of a bucket's pages.
pub(super) fn bucket_url(domain: &DomainName, bucket: &BucketName) -> String {
    if *bucket == BucketName::page() {
        format!("/pages/{domain}/")
    } else {
        format!("/buckets/{domain}/{bucket}/")
    }
}

/// The name of a bucket for people: `enwiki` for the bucket `page` of this domain, `enwiki/docs` for another bucket.
pub(super) fn bucket_text(domain: &DomainName, bucket: &BucketName) -> String {
    if *bucket == BucketName::page() { domain.to_string() } else { format!("{domain}/{bucket}") }
}

/// The address of a page.
pub(super) fn page_url(page: &Page) -> String {
    bucket_url(&page.domain, &page.bucket) + &encode_title(&page.title)
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

/// The bucket, the title and the addresses of a page, for templates.
#[derive(Debug)]
pub(super) struct PageAddresses {
    /// The name of the bucket for people.
    pub(super) bucket: String,
    /// The address of the list of the bucket's pages.
    pub(super) bucket_url: String,
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
            bucket: bucket_text(&page.domain, &page.bucket),
            bucket_url: bucket_url(&page.domain, &page.bucket),
            text: page.title.to_text(),
            url: page_url(page),
            api_url: format!("/v1/{}/{}/{}", page.domain, page.bucket, encode_title(&page.title)),
        }
    }
}
