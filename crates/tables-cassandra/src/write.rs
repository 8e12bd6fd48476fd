//! Writes batches.
//!
//! A single statement is executed alone. Several statements are executed as a logged batch on one partition of one
//! keyspace. Cassandra applies both as one mutation: each replica applies all of it or nothing, without the batch
//! log. Every statement is idempotent. No column is ever set to null, since this would write a tombstone.

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
    wire::BoundValue,
};

/// How long a row is kept after its expiry at least, since clocks differ.
const TTL_MARGIN: Duration = Duration::from_secs(60 * 60);
/// The maximum TTL. A row that expires later gets no TTL, and Cassandra never removes it by itself. Cassandra accepts
/// at most 20 years, and its older formats have no time after the year 2038.
const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A mutation, with its prepared statement.
struct Change<'a> {
    statement: PreparedStatement,
    written_at: Timestamp,
    effect: Effect<'a>,
}

enum Effect<'a> {
    Put { clustering: &'a [Value], ttl: i32, cell: Vec<u8> },
    Delete { range: Cow<'a, ClusteringRange> },
}

/// Applies a batch. The caller must have checked it.
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

fn bindings<'a>(partition: &'a [Value], change: &'a Change<'_>) -> Vec<BoundValue<'a>> {
    let mut bound = vec![BoundValue::Long(change.written_at.as_micros())];
    match &change.effect {
        Effect::Put { clustering, ttl, cell } => {
            bound.extend([BoundValue::Int(*ttl), BoundValue::Bytes(cell)]);
            bound.extend(bind(partition).chain(bind(clustering)));
        }
        Effect::Delete { range } => bound.extend(bind(partition).chain(bind_range(range))),
    }
    bound
}

/// Returns the number of seconds after which Cassandra may remove a row; 0 means never. This time is later than the
/// expiry of the row, since the clock of this process decides when the row becomes invisible.
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
