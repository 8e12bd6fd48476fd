//! Comparing and setting one row, by lightweight transactions.
//!
//! A transaction compares the whole cell, times and all, so it is told the cell that stands: at first the one
//! that the caller knows, then the one that the transaction found. Whether that has the values that are
//! expected is decided here.

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
    wire::Bound,
    write::ttl,
};

/// How often the row may be another one than was thought, while others swap it.
const MAX_ROUNDS: usize = 16;
const LOCKS: usize = 256;

/// Swaps of one row that this process makes wait for one another here: in the cluster they would push one
/// another aside until some of them run out of time, and then nobody knows whether those were applied. Rows
/// share locks by hash.
#[derive(Debug)]
pub(crate) struct Locks {
    hasher: RandomState,
    locks: Vec<Mutex<()>>,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), locks: (0..LOCKS).map(|_| Mutex::default()).collect() }
    }

    async fn lock(&self, key: &Key, limit: Duration) -> Result<MutexGuard<'_, ()>> {
        let lock = &self.locks[self.hasher.hash_one(key) as usize % LOCKS];
        let waited = tokio::time::timeout(limit, lock.lock()).await;
        waited.map_err(|_| Error::unavailable("too many swaps of one row at once"))
    }
}

/// One swap.
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
        let mut standing = self.first_guess().await?;
        for _ in 0..MAX_ROUNDS {
            let row = standing.as_deref().map(|cell| self.row(cell)).transpose()?;
            let now = self.clock.now();
            let visible = row.clone().filter(|row| row.is_visible(now));
            if visible.as_ref().map(|row| &row.values) != self.expected.map(|row| &row.values) {
                return Ok(Swap::Refused { current: visible });
            }
            let written_at = row.map_or(now, |row| now.max(row.written_at.just_after()));
            match self.attempt(standing.as_deref(), written_at, now).await? {
                Attempt::Applied => return Ok(Swap::Applied),
                Attempt::Found(found) => standing = found,
            }
        }
        Err(Error::unavailable("the row changed again and again while it was swapped"))
    }

    /// The cell that probably stands: the expected row's. Where a wrong guess would not be noticed, it is
    /// read: where nothing is to be written, or the expected row has expired.
    async fn first_guess(&self) -> Result<Option<Vec<u8>>> {
        match (self.expected, self.new) {
            (None, None) => self.read().await,
            (None, Some(_)) => Ok(None),
            (Some(row), _) if row.is_visible(self.clock.now()) => {
                Ok(Some(cell::encode(self.table.schema, row.expires_at, row.written_at, &row.values)))
            }
            (Some(_), _) => self.read().await,
        }
    }

    /// The cell that stands, after every swap of it that is under way.
    async fn read(&self) -> Result<Option<Vec<u8>>> {
        let mut statement = self.cluster.prepare(self.table.get()).await?;
        statement.set_consistency(Consistency::Serial);
        let key: Vec<_> = self.bind_key().collect();
        cell_in(&self.cluster.read_prepared(&statement, &key).await?)
    }

    async fn attempt(
        &self,
        standing: Option<&[u8]>,
        written_at: Timestamp,
        now: Timestamp,
    ) -> Result<Attempt> {
        let expected = standing.map(Bound::Bytes);
        let Some(new) = self.new else {
            let Some(expected) = expected else { return Ok(Attempt::Applied) };
            let values: Vec<_> = self.bind_key().chain([expected]).collect();
            return self.transact(self.table.swap_out(), &values).await;
        };
        let expires_at = self.table.schema.expiry(written_at, new.expires_at);
        let cell = cell::encode(self.table.schema, expires_at, written_at, &new.values);
        let set = [Bound::Int(ttl(now, expires_at)), Bound::Bytes(&cell)];
        let values: Vec<_> = set.into_iter().chain(self.bind_key()).chain(expected).collect();
        self.transact(self.table.swap(expected.is_some()), &values).await
    }

    /// A transaction is made once: made again after an unknown end, it would find its own row and be refused.
    async fn transact(&self, text: String, values: &[Bound<'_>]) -> Result<Attempt> {
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

    fn bind_key(&self) -> impl Iterator<Item = Bound<'_>> {
        bind(&self.key.partition).chain(bind(&self.key.clustering))
    }
}

enum Attempt {
    Applied,
    /// Another cell stood there, or none.
    Found(Option<Vec<u8>>),
}

/// The cell in an answer of one row at most; servers differ in which columns stand around it.
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
