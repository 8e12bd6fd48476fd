//! The time that the processes of a store have seen pass, in the store.
//!
//! A process that starts cannot know by itself whether its clock is right: the clock may have jumped while no process
//! ran. So the store keeps the time that was last seen, and the time from then until the start has not passed. Things
//! are then deleted later, never earlier. See decision 0049.

use std::{sync::atomic::Ordering, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Key, Row, Value};

use crate::{Records, Result, schemas::SEEN_TIME};

/// How far the stored time may be behind.
const MAX_BEHIND: Duration = Duration::from_secs(50);

fn key() -> Key {
    Key::new(vec![Value::Int(0)], Vec::new())
}

fn seen_in(row: &Row) -> Option<Timestamp> {
    match row.values.first() {
        Some(Some(Value::Timestamp(seen))) => Some(*seen),
        _ => None,
    }
}

impl Records {
    /// Tells the clock of this process which time the store has seen pass. Until this has succeeded once, only the time
    /// since the start of this process has certainly passed.
    pub async fn adopt_seen_time(&self) -> Result<()> {
        let adopt = async {
            let row = self.store.get(&SEEN_TIME, &key()).await?;
            let stored = row.as_ref().and_then(seen_in);
            self.clock.adopt_seen(stored);
            self.set_stored_seen_time(stored);
            Ok(())
        };
        self.seen_time_is_adopted.get_or_try_init(|| adopt).await.copied()
    }

    /// Stores the time that this process has seen pass, unless the stored time is recent. A server calls this function
    /// every second: it uses the store about once a minute. With `is_last`, as when the store is closed, stores any
    /// later time.
    pub async fn store_seen_time(&self, is_last: bool) -> Result<()> {
        self.adopt_seen_time().await?;
        let seen = self.clock.passed().seen();
        let behind = if is_last { Duration::ZERO } else { MAX_BEHIND };
        // If the clock was set back, what is written now has an earlier time. So the stored time goes back, too: when
        // the clock is right again, a process that starts must not count the difference as time that has passed.
        let ahead = self.max_write_time_lag();
        let is_recent =
            |stored: Timestamp| seen <= stored.saturating_add(behind) && stored.saturating_sub(ahead) <= seen;
        let known = Timestamp::from_micros(self.stored_seen_time.load(Ordering::Relaxed));
        if is_recent(known) {
            return Ok(());
        }
        let current = self.store.get(&SEEN_TIME, &key()).await?;
        if let Some(stored) = current.as_ref().and_then(seen_in).filter(|stored| is_recent(*stored)) {
            self.set_stored_seen_time(Some(stored));
            return Ok(());
        }
        // Of two processes that write at the same time, either may win: both have seen their time pass.
        let at = current.map_or_else(|| self.clock.now(), |row| self.write_time_after(row.written_at));
        let mut batch = Batch::new(key().partition);
        batch.put(&SEEN_TIME, Vec::new(), vec![Some(Value::Timestamp(seen))], at);
        self.store.write(Vec::new(), batch).await?;
        self.set_stored_seen_time(Some(seen));
        Ok(())
    }

    fn set_stored_seen_time(&self, stored: Option<Timestamp>) {
        self.stored_seen_time.store(stored.unwrap_or(Timestamp::MIN).as_micros(), Ordering::Relaxed);
    }
}
