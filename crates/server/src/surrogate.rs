//! Headers of answers that HTTP caches keep until a purge: how long a cache may keep the answer, and its surrogate
//! keys.

use axum::response::Response;
use http::{HeaderName, StatusCode};
use rashomon_entries::{Bucket, Entry, EntryKey};
use rashomon_pages::{Page, Tid};
use rashomon_protocol::surrogate_keys::SurrogateKey;

use crate::{Api, caching, problem::header_value};

impl Api {
    /// Lets caches keep an answer about a page, and adds its surrogate keys. `tid` is `Some` if the answer is a
    /// property under its tid. Must be called only if everybody may read the page. Does nothing if no caches are
    /// configured, or if caches may not keep the answer.
    pub(crate) fn mark_page(&self, response: &mut Response, page: &Page, tid: Option<Tid>) {
        let Some(name) = &self.surrogate_key_header else { return };
        // Redirects from other spellings of a title are not purged, since a title has too many spellings.
        if response.status() == StatusCode::MOVED_PERMANENTLY
            || !caching::keep_until_purged(response.headers_mut(), None)
        {
            return;
        }
        let own = match tid {
            Some(tid) => SurrogateKey::of_render(page, tid),
            None => SurrogateKey::of_page(page),
        };
        mark(response, name, own, SurrogateKey::of_bucket(&page.domain, &page.bucket));
    }

    /// Lets caches keep an answer with an entry, unless the entry has its own `Cache-Control`, and adds its surrogate
    /// keys. Must be called only if everybody may read the entry. Does nothing if no caches are configured.
    pub(crate) fn mark_entry(
        &self,
        response: &mut Response,
        (bucket, key): (&Bucket, &EntryKey),
        entry: &Entry,
        has_own_cache_control: bool,
    ) {
        let Some(name) = &self.surrogate_key_header else { return };
        if !has_own_cache_control {
            let left = entry.expires_at.map(|at| at.since(self.clock.now()));
            caching::keep_until_purged(response.headers_mut(), left);
        }
        let Bucket { domain, name: bucket, .. } = bucket;
        let own = SurrogateKey::of_entry(domain, bucket, key);
        mark(response, name, own, SurrogateKey::of_bucket(domain, bucket));
    }
}

fn mark(response: &mut Response, name: &HeaderName, own: SurrogateKey, of_bucket: SurrogateKey) {
    response.headers_mut().insert(name.clone(), header_value(&format!("{own} {of_bucket}")));
}
