//! What there is: domains and their site info, pages and what is known of them.

use rashomon_clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{BucketName, DomainName, Listing, Page, Result, Revision, Title};

/// The catalog of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Catalog {
    _private: (),
}

/// What an export says of a wiki: the `siteinfo` element, as JSON, to be written out again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteInfo {
    /// `sitename`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// `dbname`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub database: Option<String>,
    /// `base`: the address of the main page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base: Option<String>,
    /// `generator`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator: Option<String>,
    /// `case` of the wiki, such as `first-letter`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<String>,
    /// The namespaces, in the export's order: number, case, name.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// `xml:lang` of the export.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub language: Option<String>,
}

/// A namespace of a wiki.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its number.
    pub key: i64,
    /// Such as `first-letter`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<String>,
    /// Its name; empty for the main one.
    pub name: String,
}

/// What an export says of a page beside its revisions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageInfo {
    /// The highest revision that it came with: what came with a lower one does not replace it.
    pub as_of: Revision,
    /// The page's number in its wiki.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_id: Option<i64>,
    /// The number of its namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub namespace: Option<i64>,
    /// The title of the page that it redirects to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redirect: Option<String>,
    /// `restrictions`, as old exports have it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub restrictions: Option<String>,
}

impl Catalog {
    /// The domains that have anything stored, in order.
    pub async fn domains(&self) -> Result<Vec<DomainName>> {
        todo!()
    }

    /// What the newest import said of a domain, and when.
    pub async fn site_info(&self, _domain: &DomainName) -> Result<Option<(SiteInfo, Timestamp)>> {
        todo!()
    }

    /// Keeps what an import says of a domain.
    pub async fn put_site_info(&self, _domain: &DomainName, _info: &SiteInfo) -> Result<()> {
        todo!()
    }

    /// The titles of a bucket's pages, in byte order, from the one after `after` on.
    pub async fn titles(
        &self,
        _domain: &DomainName,
        _bucket: &BucketName,
        _after: Option<&Title>,
        _limit: usize,
    ) -> Result<Listing<Title, Title>> {
        todo!()
    }

    /// What the newest import that had the page said of it.
    pub async fn page_info(&self, _page: &Page) -> Result<Option<PageInfo>> {
        todo!()
    }

    /// Keeps what an import says of a page, unless what stands came with a higher revision; of two that came
    /// with the same, the greater stays, so that the order of imports does not matter.
    pub async fn put_page_info(&self, _page: &Page, _info: &PageInfo) -> Result<()> {
        todo!()
    }
}
