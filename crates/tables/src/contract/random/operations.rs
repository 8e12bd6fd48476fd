//! Generates random operations.

use std::{num::NonZeroUsize, ops::Bound, sync::LazyLock, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::{
    ClusteringRange, Column, ColumnType, Direction, Key, Order, Partition, Scan, Schema, SchemaBuilder,
    Value,
    contract::fixtures::{blob, micros, time_uuid},
};

/// The maximum length of a sequence.
pub(super) const MAX_OPERATIONS: usize = 80;

/// One operation on both stores.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A call with one batch or more. The last batch is `then`.
    Write {
        /// The batches, of different partitions.
        batches: Vec<Changes>,
        /// Whether contradictory changes stay in a batch. They make the batch invalid.
        spoilt: bool,
    },
    /// Reads a row.
    Get {
        /// The table.
        table: &'static Schema,
        /// The key.
        key: Key,
    },
    /// Reads the first rows of a scan, which can be resumed.
    Scan(Reading),
    /// Reads the rest of one of the scans that were begun.
    Resume(usize),
    /// Lists all partitions.
    Partitions {
        /// The table.
        table: &'static Schema,
        /// The limit of a page.
        limit: NonZeroUsize,
    },
    /// Applies batches, and compares and sets a row.
    Swap {
        /// The batches of `first`, of different partitions.
        first: Vec<Changes>,
        /// Whether contradictory changes stay in a batch. They make the batch invalid.
        spoilt: bool,
        /// The key.
        key: Key,
        /// The row that is expected.
        expected: Expected,
        /// The new values, and the microseconds until they expire.
        new: Option<(Vec<Option<Value>>, Option<i64>)>,
    },
    /// Lets time pass.
    Pass(Pass),
}

/// The changes of one batch.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The partition's number.
    pub partition: usize,
    /// The changes. A change that contradicts an earlier change is omitted, unless the call is `spoilt`.
    pub changes: Vec<Change>,
}

/// A mutation whose times are chosen when it is applied; see [`operations`].
#[derive(Debug, Clone)]
#[allow(missing_docs)] // Most fields are those of `Mutation`.
pub enum Change {
    Put {
        table: &'static Schema,
        clustering: Vec<Value>,
        values: Vec<Option<Value>>,
        /// The age of the write time in calls: the put gets a time shortly after the write time of the call this many
        /// calls ago, if this is allowed.
        age: usize,
        /// The time until the expiry in microseconds, counted from the time of the call. `None`: no expiry time.
        expires_in: Option<i64>,
    },
    Delete {
        table: &'static Schema,
        clustering: Vec<Value>,
        /// The write time is the time of the call this many calls ago.
        age: usize,
    },
    DeleteRange {
        table: &'static Schema,
        range: ClusteringRange,
        /// The write time is the time of the call this many calls ago.
        age: usize,
    },
}

/// A scan that is paused after some rows.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The table.
    pub table: &'static Schema,
    /// The scan.
    pub scan: Scan,
    /// How many rows are read before the scan is paused.
    pub wanted: NonZeroUsize,
}

/// The row that a swap expects.
#[derive(Debug, Clone)]
pub enum Expected {
    /// The current row.
    Current,
    /// No row.
    Nothing,
    /// A row with these values.
    Values(Vec<Option<Value>>),
}

/// How time passes.
#[derive(Debug, Clone)]
pub enum Pass {
    /// By this many microseconds.
    By(u64),
    /// Until a row expires, or until a microsecond before that.
    ToExpiry {
        /// The number of one of the coming expiries, modulo their number.
        which: usize,
        /// Whether to stop a microsecond before the expiry.
        before: bool,
    },
}

/// Sequences of operations with few different keys, so that many operations concern the same rows.
///
/// Write times rise from call to call, and some puts and deletes have about the time of an earlier call. A row is
/// never put twice with the same write time. A put gets an earlier time only if this time is after every delete in
/// the partition, and if the row cannot have expired. Otherwise stores could differ, because only some of them
/// remember deleted and expired rows.
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        10 => write(),
        3 => get(),
        4 => reading().prop_map(Operation::Scan),
        3 => any::<usize>().prop_map(Operation::Resume),
        1 => (select(tables().to_vec()), page_limit())
            .prop_map(|(table, limit)| Operation::Partitions { table, limit }),
        4 => swap(),
        3 => pass().prop_map(Operation::Pass),
    ];
    vec(operation, 1..=MAX_OPERATIONS)
}

