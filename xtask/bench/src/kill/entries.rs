//! Writers of entries and counters, whose server is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use rashomon_clock::Clock;
use serde_json::Value;
use xtask::http::{self, Client};

use super::{CONNECTIONS, LOAD, Options, run_until_killed};
use crate::{
    content::{Contents, HTML_SIZE},
    load::Traffic,
    report::Report,
    service::{self, DOMAIN},
};

const ENTRIES: &str = "entries";
const COUNTERS: &str = "counters";
/// The keys of each connection, which no other connection writes, and the keys that all connections write.
const OWN_KEYS: usize = 6;
const SHARED_KEYS: usize = 8;
const KEYS: usize = CONNECTIONS * OWN_KEYS + SHARED_KEYS;
const NUMBER_OF_COUNTERS: usize = 3;
/// The number of entries of a result page. It is so low that a listing has several result pages.
const LIMIT: usize = 7;
/// The size of a body in chunks.
const LARGE: usize = 3_000_000;

/// Writes entries and counters of one store, kills the server, and checks the store, round by round.
pub(super) fn run(
    options: &Options,
    binary: &Path,
    folder: &Path,
    report: &mut Report,
    clock: &dyn Clock,
) -> Result<()> {
    let store = folder.join("entries");
    let contents = Contents::new(options.seed);
    create_buckets(binary, &store)?;
    let mut writes = Writes::new(&contents, options.seed);
    let mut rng = Rng::with_seed(options.seed);
    for round in 1..=options.rounds {
        writes.begin(round);
        load_and_kill(binary, &store, &mut writes, Duration::from_millis(rng.u64(LOAD)), clock)?;
        let acknowledged = writes.acknowledged;
        check_after_kill(binary, &store, &mut writes)
            .with_context(|| format!("VIOLATION in round {round} of entries, seed {}", options.seed))?;
        report.add("entries and counters: acknowledged", "writes", acknowledged as f64);
        eprintln!("round {round}: {acknowledged} writes of entries and counters acknowledged, none lost");
    }
    Ok(())
}

