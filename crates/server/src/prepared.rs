//! A cache of answers with prepared headers, for reads of cached bodies.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use moka::sync::Cache;

/// Prepared answers for values that the buckets have cached.
pub(crate) struct PreparedAnswers<T, A> {
    /// Answers by the address of the value in memory. Each answer has a weak reference, which keeps the memory of the
    /// value allocated. So no other value gets the address while the answer is in the cache.
    answers: Cache<usize, Arc<Prepared<T, A>>>,
}

impl<T, A> fmt::Debug for PreparedAnswers<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedAnswers").finish_non_exhaustive()
    }
}

/// The answer for a value.
#[derive(Debug)]
pub(crate) struct Prepared<T, A> {
    of: Weak<T>,
    answer: A,
}

impl<T, A> std::ops::Deref for Prepared<T, A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.answer
    }
}

/// The size in bytes of a usual answer. A larger one counts as several.
const USUAL_BYTES: usize = 4 << 10;

impl<T: Send + Sync + 'static, A: Send + Sync + 'static> PreparedAnswers<T, A> {
    /// Makes a cache with this maximum number of answers of a usual size. `memory` returns the size of an answer in
    /// bytes.
    pub(crate) fn new(capacity: u64, memory: fn(&A) -> usize) -> Self {
        let weight = move |_: &usize, prepared: &Arc<Prepared<T, A>>| {
            u32::try_from(memory(&prepared.answer).div_ceil(USUAL_BYTES)).unwrap_or(u32::MAX).max(1)
        };
        Self { answers: Cache::builder().max_capacity(capacity).weigher(weight).build() }
    }

    /// Returns the answer for a value, and whether the answer was in the cache. Otherwise `prepare` makes the answer.
    pub(crate) fn of(&self, value: &Arc<T>, prepare: impl FnOnce() -> A) -> (Arc<Prepared<T, A>>, bool) {
        let key = Arc::as_ptr(value) as usize;
        if let Some(prepared) = self.answers.get(&key) {
            debug_assert!(
                std::ptr::eq(prepared.of.as_ptr(), Arc::as_ptr(value)),
                "an answer keeps the memory of its value allocated"
            );
            return (prepared, true);
        }
        let prepared = Arc::new(Prepared { of: Arc::downgrade(value), answer: prepare() });
        // A value without other owners is in no cache, so no later request will have the same object.
        if Arc::strong_count(value) > 1 {
            self.answers.insert(key, Arc::clone(&prepared));
        }
        (prepared, false)
    }
}
