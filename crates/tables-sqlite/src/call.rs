//! Write calls. The task that makes a call checks the call, encodes its rows and computes their checksums before it
//! passes the call to the committer, so that the thread of the committer has little work.

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Key, Mutation, PartitionVersions, Result, Row, Slot, Value};

use crate::{
    catalog::{Catalog, Table},
    envelope::{self, Identity},
    span::{self, Span},
};

/// One change of one row, or of the rows of a span.
#[derive(Debug)]
pub(crate) enum Change {
    Put {
        table: Table,
        key: Vec<u8>,
        written_at: Timestamp,
        expires_at: Option<Timestamp>,
        envelope: Vec<u8>,
    },
    Delete {
        table: Table,
        key: Vec<u8>,
        written_at: Timestamp,
    },
    DeleteSpan {
        table: Table,
        span: Span,
        written_before: Timestamp,
    },
}

/// The batches of a call of [`TableStore::write`](rashomon_tables::TableStore::write), or those of a swap. All changes
/// are in one list, since they form one transaction.
#[derive(Debug, Default)]
pub(crate) struct Write {
    pub(crate) changes: Vec<Change>,
    pub(crate) slots: Vec<Slot>,
    /// The size of the keys and values of all changes.
    pub(crate) bytes: usize,
}

/// A compare-and-set, with the batches that are applied before it in the same transaction. The committer
/// determines the write time of the new row. Therefore the committer also computes the checksum of the row.
#[derive(Debug)]
pub(crate) struct SwapCall {
    pub(crate) first: Write,
    pub(crate) table: Table,
    pub(crate) name: Key,
    pub(crate) key: Vec<u8>,
    pub(crate) expected: Option<Vec<Option<Value>>>,
    pub(crate) new: Option<Row>,
    pub(crate) slot: Slot,
}

impl Write {
    /// Creates the changes of these batches. `Invalid` if [`Batch::check`] refuses a batch, or a table was not created.
    pub(crate) fn new<'a>(
        catalog: &Catalog,
        partition_versions: &PartitionVersions,
        batches: impl Iterator<Item = &'a Batch>,
    ) -> Result<Self> {
        let mut write = Self::default();
        for batch in batches {
            batch.check()?;
            for mutation in &batch.mutations {
                let table = catalog.get(mutation.table())?;
                let change = Change::new(table, &batch.partition, mutation);
                write.bytes += change.bytes();
                write.changes.push(change);
            }
            write.slots.push(partition_versions.slot(&batch.partition));
        }
        Ok(write)
    }
}

impl Change {
    fn new(table: Table, partition: &[Value], mutation: &Mutation) -> Self {
        match mutation {
            Mutation::Put { clustering, values, written_at, expires_at, .. } => {
                let key = span::row_key(table, partition, clustering);
                Self::put(table, key, values, *written_at, *expires_at)
            }
            Mutation::Delete { clustering, written_at, .. } => Self::Delete {
                table,
                key: span::row_key(table, partition, clustering),
                written_at: *written_at,
            },
            Mutation::DeleteRange { range, written_before, .. } => Self::DeleteSpan {
                table,
                span: Span::new(table, &span::table_key(table, partition), range),
                written_before: *written_before,
            },
        }
    }

    /// Creates a put, with the values and the checksum of its row.
    pub(crate) fn put(
        table: Table,
        key: Vec<u8>,
        values: &[Option<Value>],
        written_at: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Self {
        let expires_at = table.schema.expiry(written_at, expires_at);
        let identity = Identity { seed: table.seed, key: &key, written_at, expires_at };
        let envelope = envelope::seal(identity, values);
        Self::Put { table, key, written_at, expires_at, envelope }
    }

    /// The span of the keys whose rows the change affects.
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => Span::of_key(key),
            Self::DeleteSpan { span, .. } => span.clone(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Put { key, envelope, .. } => key.len() + envelope.len(),
            Self::Delete { key, .. } => key.len(),
            Self::DeleteSpan { span, .. } => span.start.len() + span.end.len(),
        }
    }
}

impl SwapCall {
    /// The approximate size of the keys and values of all changes.
    pub(crate) fn bytes(&self) -> usize {
        self.first.bytes + self.key.len() + self.new.as_ref().map_or(0, Row::size)
    }
}