fn keyed(name: &'static str) -> SchemaBuilder {
    Schema::builder(name).partition("title", ColumnType::Text).partition("number", ColumnType::Int)
}

static REVISIONS: LazyLock<Schema> = LazyLock::new(|| {
    keyed("revisions")
        .clustering("property", ColumnType::Text, Direction::Ascending)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .clustering("tid", ColumnType::TimeUuid, Direction::Descending)
        .value("body", ColumnType::Blob)
        .value("stored", ColumnType::Timestamp)
        .build()
});

static INDEX: LazyLock<Schema> = LazyLock::new(|| {
    keyed("revisions_index")
        .clustering("time", ColumnType::Timestamp, Direction::Descending)
        .clustering("key", ColumnType::Blob, Direction::Ascending)
        .value("note", ColumnType::Text)
        .build()
});

static EXPIRING: LazyLock<Schema> = LazyLock::new(|| {
    keyed("passing")
        .clustering("tid", ColumnType::TimeUuid, Direction::Ascending)
        .value("rev", ColumnType::Int)
        .value("tid_before", ColumnType::TimeUuid)
        .default_ttl(Duration::from_micros(4321))
        .build()
});

static SINGLE: LazyLock<Schema> = LazyLock::new(|| keyed("single").value("rev", ColumnType::Int).build());

pub(super) static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    keyed("heads")
        .clustering("name", ColumnType::Text, Direction::Descending)
        .value("rev", ColumnType::Int)
        .value("note", ColumnType::Text)
        .swap_only()
        .build()
});

pub(super) fn tables() -> [&'static Schema; 5] {
    [&REVISIONS, &INDEX, &EXPIRING, &SINGLE, &HEADS]
}

/// The tables that batches write to.
fn written() -> [&'static Schema; 4] {
    [&REVISIONS, &INDEX, &EXPIRING, &SINGLE]
}

const PARTITIONS: usize = 4;

pub(super) fn partition(number: usize) -> Partition {
    let (title, number) = [("", 0), ("a", 0), ("a", 256), ("a\0", 0)][number];
    vec![title.into(), Value::Int(number)]
}

fn sample_values(column: &Column) -> Vec<Value> {
    match column.column_type {
        ColumnType::Text => ["", "a", "a\0", "ab", "\u{10ffff}"].map(Value::from).into(),
        ColumnType::Int => [i64::MIN, -1, 0, 1, 256, i64::MAX].map(Value::from).into(),
        ColumnType::Timestamp => [i64::MIN, -1, 0, 1_750_000_000_000_000].map(micros).into(),
        ColumnType::TimeUuid => vec![
            time_uuid(0xffff_ffff, [0; 8]),
            time_uuid(1 << 32, [0, 0x80, 0, 0, 0, 0, 0, 0]),
            time_uuid(1 << 32, [0, 0x7f, 0, 0, 0, 0, 0, 0]),
            time_uuid(1 << 48, [0; 8]),
        ],
        ColumnType::Blob => [&b""[..], b"\0", b"\0\xff", b"\x01", b"\xff"].map(blob).into(),
    }
}

fn clustering(table: &'static Schema) -> Vec<impl Strategy<Value = Value>> {
    table.clustering().iter().map(|(column, _)| select(sample_values(column))).collect()
}

fn values(table: &'static Schema) -> Vec<impl Strategy<Value = Option<Value>>> {
    table.values().iter().map(|column| option::weighted(0.8, select(sample_values(column)))).collect()
}

