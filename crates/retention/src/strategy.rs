//! The three strategies of the notes: where bodies are stored, which copies a write makes, and when bodies
//! are deleted.
//!
//! The indexes, the titles and the retention queue are the same for all strategies.

use serde::{Deserialize, Serialize};

/// How superseded values are kept while they are readable, and how they are deleted after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// "Retention policies using application-enforced TTLs": current and recent values are in one table. A cull
    /// deletes superseded values from this table, by the times at which they were superseded.
    #[default]
    AppTtl,
    /// "Two-table": superseded values are copied into a table whose rows expire, and deleted from the table
    /// of current values.
    TwoTable,
    /// "Table-per-query": one table for the latest values, and two tables whose rows expire, for requests by
    /// revision and by tid.
    TablePerQuery(Current, Fill),
}

/// The layout of the table for the latest values in table-per-query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Current {
    /// Option A: one row per property. Compare-and-set keeps the value of the highest (revision, tid) in the
    /// row.
    #[default]
    #[serde(rename = "A")]
    OneRow,
    /// Option B: each value has a row of its own. A write of a new latest render deletes rows of lower ones.
    #[serde(rename = "B")]
    WideRow,
}

/// How the two tables whose rows expire are filled in table-per-query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// A write copies the values that it supersedes, and its own new values.
    #[default]
    CopyOnUpdate,
    /// A read copies the render of the value that it returns, before it returns the value.
    CopyOnRead,
    /// A write puts its new values into all tables.
    WriteThrough,
}

impl Strategy {
    /// Whether superseded values are kept in tables whose rows expire by themselves.
    pub(crate) fn expires(self) -> bool {
        self != Self::AppTtl
    }

    /// Whether a write copies the values that it supersedes.
    pub(crate) fn copies_superseded(self) -> bool {
        matches!(self, Self::TwoTable | Self::TablePerQuery(_, Fill::CopyOnUpdate))
    }

    /// Whether a write copies its own new values. With these copies, neither of two concurrent writes loses its
    /// values.
    pub(crate) fn copies_new(self) -> bool {
        matches!(self, Self::TwoTable | Self::TablePerQuery(_, Fill::CopyOnUpdate | Fill::WriteThrough))
    }

    /// Whether a read of the latest values copies them.
    pub(crate) fn copies_latest_on_read(self) -> bool {
        matches!(self, Self::TablePerQuery(_, Fill::CopyOnRead))
    }

    /// Whether a read of a superseded value in a permanent row copies the value. The row may be deleted at any
    /// moment. Two-table does not copy the value, and so keeps promise R3 (docs/retention.md) only in part.
    pub(crate) fn copies_superseded_on_read(self) -> bool {
        self != Self::TwoTable
    }

    /// Whether a write deletes superseded values even if it has not copied them. Such a value stays readable only
    /// if an earlier read, or the write that stored the value, has copied it.
    pub(crate) fn deletes_uncopied(self) -> bool {
        matches!(self, Self::TablePerQuery(_, Fill::CopyOnRead | Fill::WriteThrough))
    }

    /// Whether requests by tid and requests by revision have tables of their own, which reads search first.
    pub(crate) fn is_per_query(self) -> bool {
        matches!(self, Self::TablePerQuery(..))
    }

    /// Whether the latest value of each property is in one row of `current`.
    pub(crate) fn is_one_row(self) -> bool {
        matches!(self, Self::TablePerQuery(Current::OneRow, _))
    }
}
