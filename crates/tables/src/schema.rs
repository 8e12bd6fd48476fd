//! Schemas of tables. Columns have names and types, so that rows are readable in the shell of their store.

use std::{fmt, time::Duration};

use rashomon_clock::Timestamp;

use crate::{Error, Key, Result, Value};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// UTF-8.
    Text,
    /// A signed number of 64 bits.
    Int,
    /// Microseconds since the epoch.
    Timestamp,
    /// A UUID of version 1, sorted by its time first.
    TimeUuid,
    /// Bytes.
    Blob,
}

/// The order of a clustering column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// A named and typed column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Column {
    /// The name: `[a-z][a-z0-9_]*`.
    pub name: &'static str,
    /// The type.
    pub column_type: ColumnType,
}

/// The definition of a table. It is made once, by [`Schema::builder`], and does not change.
#[derive(Clone, PartialEq, Eq)]
pub struct Schema {
    name: &'static str,
    version: u32,
    partition: Vec<Column>,
    clustering: Vec<(Column, Direction)>,
    values: Vec<Column>,
    default_ttl: Option<Duration>,
    swap_only: bool,
    checks_itself: bool,
}

impl Schema {
    /// Starts a schema of version 1.
    ///
    /// Names of tables and columns are `[a-z][a-z0-9_]*`.
    #[must_use]
    pub const fn builder(name: &'static str) -> SchemaBuilder {
        SchemaBuilder(Self {
            name,
            version: 1,
            partition: Vec::new(),
            clustering: Vec::new(),
            values: Vec::new(),
            default_ttl: None,
            swap_only: false,
            checks_itself: false,
        })
    }

    /// The table's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The version, which rises with every change of the schema.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The columns whose values name a partition. There is at least one.
    #[must_use]
    pub fn partition(&self) -> &[Column] {
        &self.partition
    }

    /// The columns by which the rows of a partition are sorted. Without such columns, a partition has one row.
    #[must_use]
    pub fn clustering(&self) -> &[(Column, Direction)] {
        &self.clustering
    }

    /// The columns of the stored values.
    #[must_use]
    pub fn values(&self) -> &[Column] {
        &self.values
    }

    /// How long after its write time a row expires if it is put without an expiry time. `None` if it does not expire.
    #[must_use]
    pub const fn default_ttl(&self) -> Option<Duration> {
        self.default_ttl
    }

    /// Whether rows are written only by `swap`.
    #[must_use]
    pub const fn swap_only(&self) -> bool {
        self.swap_only
    }

    /// Whether the values contain checksums that the reader verifies. A store then returns damaged values, too, if
    /// it can still separate them, so that the reader can use the undamaged parts.
    #[must_use]
    pub const fn checks_itself(&self) -> bool {
        self.checks_itself
    }

    /// Checks the values of a partition. `Invalid` unless each partition column has a value of its type.
    pub fn check_partition(&self, partition: &[Value]) -> Result<()> {
        self.check("partition", self.partition.iter(), partition, true)
    }

    /// Checks the first values of a partition. `Invalid` if a value has another type than its column, or has no column.
    pub fn check_partition_prefix(&self, prefix: &[Value]) -> Result<()> {
        self.check("partition", self.partition.iter(), prefix, false)
    }

    /// Checks a key. `Invalid` unless each partition column and each clustering column has a value of its type.
    pub fn check_key(&self, key: &Key) -> Result<()> {
        self.check_partition(&key.partition)?;
        self.check_clustering(&key.clustering)
    }

    /// Checks clustering values. `Invalid` unless each clustering column has a value of its type.
    pub fn check_clustering(&self, clustering: &[Value]) -> Result<()> {
        self.check("clustering", self.clustering.iter().map(|(column, _)| column), clustering, true)
    }

    /// Checks the first clustering values. `Invalid` if a value has another type than its column, or has no column.
    pub fn check_clustering_prefix(&self, prefix: &[Value]) -> Result<()> {
        self.check("clustering", self.clustering.iter().map(|(column, _)| column), prefix, false)
    }

    /// Checks the values of a row. `Invalid` unless each value column has a value of its type, or none.
    pub fn check_values(&self, values: &[Option<Value>]) -> Result<()> {
        let fits = values.len() == self.values.len()
            && values.iter().zip(&self.values).all(|(value, column)| {
                value.as_ref().is_none_or(|value| value.column_type() == column.column_type)
            });
        if fits { Ok(()) } else { Err(self.mismatch("value", self.values.iter())) }
    }

