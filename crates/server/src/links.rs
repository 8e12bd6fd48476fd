//! The links to the states of a page, in the header `Link` and in timemaps (RFC 7089, and RFC 5829 for
//! `latest-version`).
//!
//! The links are absolute URLs, and each relation has a link of its own: clients resolve relative references against
//! other URLs, and compare whole values of `rel`.

use std::fmt::Write as _;

use http::{HeaderValue, request::Parts};
use rashomon_clock::http_date;
use rashomon_pages::{MementosAround, PropertyName, PropertyVersion, Tid};

use crate::{Api, client_url::base_url, problem::header_value};

/// The property to which the URL of a page leads.
pub(crate) const DEFAULT_PROPERTY: &str = "html";

/// The maximum size of a `Link` header. Links that a client can do without are left out beyond it, since proxies limit
/// the headers of answers.
const MAX_LINK_BYTES: usize = 8 << 10;

/// The URL of a page as the client knows it.
#[derive(Debug, Clone)]
pub(crate) struct PageUrl(String);

impl PageUrl {
    /// The URL of the page in a request, without the query. Only the path if the request names no usable host.
    pub(crate) fn of(api: &Api, head: &Parts) -> Self {
        let base = base_url(&head.uri, &head.headers, &head.extensions, &api.settings.proxies);
        let mut url = base.unwrap_or_default();
        url.push_str(&in_link(head.uri.path()));
        Self(url)
    }

    /// The URL of a sub-resource.
    pub(crate) fn of_query(&self, query: &str) -> String {
        format!("{}{query}", self.0)
    }

    /// The URL whose states are the states of the property. For the default property, this is the URL of the page, which
    /// readers know.
    pub(crate) fn original(&self, name: &PropertyName) -> String {
        if name.as_str() == DEFAULT_PROPERTY { self.0.clone() } else { self.latest(name) }
    }

    /// The URL of the latest version of a property.
    pub(crate) fn latest(&self, name: &PropertyName) -> String {
        self.of_query(&format!("?rev/latest/{name}"))
    }

    /// The `Link` header of a property: the links to the original, to the latest version, to the timegate, and to the
    /// timemap.
    pub(crate) fn links(&self, name: &PropertyName) -> HeaderValue {
        header_value(&self.links_text(name, ""))
    }

    /// The `Link` header of a redirect to the state `memento`, which is none of those `around` it.
    pub(crate) fn links_to(
        &self,
        name: &PropertyName,
        memento: &PropertyVersion,
        around: &MementosAround,
    ) -> HeaderValue {
        let MementosAround { first, previous, next, last } = around;
        let range = match (first, last) {
            (Some(first), Some(last)) => from_until(first.tid, last.tid),
            _ => String::new(),
        };
        let mut text = self.links_text(name, &range);
        // One link for each state, with all its relations, from the oldest to the newest.
        let mut links: Vec<(Tid, Vec<&str>)> = Vec::new();
        for (version, relation) in [
            (first.as_ref(), "first"),
            (previous.as_ref(), "prev"),
            (Some(memento), ""),
            (next.as_ref(), "next"),
            (last.as_ref(), "last"),
        ] {
            let Some(PropertyVersion { tid, .. }) = version else { continue };
            match links.iter_mut().find(|(other, _)| other == tid) {
                Some((_, relations)) => relations.push(relation),
                None => links.push((*tid, vec![relation])),
            }
        }
        for (tid, mut relations) in links {
            relations.retain(|relation| !relation.is_empty());
            relations.push("memento");
            let link = format!(", {}", self.memento(name, tid, &relations.join(" ")));
            if tid == memento.tid || text.len() + link.len() <= MAX_LINK_BYTES {
                text.push_str(&link);
            }
        }
        header_value(&text)
    }

    /// A link to a state.
    pub(crate) fn memento(&self, name: &PropertyName, tid: Tid, relation: &str) -> String {
        let datetime = http_date::format(tid.time());
        format!("<{}?rev/{tid}/{name}>; rel=\"{relation}\"; datetime=\"{datetime}\"", self.0)
    }

    fn links_text(&self, name: &PropertyName, range: &str) -> String {
        let Self(page) = self;
        let original = self.original(name);
        let mut text = String::with_capacity(4 * page.len() + 256);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<{original}>; rel=\"original\", <{page}?rev/latest/{name}>; rel=\"latest-version\", \
             <{page}?timegate/{name}>; rel=\"timegate\", <{page}?timemap/{name}>; rel=\"timemap\"; {LINK_FORMAT}{range}"
        );
        text
    }
}

/// The spelling of a path in links. Parsers of links take a raw semicolon for the end of the URL.
pub(crate) fn in_link(path: &str) -> String {
    path.replace(';', "%3B")
}

/// The type of a timemap, as an attribute of a link.
pub(crate) const LINK_FORMAT: &str = "type=\"application/link-format\"";

/// The attributes of a link to a timemap with the dates of its first and its last state.
pub(crate) fn from_until(first: Tid, last: Tid) -> String {
    let [from, until] = [first, last].map(|tid| http_date::format(tid.time()));
    format!("; from=\"{from}\"; until=\"{until}\"")
}
