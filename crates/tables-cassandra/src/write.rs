//! Writes batches.
//!
//! One statement is executed alone, and several as a logged batch on one partition of one keyspace. Cassandra
//! applies either as one mutation: all or nothing in each replica, and without the batch log. Every statement is
//! idempotent. No column is ever set to null, since that would be a tombstone.

use std::{borrow::Cow, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Mutation, Result, Value};
use scylla::statement::prepared::PreparedStatement;

use crate::{
    catalog::Catalog,
    cell,
    session::Cluster,
    slices,
    table::{bind, bind_range},
    wire::Bound,
};

/// The minimum time that a row is kept after its expiry, since clocks differ.
const TTL_MARGIN: Duration = Duration::from_secs(60 * 60);
/// The longest TTL. A row that lives longer gets no TTL, and Cassandra never reclaims it by itself. Cassandra
/// accepts at most 20 years, and in its older formats no time after the year 2038.
const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A mutation as a statement.
struct Change<'a> {
    statement: PreparedStatement,
    written_at: Timestamp,
    effect: Effect<'a>,
}

enum Effect<'a> {
    Put { clustering: &'a [Value], ttl: i32, cell: Vec<u8> },
    Delete { range: Cow<'a, ClusteringRange> },
}

/// Applies a batch, which the caller has checked.
pub(crate) async fn apply(cluster: &Cluster, catalog: &Catalog, batch: &Batch, now: Timestamp) -> Result<()> {
    let mut changes = Vec::with_capacity(batch.mutations.len());
    for mutation in &batch.mutations {
        let table = catalog.get(mutation.table())?;
        let (text, written_at, effect) = match mutation {
            Mutation::Put { clustering, values, written_at, expires_at, .. } => {
                let expires_at = table.schema.expiry(*written_at, *expires_at);
                let cell = cell::encode(table.schema, expires_at, *written_at, values);
                (table.put(), *written_at, Effect::Put { clustering, ttl: ttl(now, expires_at), cell })
            }
            Mutation::Delete { clustering, written_at, .. } => {
                let range = Cow::Owned(ClusteringRange::prefix(clustering.clone()));
                (table.delete(&range), *written_at, Effect::Delete { range })
            }
            Mutation::DeleteRange { range, .. } if !slices::may_have_rows(range) => continue,
            Mutation::DeleteRange { range, written_before, .. } => {
                (table.delete(range), *written_before, Effect::Delete { range: Cow::Borrowed(range) })
            }
        };
        changes.push(Change { statement: cluster.prepare(text).await?, written_at, effect });
    }
    if changes.is_empty() {
        return Ok(());
    }
    let statements =
        changes.iter().map(|change| (change.statement.clone(), bindings(&batch.partition, change)));
    cluster.apply(statements.collect()).await
}

fn bindings<'a>(partition: &'a [Value], change: &'a Change<'_>) -> Vec<Bound<'a>> {
    let mut bound = vec![Bound::Long(change.written_at.as_micros())];
    match &change.effect {
        Effect::Put { clustering, ttl, cell } => {
            bound.extend([Bound::Int(*ttl), Bound::Bytes(cell)]);
            bound.extend(bind(partition).chain(bind(clustering)));
        }
        Effect::Delete { range } => bound.extend(bind(partition).chain(bind_range(range))),
    }
    bound
}

/// The seconds after which Cassandra may reclaim a row; 0 means never. This time is later than the expiry,
/// since the clock of this process decides when a row becomes invisible.
pub(crate) fn ttl(now: Timestamp, expires_at: Option<Timestamp>) -> i32 {
    let Some(expires_at) = expires_at else { return 0 };
    let remaining = expires_at.since(now) + TTL_MARGIN;
    if remaining > MAX_TTL { 0 } else { i32::try_from(remaining.as_secs() + 1).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_ends_after_the_row_expires_and_never_before() {
        let now = Timestamp::from_micros(1_750_000_000_000_000);
        assert_eq!(ttl(now, None), 0);
        assert_eq!(ttl(now, Some(Timestamp::MAX)), 0);
        assert_eq!(ttl(now, Some(now.saturating_add(MAX_TTL))), 0);
        assert_eq!(ttl(now, Some(now)), 3601);
        assert_eq!(ttl(now, Some(Timestamp::EPOCH)), 3601);
        assert_eq!(ttl(now, Some(now.saturating_add(Duration::from_micros(1_999_999)))), 3602);
    }
}
