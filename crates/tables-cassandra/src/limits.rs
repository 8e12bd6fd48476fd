//! Checks calls against the limits of Cassandra. A call beyond a limit is refused before anything is sent, so it
//! changes nothing.

use std::ops::Bound;

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error, Mutation, Result, Value};

use crate::wire;

/// The maximum length of a partition's key, and also of all clustering columns of a row together. Cassandra stores
/// both lengths in 16 bits.
const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The maximum number of statements in a batch: the protocol has 16 bits for the number.
const MAX_MUTATIONS: usize = u16::MAX as usize;
/// The maximum size of a request. Servers accept 16 MiB (`native_transport_max_frame_size`, and half a segment of
/// the commit log). The remaining MiB is for the framing around the values.
const MAX_REQUEST_BYTES: usize = 15 << 20;
/// The approximate size of a statement in a batch without its values: its identifier, and the lengths of the values.
const STATEMENT_BYTES: usize = 128;

/// Checks a key. `Invalid` unless Cassandra accepts the partition and these clustering values.
pub(crate) fn check_key<'a>(
    partition: &[Value],
    clustering: impl IntoIterator<Item = &'a Value>,
) -> Result<()> {
    let length = wire::partition_key(partition).len();
    if length == 0 {
        return Err(Error::Invalid("the only column of a partition key is empty".to_owned()));
    }
    let clustering: usize = clustering.into_iter().map(Value::size).sum();
    for (what, bytes) in [("a partition key", length), ("clustering columns", clustering)] {
        if bytes > MAX_KEY_BYTES {
            return Err(Error::Invalid(format!(
                "{what} of {bytes} bytes, above the limit of {MAX_KEY_BYTES}"
            )));
        }
    }
    Ok(())
}

/// Checks a batch. `Invalid` unless Cassandra accepts it. The caller must have checked the rules of the table layer.
pub(crate) fn check_batch(batch: &Batch) -> Result<()> {
    if batch.mutations.len() > MAX_MUTATIONS {
        return Err(Error::Invalid(format!(
            "a batch of {} mutations, above the limit of {MAX_MUTATIONS}",
            batch.mutations.len()
        )));
    }
    let mut request = 0;
    for mutation in &batch.mutations {
        let (clustering, written_at): (Vec<&Value>, _) = match mutation {
            Mutation::Put { clustering, written_at, values, .. } => {
                request += values.iter().flatten().map(Value::size).sum::<usize>();
                (clustering.iter().collect(), written_at)
            }
            Mutation::Delete { clustering, written_at, .. } => (clustering.iter().collect(), written_at),
            Mutation::DeleteRange { range, written_before, .. } => {
                // Both bounds are values of the same column, so only the longer bound counts.
                let bounds = [&range.lower, &range.upper].into_iter().filter_map(|bound| match bound {
                    Bound::Included(value) | Bound::Excluded(value) => Some(value),
                    Bound::Unbounded => None,
                });
                let bound = bounds.max_by_key(|value| value.size());
                (range.prefix.iter().chain(bound).collect(), written_before)
            }
        };
        if *written_at == Timestamp::MIN {
            return Err(Error::Invalid("the write time is one that Cassandra reserves".to_owned()));
        }
        request += STATEMENT_BYTES + wire::partition_key(&batch.partition).len();
        request += clustering.iter().map(|value| value.size()).sum::<usize>();
        check_key(&batch.partition, clustering)?;
    }
    if request > MAX_REQUEST_BYTES {
        return Err(Error::Invalid(format!(
            "a batch that takes {request} bytes with its keys, above the limit of {MAX_REQUEST_BYTES}: split it"
        )));
    }
    Ok(())
}