/// Creates the buckets.
fn create_buckets(binary: &Path, store: &Path) -> Result<()> {
    let service = service::serve(binary, store)?;
    let mut client = Client::connect(service.address())?;
    let mut create = |bucket: &str, definition: &str| {
        let path = format!("/v1/{DOMAIN}/{bucket}");
        client.send(&with_body("PUT", &path, "Content-Type: application/json\r\n", definition.as_bytes()))
    };
    let (status, _) = create(ENTRIES, r#"{"type": "ordered-blob"}"#)?;
    ensure!(status == 201, "the bucket of entries is answered with {status}");
    let (status, body) = create(COUNTERS, r#"{"type": "counter"}"#)?;
    ensure!(
        status == 201,
        "the bucket of counters is answered with {status}: {}",
        String::from_utf8_lossy(&body)
    );
    ensure!(service.stop()?.success(), "the service failed as it was asked to end");
    Ok(())
}

fn load_and_kill(
    binary: &Path,
    store: &Path,
    writes: &mut Writes<'_>,
    after: Duration,
    clock: &dyn Clock,
) -> Result<()> {
    let ended = run_until_killed(binary, store, writes, after, clock)?;
    if let Some(refused) = &writes.refused {
        bail!("VIOLATION: {refused}");
    }
    ensure!(ended.is_err(), "the service answered after it was killed");
    Ok(())
}

fn check_after_kill(binary: &Path, store: &Path, writes: &mut Writes<'_>) -> Result<()> {
    let service = service::serve(binary, store)?;
    let mut client = Client::connect(service.address())?;
    let mut existing = BTreeMap::new();
    for key in 0..KEYS {
        let name = key_name(key);
        let found = read(&mut client, writes.contents, key)?;
        let allowed = writes.states[key].allowed();
        ensure!(allowed.contains(&found), "{name} has version {found:?} and not one of {allowed:?}");
        writes.states[key] = KeyState::of(found);
        existing.extend(found.map(|version| (name, size(version) as u64)));
    }
    let listed = list(&mut client)?;
    ensure!(listed == existing, "the list has {listed:?}, and the entries are {existing:?}");
    writes.check_counters(&mut client)?;
    drop(client);
    let status = service.stop()?;
    ensure!(status.success(), "the service ended with {status} when it was asked to end");
    service::command(binary, "verify", store)?;
    Ok(())
}

/// Returns the version that is stored under a key, or `None` if there is no entry. If the body is not that of the
/// version, this is an error.
fn read(client: &mut Client, contents: &Contents, key: usize) -> Result<Option<u64>> {
    let (status, body) = client.get(&entry_path(key))?;
    if status == 404 {
        return Ok(None);
    }
    ensure!(status == 200, "{} is answered with {status}", key_name(key));
    let version = body.get(..VERSION_DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
    let version = version.and_then(|digits| digits.parse().ok()).context("an entry has no version")?;
    let mut expected = Vec::new();
    append_body(contents, version, &mut expected);
    ensure!(body == expected, "version {version} of {} has other bytes than were sent", key_name(key));
    Ok(Some(version))
}

/// Returns all entries of the list with their sizes. A key that is listed twice or out of order is an error.
fn list(client: &mut Client) -> Result<BTreeMap<String, u64>> {
    let mut listed = BTreeMap::new();
    let mut next = format!("?limit={LIMIT}");
    loop {
        let (status, body) = client.get(&format!("/v1/{DOMAIN}/{ENTRIES}/{next}"))?;
        ensure!(status == 200, "a list is answered with {status}");
        let page: Value = serde_json::from_slice(&body)?;
        for entry in page["entries"].as_array().context("a list has no entries")? {
            let key = entry["key"].as_str().context("a listed entry has no key")?.to_owned();
            let is_next = listed.last_key_value().is_none_or(|(last, _)| *last < key);
            ensure!(is_next, "{key} is listed twice, or not in order");
            listed.insert(key, entry["size"].as_u64().context("a listed entry has no size")?);
        }
        match page["next"].as_str() {
            Some(query) => next = query.to_owned(),
            None => return Ok(listed),
        }
    }
}

fn key_name(key: usize) -> String {
    match key.checked_sub(CONNECTIONS * OWN_KEYS) {
        Some(shared) => format!("shared/{shared}"),
        None => format!("own/{}/{}", key / OWN_KEYS, key % OWN_KEYS),
    }
}

fn entry_path(key: usize) -> String {
    format!("/v1/{DOMAIN}/{ENTRIES}/{}", key_name(key))
}

const VERSION_DIGITS: usize = 16;

/// The size of the body of a version.
fn size(version: u64) -> usize {
    match Rng::with_seed(version).u8(..24) {
        0 | 1 => LARGE,
        2..6 => 50_000,
        6..12 => 2_000,
        _ => VERSION_DIGITS + 10,
    }
}

/// Appends the body of a version: its number, and a text that differs from version to version.
fn append_body(contents: &Contents, version: u64, out: &mut Vec<u8>) {
    let end = out.len() + size(version);
    out.extend_from_slice(format!("{version:0VERSION_DIGITS$}").as_bytes());
    while out.len() < end {
        contents.append_html(version + (out.len() / HTML_SIZE) as u64, out);
    }
    out.truncate(end);
}

fn with_body(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n")
            .into_bytes();
    request.extend_from_slice(body);
    request
}

/// The versions that may be stored under a key. `None`: there may be no entry.
#[derive(Debug, Default)]
struct KeyState {
    /// The states before the writes that are in flight.
    before: BTreeSet<Option<u64>>,
    /// The results of the writes that were in flight together.
    together: BTreeSet<Option<u64>>,
    under_way: usize,
}

impl KeyState {
    fn of(state: Option<u64>) -> Self {
        Self { before: [state].into(), ..Self::default() }
    }

    fn send(&mut self, result: Option<u64>) {
        self.under_way += 1;
        self.together.insert(result);
    }

    fn acknowledge(&mut self) {
        // One of the writes has replaced the state before these writes.
        self.before.clear();
        self.under_way -= 1;
        if self.under_way == 0 {
            self.before = std::mem::take(&mut self.together);
        }
    }

    fn allowed(&self) -> BTreeSet<Option<u64>> {
        self.before.union(&self.together).copied().collect()
    }
}

/// An increment with its idempotency key.
#[derive(Debug, Clone)]
struct Increment {
    counter: usize,
    key: String,
    by: i64,
}

impl Increment {
    fn request(&self) -> Vec<u8> {
        let headers = format!("Content-Type: application/json\r\nIdempotency-Key: {}\r\n", self.key);
        let body = format!("{{\"increment\":{}}}", self.by);
        with_body("POST", &counter_path(self.counter), &headers, body.as_bytes())
    }
}

fn counter_path(counter: usize) -> String {
    format!("/v1/{DOMAIN}/{COUNTERS}/counter-{counter}")
}

fn value_of(body: &[u8]) -> Result<i64> {
    let answer: Value = serde_json::from_slice(body)?;
    answer["value"].as_i64().context("the answer of a counter has no value")
}

#[derive(Debug, Clone)]
enum Write {
    Entry(usize),
    Increment(Increment),
}

/// Traffic of PUT, DELETE and increments.
struct Writes<'a> {
    contents: &'a Contents,
    rng: Rng,
    next_version: u64,
    states: Vec<KeyState>,
    /// The write that each connection has sent but has no answer to.
    in_flight: Vec<Option<Write>>,
    /// The acknowledged increments of the round, with their answers.
    increments: Vec<(Increment, i64)>,
    /// The sum of all increments of earlier rounds.
    sums: [i64; NUMBER_OF_COUNTERS],
    acknowledged: u64,
    refused: Option<String>,
}

impl<'a> Writes<'a> {
    fn new(contents: &'a Contents, seed: u64) -> Self {
        Self {
            contents,
            rng: Rng::with_seed(seed),
            next_version: 1,
            states: (0..KEYS).map(|_| KeyState::of(None)).collect(),
            in_flight: vec![None; CONNECTIONS],
            increments: Vec::new(),
            sums: [0; NUMBER_OF_COUNTERS],
            acknowledged: 0,
            refused: None,
        }
    }

    /// Begins a round. Versions, and the idempotency keys that contain them, are not used again.
    fn begin(&mut self, round: u32) {
        self.next_version += u64::from(round);
        self.in_flight.fill(None);
        self.increments.clear();
        self.acknowledged = 0;
    }

    /// Repeats all increments of the round. Checks that acknowledged increments have their first answers, and that each
    /// increment counts once.
    fn check_counters(&mut self, client: &mut Client) -> Result<()> {
        for (increment, value) in &self.increments {
            let (status, body) = client.send(&increment.request())?;
            ensure!(status == 200, "a repeated increment is answered with {status}");
            let again = value_of(&body)?;
            ensure!(again == *value, "{increment:?} is answered with {again}, after {value} before the kill");
            self.sums[increment.counter] += increment.by;
        }
        for write in self.in_flight.iter().flatten() {
            let Write::Increment(increment) = write else { continue };
            let (status, _) = client.send(&increment.request())?;
            ensure!(status == 200, "the repeat of an unanswered increment is answered with {status}");
            self.sums[increment.counter] += increment.by;
        }
        for (counter, sum) in self.sums.iter().enumerate() {
            let (status, body) = client.send(&http::get(&counter_path(counter)))?;
            ensure!(status == 200, "a counter is answered with {status}");
            let value = value_of(&body)?;
            ensure!(value == *sum, "counter {counter} is {value}, and the sum of its increments is {sum}");
        }
        Ok(())
    }
}

impl Traffic for Writes<'_> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        let version = self.next_version;
        self.next_version += 1;
        if self.rng.u8(..3) == 0 {
            let (counter, by) = (self.rng.usize(..NUMBER_OF_COUNTERS), self.rng.i64(-5..10));
            let increment = Increment { counter, key: format!("increment-{version}"), by };
            *out = increment.request();
            self.in_flight[connection] = Some(Write::Increment(increment));
            return;
        }
        let key = match self.rng.u8(..4) {
            0 => CONNECTIONS * OWN_KEYS + self.rng.usize(..SHARED_KEYS),
            _ => connection * OWN_KEYS + self.rng.usize(..OWN_KEYS),
        };
        self.in_flight[connection] = Some(Write::Entry(key));
        if self.rng.u8(..4) == 0 {
            self.states[key].send(None);
            *out = format!("DELETE {} HTTP/1.1\r\nHost: localhost\r\n\r\n", entry_path(key)).into_bytes();
        } else {
            self.states[key].send(Some(version));
            let mut body = Vec::new();
            append_body(self.contents, version, &mut body);
            *out = with_body("PUT", &entry_path(key), "", &body);
        }
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        let write = self.in_flight[connection].take().context("an answer without a request")?;
        if !matches!(status, 200 | 201 | 204) {
            let refused = format!("{write:?} was answered with {status}: {}", String::from_utf8_lossy(body));
            self.refused = Some(refused.clone());
            bail!(refused);
        }
        match write {
            Write::Entry(key) => self.states[key].acknowledge(),
            Write::Increment(increment) => self.increments.push((increment, value_of(body)?)),
        }
        self.acknowledged += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_write_replaces_the_states_before_it() {
        let mut state = KeyState::of(Some(1));
        state.send(Some(2));
        assert_eq!(state.allowed(), [Some(1), Some(2)].into());
        state.send(None);
        state.acknowledge();
        assert_eq!(state.allowed(), [None, Some(2)].into());
        state.acknowledge();
        state.send(Some(3));
        assert_eq!(state.allowed(), [None, Some(2), Some(3)].into());
        state.acknowledge();
        assert_eq!(state.allowed(), [Some(3)].into());
    }

    #[test]
    fn bodies_have_their_size_and_their_version() {
        let contents = Contents::new(1);
        let mut sizes = BTreeSet::new();
        for version in 1..200 {
            let mut body = Vec::new();
            append_body(&contents, version, &mut body);
            assert_eq!(body.len(), size(version));
            assert!(body.starts_with(format!("{version:016}").as_bytes()));
            sizes.insert(body.len());
        }
        assert_eq!(sizes.len(), 4);
    }
}
