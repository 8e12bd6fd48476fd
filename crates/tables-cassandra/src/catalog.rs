//! The tables that this process has created since it opened the store.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use rashomon_tables::{Error, Result, Schema};

use crate::table::Table;

/// The created tables, by name.
#[derive(Debug, Default)]
pub(crate) struct Catalog(RwLock<HashMap<&'static str, Arc<Table>>>);

impl Catalog {
    /// Returns the table, or `Invalid` unless it was created with this schema.
    pub(crate) fn get(&self, schema: &'static Schema) -> Result<Arc<Table>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let table = tables
            .get(schema.name())
            .ok_or_else(|| Error::Invalid(format!("table {} has not been created", schema.name())))?;
        if std::ptr::eq(table.schema, schema) || table.schema == schema {
            Ok(Arc::clone(table))
        } else {
            Err(Error::Invalid(format!("table {} was created with another schema", schema.name())))
        }
    }

    pub(crate) fn insert(&self, table: Table) {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tables.insert(table.schema.name(), Arc::new(table));
    }
}