    /// Returns the expiry time of a row: `expires_at`, or else the time by the default time to live. `None`: never.
    #[must_use]
    pub fn expiry(&self, written_at: Timestamp, expires_at: Option<Timestamp>) -> Option<Timestamp> {
        expires_at.or_else(|| self.default_ttl.map(|ttl| written_at.saturating_add(ttl)))
    }

    fn check<'a>(
        &self,
        kind: &str,
        columns: impl ExactSizeIterator<Item = &'a Column> + Clone,
        given: &[Value],
        whole: bool,
    ) -> Result<()> {
        let count = if whole { given.len() == columns.len() } else { given.len() <= columns.len() };
        if count
            && given
                .iter()
                .zip(columns.clone())
                .all(|(value, column)| value.column_type() == column.column_type)
        {
            Ok(())
        } else {
            Err(self.mismatch(kind, columns))
        }
    }

    fn mismatch<'a>(&self, kind: &str, columns: impl Iterator<Item = &'a Column>) -> Error {
        let columns: Vec<_> =
            columns.map(|column| format!("{} {:?}", column.name, column.column_type)).collect();
        Error::Invalid(format!("the {kind} columns of table {} are ({})", self.name, columns.join(", ")))
    }
}

/// Writes one line, since the debug output of every mutation contains a schema.
impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |column: &Column| format!("{} {:?}", column.name, column.column_type);
        let columns = |columns: &[Column]| columns.iter().map(column).collect::<Vec<_>>().join(", ");
        let clustering: Vec<_> = (self.clustering.iter())
            .map(|(sorted, direction)| format!("{} {direction:?}", column(sorted)))
            .collect();
        write!(f, "{} v{}", self.name, self.version)?;
        write!(f, " ({}) ({})", columns(&self.partition), clustering.join(", "))?;
        write!(f, " ({})", columns(&self.values))?;
        if let Some(ttl) = self.default_ttl {
            write!(f, " for {ttl:?}")?;
        }
        if self.swap_only { f.write_str(" by swap") } else { Ok(()) }
    }
}

/// Builds a [`Schema`].
#[derive(Debug, Clone)]
pub struct SchemaBuilder(Schema);

impl SchemaBuilder {
    /// The names of the columns that stores add to each row. No other column may have one of these names.
    pub const OWN_NAMES: &[&str] = &["expires_at", "written_at"];

    /// Sets a version other than 1.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self {
        self.0.version = version;
        self
    }

    /// Adds a column to the partition key.
    #[must_use]
    pub fn partition(mut self, name: &'static str, column_type: ColumnType) -> Self {
        self.0.partition.push(Column { name, column_type });
        self
    }

    /// Adds a clustering column.
    #[must_use]
    pub fn clustering(mut self, name: &'static str, column_type: ColumnType, direction: Direction) -> Self {
        self.0.clustering.push((Column { name, column_type }, direction));
        self
    }

    /// Adds a value column.
    #[must_use]
    pub fn value(mut self, name: &'static str, column_type: ColumnType) -> Self {
        self.0.values.push(Column { name, column_type });
        self
    }

    /// Sets the default time to live: rows that are put without an expiry time expire this long after their write
    /// time.
    #[must_use]
    pub const fn default_ttl(mut self, ttl: Duration) -> Self {
        self.0.default_ttl = Some(ttl);
        self
    }

    /// Makes the table swap-only: it is written only by `swap`.
    #[must_use]
    pub const fn swap_only(mut self) -> Self {
        self.0.swap_only = true;
        self
    }

    /// Declares that the reader verifies the values by their own checksums, see [`Schema::checks_itself`].
    #[must_use]
    pub const fn checks_itself(mut self) -> Self {
        self.0.checks_itself = true;
        self
    }

    /// Returns the schema.
    ///
    /// # Panics
    ///
    /// If there is no partition column, if two columns have the same name, or if a column has one of
    /// [`Self::OWN_NAMES`]. Schemas are constants of the program, so such an error is a bug.
    #[must_use]
    pub fn build(self) -> Schema {
        let schema = self.0;
        assert!(!schema.partition.is_empty(), "table {} has no partition column", schema.name);
        let mut names: Vec<_> = (schema.partition.iter())
            .chain(schema.clustering.iter().map(|(column, _)| column))
            .chain(&schema.values)
            .map(|column| column.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "table {} has two columns of one name", schema.name);
        for own in Self::OWN_NAMES {
            assert!(!names.contains(own), "table {} has a column {own}, a name that stores use", schema.name);
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a column expires_at, a name that stores use")]
    fn no_column_has_a_name_that_stores_use() {
        let schema = Schema::builder("t").partition("a", ColumnType::Text);
        let _ = schema.value("expires_at", ColumnType::Timestamp).build();
    }
}
