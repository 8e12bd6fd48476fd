//! The time that the processes of a store have seen pass, in the store.
//!
//! A process that starts cannot know by itself whether its clock is right: the clock may have jumped while no process
//! ran. So the store keeps the time that was last seen, and the time from then until the start has not passed. Things
//! are then deleted later, never earlier. See decision 0049.

use std::time::Duration;

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
            self.clock.adopt_seen(row.as_ref().and_then(seen_in));
            Ok(())
        };
        self.seen_time_is_adopted.get_or_try_init(|| adopt).await.copied()
    }

    /// Stores the time that this process has seen pass, unless the stored time is recent. A server calls this function
    /// about once a minute. With `is_last`, as when the store is closed, stores any later time.
    pub async fn store_seen_time(&self, is_last: bool) -> Result<()> {
        self.adopt_seen_time().await?;
        let behind = if is_last { Duration::ZERO } else { MAX_BEHIND };
        let current = self.store.get(&SEEN_TIME, &key()).await?;
        let seen = self.clock.passed().seen();
        let stored = current.as_ref().and_then(seen_in);
        if stored.is_some_and(|stored| seen <= stored.saturating_add(behind)) {
            return Ok(());
        }
        // Of two processes that write at the same time, either may win: both have seen their time pass.
        let at = current.map_or_else(|| self.clock.now(), |row| self.write_time_after(row.written_at));
        let mut batch = Batch::new(key().partition);
        batch.put(&SEEN_TIME, Vec::new(), vec![Some(Value::Timestamp(seen))], at);
        Ok(self.store.write(Vec::new(), batch).await?)
    }
}
