//! Compares and sets one row, by lightweight transactions.
//!
//! A transaction compares the whole cell, including its times, so the transaction needs the bytes of the existing
//! cell. The first attempt uses the cell of the row that the caller expects. Each further attempt uses the cell that
//! the previous transaction has found, if this cell has the expected values.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Error, Key, Result, Row, Swap};
use scylla::{
    deserialize::row::ColumnIterator, frame::types::Consistency, response::query_result::QueryRowsResult,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    cell::{self, CELL},
    errors::{corrupt, unexpected},
    session::Cluster,
    table::{Table, bind},
    wire::BoundValue,
    write::ttl,
};

/// The maximum number of attempts of a swap, while other writers also swap the row.
const MAX_ROUNDS: usize = 16;
const LOCK_COUNT: usize = 256;

/// Locks that let the swaps of one row in this process run one after the other. In the cluster, concurrent swaps
/// delay each other until some of them time out, with an unknown outcome. Rows with the same hash share a lock.
#[derive(Debug)]
pub(crate) struct Locks {
    hasher: RandomState,
    locks: Vec<Mutex<()>>,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), locks: (0..LOCK_COUNT).map(|_| Mutex::default()).collect() }
    }

    async fn lock(&self, key: &Key, limit: Duration) -> Result<MutexGuard<'_, ()>> {
        let lock = &self.locks[self.hasher.hash_one(key) as usize % LOCK_COUNT];
        let waited = tokio::time::timeout(limit, lock.lock()).await;
        waited.map_err(|_| Error::unavailable("too many swaps of one row at once"))
    }
}

/// One call of `swap`.
pub(crate) struct Call<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) table: &'a Table,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) key: &'a Key,
    pub(crate) expected: Option<&'a Row>,
    pub(crate) new: Option<&'a Row>,
}

impl Call<'_> {
    pub(crate) async fn run(self, locks: &Locks) -> Result<Swap> {
        let _lock = locks.lock(self.key, self.cluster.request_timeout()).await?;
        let mut existing = self.first_guess().await?;
        for _ in 0..MAX_ROUNDS {
            let row = existing.as_deref().map(|cell| self.row(cell)).transpose()?;
            let passed = self.clock.passed();
            let now = passed.shown();
            let visible = row.clone().filter(|row| row.is_visible(passed));
            if visible.as_ref().map(|row| &row.values) != self.expected.map(|row| &row.values) {
                return Ok(Swap::Refused { current: visible });
            }
            let written_at = row.map_or(now, |row| now.max(row.written_at.just_after()));
            match self.attempt(existing.as_deref(), written_at, now).await? {
                Attempt::Applied => return Ok(Swap::Applied),
                Attempt::Found(found) => existing = found,
            }
        }
        Err(Error::unavailable("other writers changed the row again and again during a swap"))
    }

    /// Returns the cell that probably exists: that of the expected row, or none if no row is expected. Reads the stored
    /// cell instead if no transaction would compare the guess with the stored cell: if there is neither an expected row
    /// nor a new row, or if the expected row has expired.
    async fn first_guess(&self) -> Result<Option<Vec<u8>>> {
        match (self.expected, self.new) {
            (None, None) => self.read().await,
            (None, Some(_)) => Ok(None),
            (Some(row), _) if row.is_visible(self.clock.passed()) => {
                Ok(Some(cell::encode(self.table.schema, row.expires_at, row.written_at, &row.values)))
            }
            (Some(_), _) => self.read().await,
        }
    }

    /// Reads the stored cell, after all swaps of the row that are in progress.
    async fn read(&self) -> Result<Option<Vec<u8>>> {
        let mut statement = self.cluster.prepare(self.table.get()).await?;
        statement.set_consistency(Consistency::Serial);
        let key: Vec<_> = self.bind_key().collect();
        cell_in(&self.cluster.read_prepared(&statement, &key).await?)
    }

    async fn attempt(
        &self,
        existing: Option<&[u8]>,
        written_at: Timestamp,
        now: Timestamp,
    ) -> Result<Attempt> {
        let expected = existing.map(BoundValue::Bytes);
        let Some(new) = self.new else {
            let Some(expected) = expected else { return Ok(Attempt::Applied) };
            let values: Vec<_> = self.bind_key().chain([expected]).collect();
            return self.transact(self.table.swap_delete(), &values).await;
        };
        let expires_at = self.table.schema.expiry(written_at, new.expires_at);
        let cell = cell::encode(self.table.schema, expires_at, written_at, &new.values);
        let set = [BoundValue::Int(ttl(now, expires_at)), BoundValue::Bytes(&cell)];
        let values: Vec<_> = set.into_iter().chain(self.bind_key()).chain(expected).collect();
        self.transact(self.table.swap(expected.is_some()), &values).await
    }

    /// Executes a transaction once, without retries. If the driver repeated the transaction after an unknown outcome,
    /// the transaction could find its own row, and be refused.
    async fn transact(&self, text: String, values: &[BoundValue<'_>]) -> Result<Attempt> {
        let mut statement = self.cluster.prepare(text).await?;
        statement.set_is_idempotent(false);
        let answer = self.cluster.read_prepared(&statement, values).await?;
        let applied = answer.single_row::<ColumnIterator<'_, '_>>().map_err(unexpected)?.next();
        let applied = applied.transpose().map_err(unexpected)?.and_then(|column| column.slice);
        if applied.is_some_and(|applied| applied.as_slice() == [1]) {
            return Ok(Attempt::Applied);
        }
        Ok(Attempt::Found(cell_in(&answer)?))
    }

    fn row(&self, cell: &[u8]) -> Result<Row> {
        let cell = cell::decode(self.table.schema, cell);
        let (values, written_at, expires_at) = cell
            .and_then(|cell| Some((cell.values, cell.written_at?, cell.expires_at)))
            .ok_or_else(|| corrupt(self.table.schema, self.key))?;
        Ok(Row { key: self.key.clone(), values, written_at, expires_at })
    }

    fn bind_key(&self) -> impl Iterator<Item = BoundValue<'_>> {
        bind(&self.key.partition).chain(bind(&self.key.clustering))
    }
}

enum Attempt {
    Applied,
    /// Another cell is stored, or no cell.
    Found(Option<Vec<u8>>),
}

/// Returns the cell in an answer of at most one row. Servers differ in the other columns of the answer.
fn cell_in(answer: &QueryRowsResult) -> Result<Option<Vec<u8>>> {
    let Some(row) = answer.maybe_first_row::<ColumnIterator<'_, '_>>().map_err(unexpected)? else {
        return Ok(None);
    };
    for column in row {
        let column = column.map_err(unexpected)?;
        if column.spec.name() == CELL {
            return Ok(column.slice.map(|slice| slice.as_slice().to_vec()));
        }
    }
    Ok(None)
}
