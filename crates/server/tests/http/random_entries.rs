//! Compares the answers to random requests for entries and buckets with a model. The requests are the same in every
//! run.

mod listing;
mod model;

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use fastrand::Rng;
use futures::stream;
use rashomon_clock::{Clock as _, http_date};
use rashomon_entries::KeyValueStore;

use self::model::{Condition, Entry, Model};
use crate::world::{Answer, World};

/// The age from which unused chunks and deleted buckets are collected.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The server, and the model of its content.
struct Run {
    world: World,
    collector: KeyValueStore,
    model: Model,
    random: Rng,
    /// The requests so far, to be shown after a failure.
    log: Vec<String>,
}

impl Run {
    fn new(world: World, seed: u64) -> Self {
        let collector = KeyValueStore::new(Arc::clone(world.buckets().parts().records), Default::default());
        let model = Model::new();
        Self { world, collector, model, random: Rng::with_seed(seed), log: Vec::new() }
    }

    async fn steps(&mut self, count: usize) {
        for index in 0..self.model.buckets.len() {
            self.create(index).await;
        }
        for _ in 0..count {
            self.step().await;
        }
        for index in 0..self.model.buckets.len() {
            self.check_all(index).await;
        }
    }

    async fn step(&mut self) {
        let index = self.random.usize(..self.model.buckets.len());
        if !self.model.buckets[index].exists && self.random.u8(..3) == 0 {
            return self.create(index).await;
        }
        match self.random.u8(..100) {
            0..35 => self.put(index).await,
            35..45 => self.delete(index).await,
            45..70 => self.get(index).await,
            70..84 => self.list(index).await,
            84..90 => self.pass_time().await,
            90..92 => {
                self.collector.collect(DAY).await.unwrap();
            }
            92..94 => self.replace_definition(index).await,
            94..96 => self.delete_bucket(index).await,
            _ => self.create(index).await,
        }
    }

