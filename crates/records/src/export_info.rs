//! The data of wikis and pages in exports of MediaWiki, without the revisions.

use serde::{Deserialize, Serialize};

use crate::Revision;

/// The data of a wiki in an export: the content of the `siteinfo` element. It is stored as JSON for later
/// exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The highest revision in the import with these values. An import with a lower one does not replace them. Exports
    /// do not have it, since it follows from their pages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub as_of: Option<Revision>,
}

/// A namespace of a wiki.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// The number of the namespace.
    pub key: i64,
    /// The case rule, such as `first-letter`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<String>,
    /// The name; empty for the main namespace.
    pub name: String,
}

/// The data of a page in an export, without its revisions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageInfo {
    /// The highest revision of the page in the export. Page info with a lower revision does not replace this
    /// page info.
    pub as_of: Revision,
    /// The number of the page in its wiki.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_id: Option<i64>,
    /// The number of the namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub namespace: Option<i64>,
    /// The title of the page to which this page redirects.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redirect: Option<String>,
    /// The element `restrictions` of old exports.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub restrictions: Option<String>,
}
