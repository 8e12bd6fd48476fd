//! The answers of a batch, and the memory for them.
//!
//! Each answer has a reserved part, so that small answers always have room. Beyond the reserved parts, answers to
//! earlier requests take precedence: if there is no room for an answer, large later answers are dropped, the last one
//! first. If that is not enough, the answer itself is dropped. Two limits apply: the size of the whole answer in JSON,
//! and the memory of all batches (see [`crate::staging`]).

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{StatusCode, Uri, response::Parts, uri::PathAndQuery};
use http_body::{Frame, SizeHint};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::{
    problem::{Kind, Problem, Result},
    settings::BODY_LIMIT,
    staging::BatchClaim,
};

/// The bytes that are reserved for each answer in the memory of the batch. In the batch's answer, as many bytes are
/// reserved for each answer unless the size limit of the batch's answer is too low.
pub(super) const RESERVED_BYTES: usize = 4 << 10;

/// The minimum number of bytes that are reserved for each answer in the batch's answer. The replacement of a dropped
/// answer fits into them.
const MIN_RESERVED_BYTES: usize = 1 << 10;

/// The longest URL in an answer that replaces a dropped answer.
const MAX_SHORT_URL_BYTES: usize = 256;

/// The answer to one request of a batch.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchAnswer)]
pub(crate) struct AnswerJson<'a> {
    /// The status.
    #[schema(minimum = 100)]
    status: u16,
    /// The headers, with names in lower case.
    headers: BTreeMap<&'a str, Cow<'a, str>>,
    /// The body, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<&'a str>,
    /// Any other body, in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    body_base64: Option<InBase64<'a>>,
}

/// Bytes that are encoded while they are written.
struct InBase64<'a>(&'a [u8]);

impl Serialize for InBase64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

impl<'a> AnswerJson<'a> {
    fn new(head: &'a Parts, body: &'a [u8]) -> Self {
        let mut headers: BTreeMap<&str, Cow<'_, str>> = BTreeMap::new();
        for (name, value) in &head.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            headers
                .entry(name.as_str())
                .and_modify(|values| *values = format!("{values}, {value}").into())
                .or_insert(value);
        }
        let text = std::str::from_utf8(body).ok();
        let body_base64 = if text.is_none() { Some(InBase64(body)) } else { None };
        Self { status: head.status.as_u16(), headers, body: text, body_base64 }
    }

    /// Returns the number of bytes of the answer in JSON, with the comma or the bracket before it.
    fn size(&self) -> usize {
        struct Counter(usize);
        impl io::Write for Counter {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += bytes.len();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut counter = Counter(1);
        // Texts can always be serialized, and writing to the counter does not fail.
        let _ = serde_json::to_writer(&mut counter, self);
        counter.0
    }

    /// Writes the JSON, with the comma or the bracket before it.
    fn write(&self, is_first: bool, size: usize) -> Bytes {
        let mut json = Vec::with_capacity(size);
        json.push(if is_first { b'[' } else { b',' });
        let _ = serde_json::to_writer(&mut json, self);
        json.into()
    }
}

/// The answers of a batch that is running.
pub(super) struct Answers(Mutex<State>);

struct State {
    slots: Vec<Slot>,
    /// The bytes of the batch's answer that are reserved for each slot.
    reserved: usize,
    /// The bytes of the batch's answer that no slot has reserved or taken.
    left: usize,
    claim: BatchClaim,
}

/// The answer to one request.
#[derive(Default)]
struct Slot {
    /// The parts of the body that have been collected.
    pieces: Vec<Bytes>,
    /// The finished answer.
    json: Option<Bytes>,
    is_dropped: bool,
    /// The bytes that the answer takes in memory.
    memory: usize,
    /// The bytes that the answer takes in the batch's answer.
    size: usize,
}

impl Answers {
    /// Makes room for this many answers. The claim covers [`RESERVED_BYTES`] for each of them. The batch's answer has
    /// at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// Returns 413 if not even problems would fit.
    pub(super) fn new(count: usize, limit: u64, claim: BatchClaim) -> Result<Self> {
        // The bracket at the end, and the one at the beginning of an empty array.
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(2);
        let reserved = RESERVED_BYTES.min(limit / count.max(1));
        if reserved < MIN_RESERVED_BYTES {
            let detail = format!(
                "the answers to {count} requests may have more bytes than the limit ({BODY_LIMIT}): send fewer requests"
            );
            return Err(Problem::new(Kind::TooLarge, detail));
        }
        let slots = std::iter::repeat_with(Slot::default).take(count).collect();
        Ok(Self(Mutex::new(State { slots, reserved, left: limit - count * reserved, claim })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the answer to a request. Stops early if there is no room.
    pub(super) async fn collect(&self, at: usize, response: Response) -> Collected {
        let (head, body) = response.into_parts();
        let mut body = body.into_data_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => {
                    if !self.lock().add(at, piece) {
                        return Collected::Dropped;
                    }
                }
                Err(error) => {
                    self.lock().clear(at);
                    return Collected::Broken(error);
                }
            }
        }
        if self.lock().finish(at, &head) { Collected::Whole } else { Collected::Dropped }
    }

    /// Discards the collected part of an answer, to make room for its replacement.
    pub(super) fn clear(&self, at: usize) {
        self.lock().clear(at);
    }

    /// Returns the positions of the answers that were dropped.
    pub(super) fn dropped(&self) -> Vec<usize> {
        let state = self.lock();
        (0..state.slots.len()).filter(|at| state.slots[*at].is_dropped).collect()
    }

    /// Sets a small answer, which fits into the reserved part, in place of an answer that was dropped or is incomplete,
    /// or whose request was not started.
    pub(super) async fn replace(&self, at: usize, response: Response) {
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, MIN_RESERVED_BYTES).await.unwrap_or_default();
        let answer = AnswerJson::new(&head, &body);
        self.lock().slots[at].json = Some(answer.write(at == 0, answer.size()));
    }

