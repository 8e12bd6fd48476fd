//! Functions for the queues of the store: the retention queue and the purge queue. The partition of both is an hour and
//! a shard.

use std::{num::NonZeroUsize, ops::RangeInclusive, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Schema, Value};

use crate::{Records, Result};

/// One hour, in microseconds.
const HOUR_MICROS: i64 = 3_600_000_000;

/// The number of partitions of a queue in a result page, while the hours are listed.
const PARTITIONS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The maximum time that a write may take after its queue entry was created.
const MAX_WRITE_TIME: Duration = Duration::from_secs(10);

/// The same limit for a store to which only one process writes.
const MAX_WRITE_TIME_ALONE: Duration = Duration::from_secs(1);

/// Returns the hour of a time, counted from the epoch. It is the first column of a queue's partition.
#[must_use]
pub fn hour_of(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(HOUR_MICROS)
}

/// Returns the last microsecond before an hour.
#[must_use]
pub fn before_hour(hour: i64) -> Timestamp {
    Timestamp::from_micros(hour * HOUR_MICROS - 1)
}

impl Records {
    /// Returns the hours among `hours` in which a queue has entries of a shard, the earliest first.
    pub async fn queue_hours(
        &self,
        queue: &'static Schema,
        shard: i64,
        hours: RangeInclusive<i64>,
    ) -> Result<Vec<i64>> {
        let (mut found, mut partitions) = (Vec::new(), self.partitions(queue, PARTITIONS));
        while let Some(partition) = partitions.next().await? {
            if let [Value::Int(hour), Value::Int(of)] = partition[..]
                && of == shard
                && hours.contains(&hour)
            {
                found.push(hour);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The maximum time from the creation of a queue entry until the end of its write. If a write takes longer, a
    /// cursor may pass the entry before the write is stored.
    #[must_use]
    pub fn max_queued_write_time(&self) -> Duration {
        if self.is_alone() { MAX_WRITE_TIME_ALONE } else { MAX_WRITE_TIME }
    }
}