fn range(table: &'static Schema) -> impl Strategy<Value = ClusteringRange> {
    let bound = || prop_oneof![Just(None), any::<bool>().prop_map(Some)];
    let columns = 0..=table.clustering().len();
    (clustering(table), clustering(table), columns, bound(), bound()).prop_map(
        |(mut low, high, columns, lower, upper)| {
            let bounded = |value: Option<&Value>, bound: Option<bool>| match (value, bound) {
                (Some(value), Some(true)) => Bound::Included(value.clone()),
                (Some(value), Some(false)) => Bound::Excluded(value.clone()),
                _ => Bound::Unbounded,
            };
            let (lower, upper) = (bounded(low.get(columns), lower), bounded(high.get(columns), upper));
            low.truncate(columns);
            ClusteringRange { prefix: low, lower, upper }
        },
    )
}

fn page_limit() -> impl Strategy<Value = NonZeroUsize> {
    select(vec![1, 2, 3, 7, 100]).prop_map(|limit| NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN))
}

fn age() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => 1..6_usize]
}

fn expires_in() -> impl Strategy<Value = Option<i64>> {
    option::weighted(0.2, -10..5000_i64)
}

fn change(table: &'static Schema) -> impl Strategy<Value = Change> {
    let put = (clustering(table), values(table), age(), expires_in()).prop_map(
        move |(clustering, values, age, expires_in)| Change::Put {
            table,
            clustering,
            values,
            age,
            expires_in,
        },
    );
    let delete = (clustering(table), age()).prop_map(move |(clustering, age)| Change::Delete {
        table,
        clustering,
        age,
    });
    let delete_range =
        (range(table), age()).prop_map(move |(range, age)| Change::DeleteRange { table, range, age });
    prop_oneof![12 => put, 2 => delete, 1 => delete_range]
}

fn write() -> impl Strategy<Value = Operation> {
    (batches(1), spoilt()).prop_map(|(batches, spoilt)| Operation::Write { batches, spoilt })
}

/// At least this many batches, of different partitions.
fn batches(min: usize) -> impl Strategy<Value = Vec<Changes>> {
    let change = proptest::strategy::Union::new(written().map(|table| change(table).boxed()));
    let changes = vec(vec(change, 0..12), min..=PARTITIONS);
    (changes, 0..PARTITIONS).prop_map(|(changes, offset)| {
        let numbered = changes.into_iter().enumerate();
        numbered
            .map(|(number, changes)| Changes { partition: (number + offset) % PARTITIONS, changes })
            .collect()
    })
}

fn spoilt() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.05)
}

fn key(table: &'static Schema) -> impl Strategy<Value = Key> {
    (0..PARTITIONS, clustering(table))
        .prop_map(|(number, clustering)| Key::new(partition(number), clustering))
}

fn get() -> impl Strategy<Value = Operation> {
    proptest::strategy::Union::new(
        tables().map(|table| key(table).prop_map(move |key| Operation::Get { table, key }).boxed()),
    )
}

fn reading() -> impl Strategy<Value = Reading> {
    let of = |table: &'static Schema| {
        let order = select(vec![Order::Forward, Order::Reverse]);
        let max_bytes = select(vec![1, 60, Scan::DEFAULT_MAX_BYTES]);
        (0..PARTITIONS, range(table), order, page_limit(), max_bytes, page_limit()).prop_map(
            move |(number, range, order, limit, max_bytes, wanted)| {
                let scan = Scan { order, max_bytes, ..Scan::new(partition(number), limit).range(range) };
                Reading { table, scan, wanted }
            },
        )
    };
    proptest::strategy::Union::new(tables().map(|table| of(table).boxed()))
}

fn swap() -> impl Strategy<Value = Operation> {
    let expected = prop_oneof![
        3 => Just(Expected::Current),
        1 => Just(Expected::Nothing),
        1 => values(&HEADS).prop_map(Expected::Values),
    ];
    let new = option::weighted(0.8, (values(&HEADS), expires_in()));
    let first = prop_oneof![Just(Vec::new()), batches(1)];
    (first, spoilt(), key(&HEADS), expected, new)
        .prop_map(|(first, spoilt, key, expected, new)| Operation::Swap { first, spoilt, key, expected, new })
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        1 => (0..3000_u64).prop_map(Pass::By),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, before)| Pass::ToExpiry { which, before }),
    ]
}
