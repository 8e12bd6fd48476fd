//! Counters of the work of retention in this process.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::Sweep;

/// The work of retention since the process began, and the state after the last sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionStats {
    /// Queue entries that were processed.
    pub entries: u64,
    /// Renders whose bodies were culled, by the sweep and by writes.
    pub culled_renders: u64,
    /// The bytes, before compression, of the culled bodies of renders and of revisions.
    pub culled_bytes: u64,
    /// How long the oldest entry that the last sweep left in the queue has been eligible. Zero if the sweep left no
    /// eligible entry.
    pub overdue: Duration,
    /// Whether the last sweep left entries in the queue, because of a recent clock jump.
    pub paused: bool,
    /// Entries that were added to the timeline.
    pub timeline_entries: u64,
    /// Copies of whole renders that were made because a render was read or generated.
    pub kept_renders: u64,
    /// Reads by revision number that found a read copy, but no body of the newest render. Usually the copy is of a
    /// render that a renderer generated earlier.
    pub generator_hits: u64,
    /// Calls of a renderer, each for one reader or for several. Failed calls are included.
    pub generator_misses: u64,
    /// Calls of a renderer that produced no render.
    pub generator_failures: u64,
    /// Renders that are being generated.
    pub generator_in_flight: u64,
}

/// The counters behind [`RetentionStats`].
#[derive(Debug, Default)]
pub struct Counters {
    entries: AtomicU64,
    culled_renders: AtomicU64,
    culled_bytes: AtomicU64,
    overdue_micros: AtomicU64,
    paused: AtomicBool,
    pub(crate) timeline_entries: AtomicU64,
    pub(crate) kept_renders: AtomicU64,
    pub(crate) generator_hits: AtomicU64,
    generator_misses: AtomicU64,
    generator_failures: AtomicU64,
    generator_in_flight: AtomicU64,
}

impl Counters {
    /// Counts culled bodies.
    pub(crate) fn culled(&self, renders: u64, bytes: u64) {
        self.culled_renders.fetch_add(renders, Relaxed);
        self.culled_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a sweep. A failed sweep may raise `overdue`, but does not lower it, since it has not seen all
    /// entries.
    pub(crate) fn swept(&self, sweep: &Sweep, is_finished: bool) {
        self.entries.fetch_add(sweep.entries, Relaxed);
        self.culled(sweep.renders, sweep.bytes);
        let micros = u64::try_from(sweep.overdue.as_micros()).unwrap_or(u64::MAX);
        if is_finished {
            self.overdue_micros.store(micros, Relaxed);
            self.paused.store(sweep.paused, Relaxed);
        } else {
            self.overdue_micros.fetch_max(micros, Relaxed);
        }
    }

    /// Counts a call of a renderer that begins now.
    pub fn begin_generation(&self) {
        self.generator_misses.fetch_add(1, Relaxed);
        self.generator_in_flight.fetch_add(1, Relaxed);
    }

    /// Counts the end of a call of a renderer.
    pub fn end_generation(&self) {
        self.generator_in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts a call of a renderer that produced no render.
    pub fn fail_generation(&self) {
        self.generator_failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> RetentionStats {
        RetentionStats {
            entries: self.entries.load(Relaxed),
            culled_renders: self.culled_renders.load(Relaxed),
            culled_bytes: self.culled_bytes.load(Relaxed),
            overdue: Duration::from_micros(self.overdue_micros.load(Relaxed)),
            paused: self.paused.load(Relaxed),
            timeline_entries: self.timeline_entries.load(Relaxed),
            kept_renders: self.kept_renders.load(Relaxed),
            generator_hits: self.generator_hits.load(Relaxed),
            generator_misses: self.generator_misses.load(Relaxed),
            generator_failures: self.generator_failures.load(Relaxed),
            generator_in_flight: self.generator_in_flight.load(Relaxed),
        }
    }
}
