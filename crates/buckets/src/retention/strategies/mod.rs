//! The three strategies of the notes: where bodies lie, which copies a write makes, and when they go.
//!
//! The indexes, the titles and the queue of what is due are the same for all of them.

mod copies;
mod current;
mod update;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    copies::copy_key,
    current::{CurrentRow, is_of, whose},
    update::After,
};

/// How superseded values are kept for their time, and go after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// "Retention policies using application-enforced TTLs": current and recent values lie in one table, from
    /// which they are deleted by the times at which they were superseded.
    #[default]
    AppTtl,
    /// "Two-table": what is superseded is copied into a table whose rows expire, and deleted from the current
    /// one.
    TwoTable,
    /// "Table-per-query": a table for the latest, and two whose rows expire for what is asked for by revision
    /// and by tid.
    TablePerQuery(Current, Fill),
}

/// What the table of the latest looks like in table-per-query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Current {
    /// Option A: one row a property, in which the highest (revision, tid) stays, by compare-and-set.
    #[default]
    #[serde(rename = "A")]
    OneRow,
    /// Option B: a row a revision, the lower ones deleted in the batch that writes a higher one.
    #[serde(rename = "B")]
    WideRow,
}

/// How the two tables that expire are filled in table-per-query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// A write copies what it supersedes, and what it brings.
    #[default]
    CopyOnUpdate,
    /// A read copies what it reads, before it is answered.
    CopyOnRead,
    /// A write puts what it brings into all tables.
    WriteThrough,
}

impl Strategy {
    /// Whether superseded values lie in tables whose rows expire by themselves.
    pub(crate) fn expires(self) -> bool {
        self != Self::AppTtl
    }

    /// Whether a write copies what it supersedes.
    pub(super) fn copies_superseded(self) -> bool {
        matches!(self, Self::TwoTable | Self::TablePerQuery(_, Fill::CopyOnUpdate))
    }

    /// Whether a write copies what it brings, so that of two writes at once none loses the other's.
    pub(super) fn copies_new(self) -> bool {
        matches!(self, Self::TwoTable | Self::TablePerQuery(_, Fill::CopyOnUpdate | Fill::WriteThrough))
    }

    /// Whether what is read is copied, even the latest.
    pub(crate) fn copies_what_is_read(self) -> bool {
        matches!(self, Self::TablePerQuery(_, Fill::CopyOnRead))
    }

    /// Whether a superseded value that is found among the current ones, where it may be deleted any moment, is
    /// copied before it is given. In two-table it is not, which is its corner case.
    pub(crate) fn keeps_what_it_finds(self) -> bool {
        self != Self::TwoTable
    }

    /// Whether a write deletes, among what it supersedes, what nobody has copied: then nothing stays for a
    /// grace but what was read, or came a short time ago.
    pub(crate) fn deletes_what_it_has_not_copied(self) -> bool {
        matches!(self, Self::TablePerQuery(_, Fill::CopyOnRead | Fill::WriteThrough))
    }

    /// Whether what is asked for by tid is looked for in its own table first.
    pub(crate) fn is_per_query(self) -> bool {
        matches!(self, Self::TablePerQuery(..))
    }

    /// Whether the latest lies in one row a property.
    pub(crate) fn is_one_row(self) -> bool {
        matches!(self, Self::TablePerQuery(Current::OneRow, _))
    }
}
