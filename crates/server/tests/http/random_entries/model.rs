//! The model: the expected content of the buckets.

use std::{collections::BTreeMap, fmt::Write as _};

use fastrand::Rng;
use rashomon_clock::{Timestamp, http_date};

/// Bytes that are not encoded in the canonical spelling of a key.
const RAW: &[u8] = b"-_.~;:@$!*(),/";

/// The canonical spelling of a key in a URL.
pub(super) fn canonical(key: &str) -> String {
    encode(key, |byte| byte.is_ascii_alphanumeric() || RAW.contains(&byte))
}

/// A text as the value of a parameter.
pub(super) fn parameter(text: &str) -> String {
    encode(text, |byte| byte.is_ascii_alphanumeric())
}

fn encode(text: &str, is_raw: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if is_raw(byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) body: Vec<u8>,
    pub(super) etag: String,
    pub(super) content_type: String,
    pub(super) note: Option<String>,
    pub(super) modified: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
}

impl Entry {
    fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }
}

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) url: String,
    pub(super) is_ordered: bool,
    pub(super) ttl: Option<u64>,
    pub(super) max_size: Option<usize>,
    pub(super) content_type: &'static str,
    pub(super) exists: bool,
    pub(super) etag: String,
    pub(super) entries: BTreeMap<String, Entry>,
    /// All tags of entries, also of earlier ones.
    tags: Vec<String>,
}

impl Bucket {
    fn new(url: &str, is_ordered: bool, ttl: Option<u64>, max_size: Option<usize>) -> Self {
        Self {
            url: url.to_owned(),
            is_ordered,
            ttl,
            max_size,
            content_type: if is_ordered { "image/png" } else { "application/octet-stream" },
            exists: false,
            etag: "\"none\"".to_owned(),
            entries: BTreeMap::new(),
            tags: vec!["\"0123456789abcdef\"".to_owned()],
        }
    }

    pub(super) fn definition(&self) -> String {
        let mut definition =
            serde_json::json!({"type": if self.is_ordered { "ordered-blob" } else { "blob" }});
        if self.is_ordered {
            definition["content_type"] = self.content_type.into();
        }
        if let Some(ttl) = self.ttl {
            definition["ttl"] = ttl.into();
        }
        if let Some(max_size) = self.max_size {
            definition["max_size"] = max_size.into();
        }
        definition.to_string()
    }

    pub(super) fn url_of(&self, key: &str) -> String {
        format!("{}/{}", self.url, canonical(key))
    }

    pub(super) fn live(&self, key: &str, now: Timestamp) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.is_live(now))
    }

    pub(super) fn live_keys(&self, now: Timestamp) -> impl Iterator<Item = &String> {
        self.entries.iter().filter(move |(_, entry)| entry.is_live(now)).map(|(key, _)| key)
    }

    pub(super) fn expiries(&self) -> impl Iterator<Item = Timestamp> {
        self.entries.values().filter_map(|entry| entry.expires_at)
    }

    pub(super) fn put(&mut self, key: String, entry: Entry) {
        self.tags.push(entry.etag.clone());
        self.entries.insert(key, entry);
    }

    pub(super) fn delete(&mut self) {
        self.exists = false;
        self.entries.clear();
    }

    pub(super) fn knows(&self, etag: &str) -> bool {
        self.tags.iter().any(|tag| tag == etag)
    }

    /// A tag that is current under some key, or was.
    pub(super) fn any_tag(&self, random: &mut Rng) -> String {
        random.choice(&self.tags).expect("there is one").clone()
    }
}

/// A condition of a write.
#[derive(Debug)]
pub(super) enum Condition {
    None,
    Match(String),
    NoneMatch(String),
    UnmodifiedSince(Timestamp),
    /// `If-Unmodified-Since` counts only without `If-Match`.
    MatchAndDate(String, Timestamp),
}

impl Condition {
    pub(super) fn any(random: &mut Rng, bucket: &Bucket, key: &str, now: Timestamp) -> Self {
        let tag = match (random.u8(..4), bucket.live(key, now)) {
            (0, _) => "*".to_owned(),
            (1 | 2, Some(entry)) => entry.etag.clone(),
            _ => bucket.any_tag(random),
        };
        let modified = bucket.entries.get(key).map_or(now, |entry| entry.modified);
        let by = std::time::Duration::from_secs(random.u64(..3));
        let date = if random.bool() { modified.saturating_sub(by) } else { modified.saturating_add(by) };
        match random.u8(..10) {
            0 | 1 => Self::Match(tag),
            2 | 3 => Self::NoneMatch(tag),
            4 => Self::UnmodifiedSince(date),
            5 => Self::MatchAndDate(tag, date),
            _ => Self::None,
        }
    }

    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::None => Vec::new(),
            Self::Match(tag) => vec![("if-match", tag.clone())],
            Self::NoneMatch(tag) => vec![("if-none-match", tag.clone())],
            Self::UnmodifiedSince(date) => vec![("if-unmodified-since", http_date::format(*date))],
            Self::MatchAndDate(tag, date) => {
                vec![("if-match", tag.clone()), ("if-unmodified-since", http_date::format(*date))]
            }
        }
    }

    pub(super) fn allows(&self, entry: Option<&Entry>) -> bool {
        let names = |tag: &String| entry.is_some_and(|entry| tag == "*" || *tag == entry.etag);
        match self {
            Self::None => true,
            Self::Match(tag) | Self::MatchAndDate(tag, _) => names(tag),
            Self::NoneMatch(tag) => !names(tag),
            Self::UnmodifiedSince(date) => {
                let second = |time: Timestamp| time.as_micros().div_euclid(1_000_000);
                entry.is_none_or(|entry| second(entry.modified) <= second(*date))
            }
        }
    }
}

pub(super) struct Model {
    pub(super) buckets: Vec<Bucket>,
    pub(super) keys: Vec<String>,
}

impl Model {
    pub(super) fn new() -> Self {
        let long = "k".repeat(1023);
        let keys = [
            "a",
            "a/b",
            "a b",
            "a_b",
            "a/",
            "b",
            "B",
            "a'b&c=+%",
            "zz",
            "z?",
            "\u{fc}",
            "\u{ffff}",
            "\u{10000}/\u{10ffff}",
            &format!("{long}k"),
            &format!("{long}l"),
            &long,
        ]
        .map(str::to_owned);
        let buckets = vec![
            Bucket::new("/v1/enwiki/ordered", true, None, None),
            Bucket::new("/v1/enwiki/short", false, Some(30), None),
            Bucket::new("/v1/dewiki/ordered", true, Some(50), None),
            Bucket::new("/v1/enwiki/small", false, None, Some(5_000)),
        ];
        Self { buckets, keys: keys.to_vec() }
    }

    pub(super) fn key(&self, random: &mut Rng) -> String {
        random.choice(&self.keys).expect("there is one").clone()
    }

    /// A body: empty, small, or around a megabyte, from which bodies are stored in chunks.
    pub(super) fn body(&self, random: &mut Rng) -> Vec<u8> {
        let length = match random.u8(..40) {
            0..4 => 0,
            4..30 => random.usize(1..60),
            30..34 => random.usize(4_990..5_010),
            34..37 => random.usize(5_000..100_000),
            37 => random.usize(999_990..1_000_010),
            _ => random.usize(1_000_000..3_000_000),
        };
        if random.bool() {
            return vec![random.u8(..); length];
        }
        // Compression does not make these bytes smaller.
        let mut body = vec![0; length];
        random.fill(&mut body);
        body
    }
}