    /// Sends a request, and records it in the log.
    async fn send(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(&'static str, String)],
        body: Body,
    ) -> Answer {
        self.log.push(format!("{method} {url:.60} {headers:?}"));
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = self.world.request(method, url, &headers, body).await;
        self.log.push(format!("    {}", answer.status));
        answer
    }

    #[track_caller]
    fn check(&self, is_right: bool, what: &str) {
        let start = self.log.len().saturating_sub(40);
        assert!(is_right, "{what}\n{}", self.log[start..].join("\n"));
    }

    #[track_caller]
    fn check_status(&self, answer: &Answer, expected: u16) {
        self.check(answer.status.as_u16() == expected, &format!("expected {expected}"));
        if expected >= 400 && !answer.body.is_empty() {
            answer.check_problem();
        }
    }

    /// Advances the clock of the server to a time at which something may change.
    async fn pass_time(&mut self) {
        let now = self.world.clock.now();
        let expiries = self.model.buckets.iter().flat_map(model::Bucket::expiries);
        let next = expiries.filter(|at| *at > now).min();
        let by = match (self.random.u8(..10), next) {
            (0..4, Some(at)) => at.since(now),
            (4..6, Some(at)) => at.since(now).saturating_sub(Duration::from_micros(1)),
            (9, _) => 2 * DAY,
            _ => Duration::from_secs(self.random.u64(1..40)),
        };
        self.log.push(format!("{by:?} pass"));
        self.world.clock.advance(by);
    }

    async fn create(&mut self, index: usize) {
        let bucket = &self.model.buckets[index];
        let (url, definition) = (bucket.url.clone(), bucket.definition());
        let json = ("content-type", "application/json".to_owned());
        let answer = self.send("PUT", &url, &[json], Body::from(definition)).await;
        let exists = self.model.buckets[index].exists;
        self.check_status(&answer, if exists { 200 } else { 201 });
        self.model.buckets[index].exists = true;
        self.model.buckets[index].etag = answer.header("etag").to_owned();
    }

    async fn replace_definition(&mut self, index: usize) {
        let Some(ttl) = self.model.buckets[index].ttl else { return };
        let (url, etag) = (self.model.buckets[index].url.clone(), self.model.buckets[index].etag.clone());
        let new = self.random.u64(1..100);
        let json = ("content-type", "application/json".to_owned());
        self.model.buckets[index].ttl = Some(new);
        let definition = self.model.buckets[index].definition();
        let answer = self.send("PUT", &url, &[json, ("if-match", etag)], Body::from(definition)).await;
        if self.model.buckets[index].exists {
            self.check_status(&answer, 200);
            self.model.buckets[index].etag = answer.header("etag").to_owned();
        } else {
            self.check_status(&answer, 412);
            self.model.buckets[index].ttl = Some(ttl);
        }
    }

    async fn delete_bucket(&mut self, index: usize) {
        let url = self.model.buckets[index].url.clone();
        let answer = self.send("DELETE", &url, &[], Body::empty()).await;
        self.check_status(&answer, if self.model.buckets[index].exists { 204 } else { 404 });
        self.model.buckets[index].delete();
        let answer = self.send("GET", &url, &[], Body::empty()).await;
        self.check_status(&answer, 404);
    }

    async fn put(&mut self, index: usize) {
        // No two writes have the same time.
        self.world.clock.advance(Duration::from_millis(1));
        let now = self.world.clock.now();
        let key = self.model.key(&mut self.random);
        let body = self.model.body(&mut self.random);
        let bucket = &self.model.buckets[index];
        let condition = Condition::any(&mut self.random, bucket, &key, now);
        let content_type = self.random.bool().then(|| "text/plain; charset=utf-8".to_owned());
        let note = self.random.bool().then(|| format!("note {}", self.random.u16(..)));
        let mut headers = condition.headers();
        headers.extend(content_type.clone().map(|value| ("content-type", value)));
        headers.extend(note.clone().map(|value| ("x-note", value)));
        let url = bucket.url_of(&key);
        let sent = if self.random.bool() {
            let pieces: Vec<_> = body.chunks(70_000).map(Bytes::copy_from_slice).map(Ok).collect();
            headers.extend(body.is_empty().then(|| ("content-length", "0".to_owned())));
            Body::from_stream(stream::iter(pieces.into_iter().map(|piece: Result<_, std::io::Error>| piece)))
        } else {
            headers.push(("content-length", body.len().to_string()));
            Body::from(body.clone())
        };
        let answer = self.send("PUT", &url, &headers, sent).await;
        let bucket = &self.model.buckets[index];
        let live = bucket.live(&key, now);
        let expected = match () {
            () if !bucket.exists => 404,
            () if !condition.allows(live) => 412,
            () if bucket.max_size.is_some_and(|max| body.len() > max) => 413,
            () if live.is_some() => 200,
            () => 201,
        };
        self.check_status(&answer, expected);
        if expected >= 300 {
            return;
        }
        let etag = answer.header("etag").to_owned();
        self.check(answer.header("last-modified") == http_date::format(now), "another time");
        let is_new = self.model.buckets.iter().all(|bucket| !bucket.knows(&etag));
        self.check(is_new, "an ETag was given before");
        let bucket = &mut self.model.buckets[index];
        let expires_at = bucket.ttl.map(|ttl| now.saturating_add(Duration::from_secs(ttl)));
        let content_type = content_type.unwrap_or_else(|| bucket.content_type.to_owned());
        bucket.put(key, Entry { body, etag, content_type, note, modified: now, expires_at });
    }

    async fn delete(&mut self, index: usize) {
        self.world.clock.advance(Duration::from_millis(1));
        let now = self.world.clock.now();
        let key = self.model.key(&mut self.random);
        let bucket = &self.model.buckets[index];
        let condition = Condition::any(&mut self.random, bucket, &key, now);
        let url = bucket.url_of(&key);
        let answer = self.send("DELETE", &url, &condition.headers(), Body::empty()).await;
        let bucket = &self.model.buckets[index];
        let expected = match () {
            () if !bucket.exists => 404,
            () if !condition.allows(bucket.live(&key, now)) => 412,
            () => 204,
        };
        self.check_status(&answer, expected);
        if expected == 204 {
            self.model.buckets[index].entries.remove(&key);
        }
    }

    async fn get(&mut self, index: usize) {
        let now = self.world.clock.now();
        let key = self.model.key(&mut self.random);
        let bucket = &self.model.buckets[index];
        let url = bucket.url_of(&key);
        let Some(entry) = bucket.live(&key, now).cloned() else {
            let method = if self.random.bool() { "GET" } else { "HEAD" };
            let answer = self.send(method, &url, &[("if-none-match", "*".to_owned())], Body::empty()).await;
            return self.check_status(&answer, 404);
        };
        let stale = self.model.buckets[index].any_tag(&mut self.random);
        let length = entry.body.len();
        match self.random.u8(..7) {
            0 => {
                let answer =
                    self.send("HEAD", &url, &[("range", "bytes=0-1".to_owned())], Body::empty()).await;
                self.check_entry(&answer, &entry, 200, &[], length);
            }
            1 => {
                let tags = format!("\"x\", {}", entry.etag);
                let answer = self.send("GET", &url, &[("if-none-match", tags)], Body::empty()).await;
                self.check_status(&answer, 304);
                self.check(answer.body.is_empty() && answer.header("etag") == entry.etag, "not a 304");
            }
            2 => {
                let expected = if stale == entry.etag { 200 } else { 412 };
                let answer = self.send("GET", &url, &[("if-match", stale)], Body::empty()).await;
                self.check_status(&answer, expected);
            }
            3..6 if length > 0 => {
                let (first, last) = (self.random.usize(..length + 2), self.random.usize(..length + 2));
                let range = match self.random.u8(..3) {
                    0 => (format!("bytes={first}-"), first..length),
                    1 if first > 0 => (format!("bytes=-{first}"), length.saturating_sub(first)..length),
                    _ => {
                        let (first, last) = (first.min(last), first.max(last));
                        (format!("bytes={first}-{last}"), first..(last + 1).min(length))
                    }
                };
                let mut headers = vec![("range", range.0)];
                let is_current = stale == entry.etag;
                let has_condition = self.random.u8(..3) == 0;
                headers.extend(has_condition.then_some(("if-range", stale)));
                let answer = self.send("GET", &url, &headers, Body::empty()).await;
                if has_condition && !is_current {
                    self.check_entry(&answer, &entry, 200, &entry.body, length);
                } else if range.1.start >= length {
                    self.check_status(&answer, 416);
                } else {
                    let shown = format!("bytes {}-{}/{length}", range.1.start, range.1.end - 1);
                    self.check(answer.header("content-range") == shown, &shown);
                    let part = &entry.body[range.1];
                    self.check_entry(&answer, &entry, 206, part, part.len());
                }
            }
            _ => {
                let answer = self.send("GET", &url, &[], Body::empty()).await;
                self.check_entry(&answer, &entry, 200, &entry.body, length);
            }
        }
    }

    #[track_caller]
    fn check_entry(&self, answer: &Answer, entry: &Entry, status: u16, body: &[u8], length: usize) {
        self.check_status(answer, status);
        self.check(answer.body == body, "another body");
        for (name, value) in [
            ("content-length", &*length.to_string()),
            ("etag", &entry.etag),
            ("content-type", &entry.content_type),
            ("x-note", entry.note.as_deref().unwrap_or_default()),
            ("last-modified", &http_date::format(entry.modified)),
        ] {
            self.check(answer.header(name) == value, &format!("{name} is {}", answer.header(name)));
        }
    }

    /// Reads every key of a bucket, and lists them all.
    async fn check_all(&mut self, index: usize) {
        let now = self.world.clock.now();
        for key in self.model.keys.clone() {
            let bucket = &self.model.buckets[index];
            let (url, entry) = (bucket.url_of(&key), bucket.live(&key, now).cloned());
            let answer = self.send("GET", &url, &[], Body::empty()).await;
            match entry {
                Some(entry) => self.check_entry(&answer, &entry, 200, &entry.body, entry.body.len()),
                None => self.check_status(&answer, 404),
            }
        }
        self.list_all(index).await;
    }
}

#[tokio::test]
async fn random_requests_for_entries_agree_with_the_model() {
    for seed in 0..if rashomon_testing::stores::node().is_some() { 2 } else { 40 } {
        eprintln!("seed {seed}");
        Run::new(World::new().await, seed).steps(250).await;
    }
}

#[tokio::test]
async fn random_requests_for_entries_agree_with_the_model_on_sqlite() {
    for seed in 100..106 {
        eprintln!("seed {seed}");
        let mut run = Run::new(World::on_sqlite().await, seed);
        run.steps(250).await;
        let report = rashomon_pages::operations::verify(&run.world.buckets(), &mut |_| {}).await.unwrap();
        assert!(report.problems.is_empty(), "seed {seed}: {report:?}");
    }
}