    /// The body with all answers.
    pub(super) fn into_body(self) -> Body {
        let State { slots, mut claim, .. } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut pieces: VecDeque<Bytes> = slots.into_iter().filter_map(|slot| slot.json).collect();
        pieces.push_back(Bytes::from_static(if pieces.is_empty() { b"[]" } else { b"]" }));
        let left = pieces.iter().map(Bytes::len).sum();
        // Releases the memory for the body of the request, and the unused reserved memory.
        claim.shrink_to(left);
        Body::new(AllAnswers { pieces, left: left as u64, claim })
    }
}

/// The result of [`Answers::collect`].
pub(super) enum Collected {
    /// The answer is complete.
    Whole,
    /// There is no room for the answer.
    Dropped,
    /// The body of the answer ended with an error.
    Broken(axum::Error),
}

impl State {
    /// Adds a part of an answer's body. Returns `false` if there is no room for it; the answer is dropped then.
    fn add(&mut self, at: usize, piece: Bytes) -> bool {
        let Slot { memory, size, .. } = self.slots[at];
        // The JSON has at least the bytes of the body.
        let fits = self.resize(at, memory + piece.len(), size + piece.len());
        if fits {
            self.slots[at].pieces.push(piece);
        }
        fits
    }

    /// Makes the JSON of an answer whose body is complete. Returns `false` if there is no room for it; the answer is
    /// dropped then.
    fn finish(&mut self, at: usize, head: &Parts) -> bool {
        let Slot { memory, size, .. } = self.slots[at];
        let pieces = self.slots[at].pieces.len();
        if pieces > 1 && !self.resize(at, 2 * memory, size) {
            return false;
        }
        let mut pieces = std::mem::take(&mut self.slots[at].pieces);
        let body = if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() };
        drop(pieces);
        let answer = AnswerJson::new(head, &body);
        let size = answer.size();
        if !self.resize(at, body.len() + size, size) {
            return false;
        }
        self.slots[at].json = Some(answer.write(at == 0, size));
        self.resize(at, size, size)
    }

    /// Sets the sizes of an answer in memory and in the batch. Drops large later answers, the last one first, until
    /// there is room. If there is still no room, drops the answer itself and returns `false`.
    fn resize(&mut self, at: usize, memory: usize, size: usize) -> bool {
        let reserved = self.reserved;
        loop {
            let slot = &self.slots[at];
            if slot.is_dropped {
                return false;
            }
            let left = (self.left + slot.size.max(reserved)).checked_sub(size.max(reserved));
            let (before, after) = (slot.memory.max(RESERVED_BYTES), memory.max(RESERVED_BYTES));
            if let Some(left) = left
                && (after <= before || self.claim.grow(after - before))
            {
                self.claim.shrink(before.saturating_sub(after));
                self.left = left;
                (self.slots[at].memory, self.slots[at].size) = (memory, size);
                return true;
            }
            let is_large = |slot: &Slot| slot.size > reserved || slot.memory > RESERVED_BYTES;
            let last = self.slots.iter().rposition(is_large).filter(|last| *last > at).unwrap_or(at);
            self.clear(last);
            self.slots[last].is_dropped = true;
        }
    }

    /// Discards an answer, and releases everything beyond its reserved part.
    fn clear(&mut self, at: usize) {
        let slot = std::mem::take(&mut self.slots[at]);
        self.slots[at].is_dropped = slot.is_dropped;
        self.claim.shrink(slot.memory.saturating_sub(RESERVED_BYTES));
        self.left += slot.size.saturating_sub(self.reserved);
    }
}

/// The body of a batch's answer. Releases the memory of each part when the part is sent.
struct AllAnswers {
    pieces: VecDeque<Bytes>,
    left: u64,
    claim: BatchClaim,
}

impl http_body::Body for AllAnswers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(None) };
        self.left -= piece.len() as u64;
        self.claim.shrink(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The problem of an answer that was dropped.
pub(super) fn too_large() -> Problem {
    Problem::new(
        Kind::AnswerTooLarge,
        format!(
            "the answer has no room in the answer of its batch ({BODY_LIMIT}, staging_memory): send the request alone, \
             or in a smaller batch; a write may be stored already, so read the resource before you repeat a write"
        ),
    )
}

/// Makes the answer that replaces a dropped or incomplete answer. The new answer must fit into [`MIN_RESERVED_BYTES`],
/// so a long URL is left out.
pub(super) fn replacement_answer(problem: &Problem, id: http::HeaderValue, url: Option<&Uri>) -> Response {
    let url = url.and_then(Uri::path_and_query).map(PathAndQuery::as_str);
    // In JSON, these two characters would take more bytes.
    let url = url.filter(|url| url.len() <= MAX_SHORT_URL_BYTES && !url.contains(['"', '\\']));
    let mut response = problem.to_response(url);
    response.headers_mut().insert(crate::request_id::REQUEST_ID, id);
    debug_assert!(response.status() != StatusCode::OK);
    response
}

#[cfg(test)]
mod tests;
