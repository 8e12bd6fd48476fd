//! Answers to requests for an entry of a key-value bucket.

use axum::response::Response;
use http::{HeaderMap, header};
use rashomon_clock::Timestamp;
use rashomon_entries::{Entry, EntryTag};
use rashomon_pages::StoredHeaders;
use rashomon_protocol::{cache_control::Directives, conditional::Modified};

use crate::{
    caching::{self, Caching},
    problem::Result,
    representation::{Representation, content_type_of, insert_stored},
};

/// The headers of an entry, ready to be sent.
#[derive(Debug)]
pub(crate) struct EntryAnswer {
    representation: Representation,
    /// The stored `Cache-Control`, if there is one.
    directives: Option<Directives>,
    expires_at: Option<Timestamp>,
}

impl EntryAnswer {
    /// Prepares the headers that every answer with the entry has.
    pub(crate) fn new(entry: &Entry, rule: &StoredHeaders) -> Self {
        let Entry { etag, modified, expires_at, headers: stored, size, .. } = entry;
        let mut headers = HeaderMap::with_capacity(16);
        insert_stored(&mut headers, stored.other.iter().filter(|(name, _)| rule.keep_with_entry(name)));
        headers.insert(header::CONTENT_TYPE, content_type_of(&stored.content_type));
        let directives =
            stored.other.get(header::CACHE_CONTROL.as_str()).and_then(|text| Directives::parse(text));
        let caching = match &directives {
            Some(directives) => directives.header(true, None),
            None => Caching::Mutable.header(),
        };
        headers.insert(header::CACHE_CONTROL, caching);
        // An equal date does not prove that nothing changed: an entry can change twice within a second.
        let modified = Modified { at: *modified, is_exact: false };
        let representation = Representation::with_headers(headers, quoted(etag), modified, *size);
        Self { representation, directives, expires_at: *expires_at }
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.representation.memory()
    }

    /// Whether the entry has a stored `Cache-Control`.
    pub(crate) const fn has_own_cache_control(&self) -> bool {
        self.directives.is_some()
    }

    /// Answers a request for the entry. `is_public`: whether everybody may read the entry.
    pub(crate) fn answer(
        &self,
        request: &HeaderMap,
        entry: &Entry,
        is_public: bool,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Response> {
        let mut response = self.representation.answer(request, &entry.body)?;
        let headers = response.headers_mut();
        match &self.directives {
            Some(directives) if !is_public || self.expires_at.is_some() => {
                let left = self.expires_at.map(|at| at.since(now()));
                headers.insert(header::CACHE_CONTROL, directives.header(is_public, left));
            }
            Some(_) => {}
            None if is_public => {}
            None => caching::restrict(headers),
        }
        Ok(response)
    }
}

/// The entity tag of a version, with quotes.
pub(crate) fn quoted(tag: &EntryTag) -> String {
    format!("\"{tag}\"")
}
