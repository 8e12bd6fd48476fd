//! Listings with random parameters, compared with the model.

use std::collections::BTreeSet;

use axum::body::Body;
use rashomon_clock::{Clock as _, rfc3339};
use serde_json::Value;

use super::{Run, model::parameter};

/// Texts for bounds and prefixes: beginnings of keys, and texts between two keys.
const TEXTS: [&str; 9] = ["a", "a/", "a b", "k", "\u{fc}", "\u{ffff}", "\u{10000}", "m", "B"];

/// The parameters of a listing.
#[derive(Debug, Default)]
struct Query {
    gt: Option<String>,
    ge: Option<String>,
    lt: Option<String>,
    le: Option<String>,
    prefix: Option<String>,
    is_descending: bool,
    limit: Option<usize>,
}

impl Query {
    fn admits(&self, key: &str) -> bool {
        let holds = |bound: &Option<String>, test: fn(&str, &str) -> bool| {
            bound.as_ref().is_none_or(|bound| test(key, bound))
        };
        holds(&self.gt, |key, bound| key > bound)
            && holds(&self.ge, |key, bound| key >= bound)
            && holds(&self.lt, |key, bound| key < bound)
            && holds(&self.le, |key, bound| key <= bound)
            && holds(&self.prefix, |key, prefix| key.starts_with(prefix))
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        let texts = [("gt", &self.gt), ("ge", &self.ge), ("lt", &self.lt), ("le", &self.le)];
        for (name, value) in texts.into_iter().chain([("prefix", &self.prefix)]) {
            parts.extend(value.as_ref().map(|value| format!("{name}={}", parameter(value))));
        }
        parts.extend(self.is_descending.then(|| "order=desc".to_owned()));
        parts.extend(self.limit.map(|limit| format!("limit={limit}")));
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}

impl Run {
    fn query(&mut self, index: usize) -> Query {
        let limit = match self.random.u8(..4) {
            0 => None,
            1 => Some([1, 500][self.random.usize(..2)]),
            _ => Some(self.random.usize(1..8)),
        };
        let mut query = Query { limit, ..Query::default() };
        if !self.model.buckets[index].is_ordered {
            return query;
        }
        let (random, model) = (&mut self.random, &self.model);
        let mut text = || match random.bool() {
            true => model.key(random),
            false => TEXTS[random.usize(..TEXTS.len())].to_owned(),
        };
        let (lower, upper, prefix) = (text(), text(), text());
        match self.random.u8(..5) {
            0 => query.gt = Some(lower),
            1 => query.ge = Some(lower),
            _ => {}
        }
        match self.random.u8(..5) {
            0 => query.lt = Some(upper),
            1 => query.le = Some(upper),
            _ => {}
        }
        query.prefix = (self.random.u8(..3) == 0).then_some(prefix);
        query.is_descending = self.random.bool();
        query
    }

    /// Lists a bucket with random parameters. Entries may be written between two result pages.
    pub(super) async fn list(&mut self, index: usize) {
        let query = self.query(index);
        let writes = self.random.bool();
        if self.model.buckets[index].exists && self.random.u8(..8) == 0 {
            self.refuse(index).await;
        }
        self.list_with(index, &query, writes).await;
    }

    pub(super) async fn list_all(&mut self, index: usize) {
        for is_descending in [false, self.model.buckets[index].is_ordered] {
            self.list_with(index, &Query { is_descending, ..Query::default() }, false).await;
        }
    }

    /// Sends parameters that are malformed, or that the type of the bucket does not have.
    async fn refuse(&mut self, index: usize) {
        let bucket = &self.model.buckets[index];
        let url = bucket.url.clone();
        let all =
            ["limit=0", "limit=501", "limit=01", "limit=x", "gt=a&ge=a", "lt=a&le=a", "order=up", "x=1"];
        let of_ordered = ["gt=a", "ge=a", "lt=a", "le=a", "prefix=a", "order=asc"];
        let refused = if bucket.is_ordered { &all[..] } else { &of_ordered };
        let query = refused[self.random.usize(..refused.len())];
        let answer = self.send("GET", &format!("{url}/?{query}"), &[], Body::empty()).await;
        self.check_status(&answer, 400);
    }

    async fn list_with(&mut self, index: usize, query: &Query, writes: bool) {
        let now = self.world.clock.now();
        let url = self.model.buckets[index].url.clone();
        let limit = query.limit.unwrap_or(50);
        // The entries of the whole listing, and the keys that a write has changed meanwhile.
        let (mut before, mut changed) = (self.admitted(index, query), BTreeSet::new());
        let (mut listed, mut next) = (Vec::new(), query.text());
        loop {
            let answer = self.send("GET", &format!("{url}/{next}"), &[], Body::empty()).await;
            if !self.model.buckets[index].exists {
                return self.check_status(&answer, 404);
            }
            self.check_status(&answer, 200);
            let page = answer.json();
            let entries = page["entries"].as_array().unwrap();
            for entry in entries {
                self.check_summary(index, entry);
                listed.push(entry["key"].as_str().unwrap().to_owned());
            }
            let is_last = page.get("next").is_none();
            let fits = if is_last { entries.len() <= limit } else { entries.len() == limit };
            self.check(fits, "a page has the wrong number of entries");
            let is_needless = is_last && entries.is_empty() && next != query.text();
            self.check(writes || !is_needless, "a page without entries follows");
            if is_last {
                break;
            }
            next = page["next"].as_str().unwrap().to_owned();
            if writes {
                let tags = |run: &Self| {
                    let bucket = &run.model.buckets[index];
                    bucket.entries.iter().map(|(key, entry)| (key.clone(), entry.etag.clone())).collect()
                };
                let old: BTreeSet<(String, String)> = tags(self);
                if self.random.bool() {
                    self.put(index).await;
                } else {
                    self.delete(index).await;
                }
                let new = tags(self);
                changed.extend(old.symmetric_difference(&new).map(|(key, _)| key.clone()));
            }
        }
        let distinct: BTreeSet<_> = listed.iter().collect();
        self.check(distinct.len() == listed.len(), "a key is listed twice");
        self.check(listed.iter().all(|key| query.admits(key)), "a key is beyond the bounds");
        // The writes have advanced the clock, so entries may have expired.
        let later = self.world.clock.now();
        let bucket = &self.model.buckets[index];
        before.retain(|key| !changed.contains(key) && (now == later || bucket.live(key, later).is_some()));
        let expired = |key: &String| bucket.live(key, later).is_none();
        listed.retain(|key| !changed.contains(key) && (now == later || !expired(key)));
        self.check(listed == before, &format!("listed {listed:.60?} instead of {before:.60?}"));
    }

    /// The keys that a listing must have, in its order.
    fn admitted(&self, index: usize, query: &Query) -> Vec<String> {
        let now = self.world.clock.now();
        let keys = self.model.buckets[index].live_keys(now).filter(|key| query.admits(key));
        let mut keys: Vec<String> = keys.cloned().collect();
        if query.is_descending {
            keys.reverse();
        }
        keys
    }

    #[track_caller]
    fn check_summary(&self, index: usize, listed: &Value) {
        let key = listed["key"].as_str().unwrap();
        let entry = self.model.buckets[index].live(key, self.world.clock.now());
        let Some(entry) = entry else { return self.check(false, &format!("no entry {key:.60}")) };
        self.check(listed["etag"] == *entry.etag, "another etag");
        self.check(listed["size"] == entry.body.len(), "another size");
        self.check(listed["content_type"] == *entry.content_type, "another content type");
        self.check(listed["modified"] == rfc3339::format(entry.modified), "another time");
    }
}
