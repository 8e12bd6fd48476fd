//! Computes the counter that results from a group of increments, without I/O.

use std::{collections::HashMap, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_records::rows::{Json, TypedRow as _};
use rashomon_tables::Row;

use super::rows::{CounterRow, KeptJson, PendingJson};
use crate::{
    Error, IdempotencyKey, Result, idempotency::IDEMPOTENCY_KEY_LIFETIME, queue::Request,
    rows::HOUR_IN_MICROS,
};

/// The answer of an increment with an idempotency key. The table `counter_requests` may not have the answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingAnswer {
    pub(super) idempotency_key: IdempotencyKey,
    pub(super) answer: i64,
    pub(super) at: Timestamp,
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counter {
    /// The value. `None` if the counter does not exist.
    pub(super) value: Option<i64>,
    /// The write time of the row in the index. `None` if the counter has no row.
    pub(super) indexed_at: Option<Timestamp>,
    /// The unexpired answers that the next change has to write into `counter_requests`.
    pub(super) pending: Vec<PendingAnswer>,
    /// The number of idempotency keys of each hour that has unexpired keys. The keys of pending answers are counted as
    /// well.
    kept: Vec<KeptJson>,
}

/// The result of a group of increments.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The answers of the requests, in the order of the requests. The answers are valid only if `new` is stored.
    pub(super) answers: Vec<Result<i64>>,
    /// The new state of the counter. `None` if the group changes nothing.
    pub(super) new: Option<Counter>,
}

impl Counter {
    /// Reads a counter. Omits the pending answers and the idempotency keys that have expired at `now`.
    pub(super) fn of(row: Option<&Row>, now: Timestamp) -> Result<Self> {
        let Some(row) = row else { return Ok(Self::default()) };
        let CounterRow { value, indexed_at, pending, kept } = CounterRow::from_row(row)?;
        let pending = pending.unwrap_or_default().0.into_iter().map(|PendingJson(key, answer, at)| {
            PendingAnswer { idempotency_key: key, answer, at: Timestamp::from_micros(at) }
        });
        let pending = pending.filter(|pending| now < pending.at.saturating_add(IDEMPOTENCY_KEY_LIFETIME));
        let kept = kept.unwrap_or_default().0.into_iter();
        let kept = kept.filter(|KeptJson(hour, _)| now < last_expiry(*hour));
        Ok(Self { value, indexed_at: Some(indexed_at), pending: pending.collect(), kept: kept.collect() })
    }

    /// Returns the row of the counter. `indexed_at` is set in each state that is stored.
    pub(super) fn to_row(&self) -> CounterRow {
        let pending: Vec<_> = (self.pending.iter())
            .map(|pending| {
                PendingJson(pending.idempotency_key.clone(), pending.answer, pending.at.as_micros())
            })
            .collect();
        CounterRow {
            value: self.value,
            indexed_at: self.indexed_at.unwrap_or_default(),
            pending: (!pending.is_empty()).then_some(Json(pending)),
            kept: (!self.kept.is_empty()).then(|| Json(self.kept.clone())),
        }
    }

    /// Returns the number of idempotency keys that are kept.
    pub(super) fn kept_keys(&self) -> u64 {
        self.kept.iter().fold(0, |sum: u64, KeptJson(_, count)| sum.saturating_add(*count))
    }

    /// Returns the time until the first kept idempotency keys expire.
    fn next_expiry(&self, now: Timestamp) -> Duration {
        let next = self.kept.iter().map(|KeptJson(hour, _)| last_expiry(*hour)).min();
        next.map_or(IDEMPOTENCY_KEY_LIFETIME, |next| next.since(now))
    }

    /// Returns the answer of an idempotency key, if the answer is pending.
    pub(super) fn pending_answer(&self, idempotency_key: &IdempotencyKey) -> Option<i64> {
        let found = self.pending.iter().find(|pending| pending.idempotency_key == *idempotency_key);
        found.map(|pending| pending.answer)
    }

    /// Carries out increments in their order. `known` has the answers of those idempotency keys of the requests that
    /// were counted before.
    ///
    /// The new state has only the new answers pending. So the pending answers of this state have to be written into
    /// `counter_requests` before the new state is stored.
    pub(super) fn increment(
        &self,
        requests: &[Request],
        mut known: HashMap<IdempotencyKey, i64>,
        now: Timestamp,
        max_idempotency_keys: u64,
    ) -> Outcome {
        let mut new = Self { pending: Vec::new(), ..self.clone() };
        let mut is_changed = false;
        let mut kept = self.kept_keys();
        let mut answer = |request: &Request| {
            let idempotency_key = request.idempotency_key.as_ref();
            if let Some(first) = idempotency_key.and_then(|key| known.get(key)) {
                return Ok(*first);
            }
            let (value, by) = (new.value.unwrap_or(0), request.by);
            let sum = value.checked_add(by).ok_or(Error::Overflow { value, by })?;
            if let Some(key) = idempotency_key {
                if kept >= max_idempotency_keys {
                    let (limit, retry_after) = (max_idempotency_keys, new.next_expiry(now));
                    return Err(Error::TooManyIdempotencyKeys { limit, retry_after });
                }
                kept += 1;
                new.add_pending(PendingAnswer { idempotency_key: key.clone(), answer: sum, at: now });
                known.insert(key.clone(), sum);
            }
            new.value = Some(sum);
            is_changed = true;
            Ok(sum)
        };
        let answers = requests.iter().map(&mut answer).collect();
        if self.value.is_none() {
            new.indexed_at = Some(self.indexed_at.map_or(now, |before| now.max(before.just_after())));
        }
        Outcome { answers, new: is_changed.then_some(new) }
    }

    /// Returns the state after the deletion of the counter. `indexed_at` is the write time of the deleted row in the
    /// index. The pending answers of this state have to be written into `counter_requests` before the new state is
    /// stored.
    pub(super) fn deleted(&self, indexed_at: Timestamp) -> Self {
        Self { value: None, indexed_at: Some(indexed_at), pending: Vec::new(), kept: self.kept.clone() }
    }

    fn add_pending(&mut self, answer: PendingAnswer) {
        let hour = answer.at.as_micros().div_euclid(HOUR_IN_MICROS);
        self.pending.push(answer);
        match self.kept.iter_mut().find(|KeptJson(of, _)| *of == hour) {
            Some(KeptJson(_, count)) => *count = count.saturating_add(1),
            None => self.kept.push(KeptJson(hour, 1)),
        }
    }
}

/// Returns the time at which all idempotency keys of an hour have expired.
fn last_expiry(hour: i64) -> Timestamp {
    let end = hour.saturating_add(1).saturating_mul(HOUR_IN_MICROS);
    Timestamp::from_micros(end).saturating_add(IDEMPOTENCY_KEY_LIFETIME)
}
