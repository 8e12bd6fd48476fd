//! A cache of prepared statements.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use scylla::statement::prepared::PreparedStatement;

/// The prepared statements, by their texts. The cache never removes statements. Their number for each table is
/// bounded, since their texts differ only in the columns that have bounds, and in the kinds of bounds.
#[derive(Debug, Default)]
pub(crate) struct Statements(RwLock<HashMap<String, PreparedStatement>>);

impl Statements {
    pub(crate) fn get(&self, text: &str) -> Option<PreparedStatement> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(text).cloned()
    }

    pub(crate) fn insert(&self, text: String, statement: PreparedStatement) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(text, statement);
    }
}
