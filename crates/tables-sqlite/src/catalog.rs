//! The tables of the store: their definitions in the file, and the tables that this process has created.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use rashomon_tables::{ColumnType, Direction, Error, Result, Schema};

use crate::envelope;

/// A table that this process has created, with the two numbers that its keys contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) schema: &'static Schema,
    /// The number of the shape. The shape is the types of the partition columns. Tables of one shape share
    /// this number, so that the rows of one partition in all these tables are adjacent.
    pub(crate) shape: u16,
    /// The number of the table.
    pub(crate) number: u16,
    /// The seed of the checksums of the rows.
    pub(crate) seed: u64,
}

impl Table {
    pub(crate) fn new(schema: &'static Schema, shape: u16, number: u16) -> Self {
        Self { schema, shape, number, seed: envelope::seed(schema.name()) }
    }

    pub(crate) fn value_types(&self) -> impl ExactSizeIterator<Item = ColumnType> {
        self.schema.values().iter().map(|column| column.column_type)
    }
}

/// The tables that this process has created since it opened the store.
#[derive(Debug, Default)]
pub(crate) struct Catalog(RwLock<HashMap<&'static str, Table>>);

impl Catalog {
    /// Returns the table of this schema, or `Invalid` unless it was created with this schema.
    pub(crate) fn get(&self, schema: &'static Schema) -> Result<Table> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let table = tables
            .get(schema.name())
            .copied()
            .ok_or_else(|| Error::Invalid(format!("table {} has not been created", schema.name())))?;
        if std::ptr::eq(table.schema, schema) || table.schema == schema {
            Ok(table)
        } else {
            Err(Error::Invalid(format!("table {} was created with another schema", schema.name())))
        }
    }

    pub(crate) fn insert(&self, table: Table) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(table.schema.name(), table);
    }
}

/// The stored form of a schema. With it, programs can read tables that they do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) swap_only: bool,
    /// The default time to live in microseconds.
    pub(crate) default_ttl: Option<i64>,
    pub(crate) partition: Vec<DefinedColumn>,
    pub(crate) clustering: Vec<DefinedColumn>,
    pub(crate) values: Vec<DefinedColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefinedColumn {
    pub(crate) name: String,
    pub(crate) column_type: ColumnType,
    pub(crate) direction: Direction,
}

impl Definition {
    pub(crate) fn of(schema: &Schema) -> Self {
        let plain = |columns: &[rashomon_tables::Column]| {
            columns.iter().map(|column| DefinedColumn::new(column, Direction::Ascending)).collect()
        };
        let clustering = schema.clustering().iter();
        Self {
            name: schema.name().to_owned(),
            version: schema.version(),
            swap_only: schema.swap_only(),
            default_ttl: schema.default_ttl().map(|ttl| i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX)),
            partition: plain(schema.partition()),
            clustering: clustering
                .map(|(column, direction)| DefinedColumn::new(column, *direction))
                .collect(),
            values: plain(schema.values()),
        }
    }

    /// Whether `next` is of a higher version, adds value columns at the end, and differs in nothing else.
    pub(crate) fn can_grow_into(&self, next: &Self) -> bool {
        next.version > self.version
            && next.values.len() > self.values.len()
            && next.values.starts_with(&self.values)
            && Self { version: self.version, values: self.values.clone(), ..next.clone() } == *self
    }

    /// The types of the partition columns.
    pub(crate) fn shape(&self) -> impl Iterator<Item = ColumnType> + '_ {
        self.partition.iter().map(|column| column.column_type)
    }
}

impl DefinedColumn {
    fn new(column: &rashomon_tables::Column, direction: Direction) -> Self {
        Self { name: column.name.to_owned(), column_type: column.column_type, direction }
    }
}
