//! Compares a table in the cluster with its schema, and finds the steps that remain to create or to upgrade it.

use std::{future::Future, time::Duration};

use rashomon_tables::{Error, Result, Schema};

use crate::{
    cell::{self, CELL},
    ddl,
    errors::unexpected,
    session::Cluster,
};

/// A table and the user type of its cells, as the cluster describes them. Fields are in the order of the type, and
/// columns are sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExistingTable {
    /// `None` if the table does not exist.
    pub(crate) table: Option<TableDescription>,
    /// The names and types of the user type's fields. Empty if the user type does not exist.
    pub(crate) fields: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableDescription {
    pub(crate) comment: String,
    pub(crate) columns: Vec<ColumnDescription>,
}

/// A row of `system_schema.columns`: kind, position, name, type, clustering order.
type ColumnDescription = (String, i32, String, String, String);

/// The steps that remain until the table matches its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemainingSteps {
    /// The table matches its schema. Its cells may also have fields of a later version.
    None,
    /// The table is missing, and the user type has its first `fields` fields. Add the other fields, then create the
    /// table.
    CreateTable { fields: usize },
    /// The table is of an older version, and the user type has its first `fields` fields. Add the other fields, then
    /// set the comment of the table.
    AddColumns { fields: usize },
}

/// The maximum number of reads of a table that other processes change. Also the maximum number of rounds in which a
/// table is created or gets columns.
pub(crate) const MAX_READS: usize = 5;

/// The pause before the table is read again. After this time, another process is assumed to have completed a
/// half-created table.
const PAUSE: Duration = Duration::from_millis(200);

/// Reads the table, and returns the remaining steps.
pub(crate) async fn read_remaining_steps(cluster: &Cluster, schema: &Schema) -> Result<RemainingSteps> {
    read_until_stable(|| read(cluster, schema), schema).await
}

/// Reads the table, and returns the remaining steps. A table is read in parts, and another process may create it
/// between two parts. So if no steps lead to the schema, the table is read again. If two successive reads return the
/// same, the difference from the schema is an error.
async fn read_until_stable<R>(read: impl Fn() -> R + Send, schema: &Schema) -> Result<RemainingSteps>
where
    R: Future<Output = Result<ExistingTable>> + Send,
{
    let mut existing = read().await?;
    for _ in 0..MAX_READS {
        let error = match remaining_steps(&existing, schema) {
            Ok(steps) => return Ok(steps),
            Err(error) => error,
        };
        tokio::time::sleep(PAUSE).await;
        let again = read().await?;
        if again == existing {
            return Err(error);
        }
        existing = again;
    }
    Err(table_is_changing(schema))
}

/// Returns the error if other processes repeatedly change the table.
pub(crate) fn table_is_changing(schema: &Schema) -> Error {
    Error::unavailable(format!("table {} is being changed by another process: try again", schema.name()))
}

/// Reads the table and the type of its cells from the cluster.
async fn read(cluster: &Cluster, schema: &Schema) -> Result<ExistingTable> {
    const COMMENT: &str =
        "SELECT comment FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    const COLUMNS: &str = "SELECT kind, position, column_name, type, clustering_order \
         FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    const FIELDS: &str = "SELECT field_names, field_types FROM system_schema.types \
         WHERE keyspace_name = ? AND type_name = ?";

    let of = |name: &str| (cluster.keyspace().to_owned(), name.to_owned());
    let type_name = ddl::type_name(schema);
    let (comments, columns, types) = tokio::try_join!(
        cluster.query(COMMENT, of(schema.name())),
        cluster.query(COLUMNS, of(schema.name())),
        cluster.query(FIELDS, of(&type_name)),
    )?;
    let comment = comments.maybe_first_row::<(Option<String>,)>().map_err(unexpected)?;
    let columns = columns.rows::<ColumnDescription>().map_err(unexpected)?;
    let mut columns: Vec<_> = columns.collect::<std::result::Result<_, _>>().map_err(unexpected)?;
    columns.sort();
    let fields = types.maybe_first_row::<(Vec<String>, Vec<String>)>().map_err(unexpected)?;
    let fields = fields.map(|(names, types)| names.into_iter().zip(types).collect());
    Ok(ExistingTable {
        table: comment.map(|(comment,)| TableDescription { comment: comment.unwrap_or_default(), columns }),
        fields: fields.unwrap_or_default(),
    })
}

/// Returns the steps that remain until the table matches the schema, also after an interrupted change. `Unsupported`
/// if no steps lead to the schema; the error names the difference.
fn remaining_steps(existing: &ExistingTable, schema: &Schema) -> Result<RemainingSteps> {
    let differs = |what: String| {
        Err(Error::Unsupported(format!(
            "table {} exists with other columns or settings: {what}",
            schema.name()
        )))
    };
    let wanted = fields(schema);
    let known = existing.fields.len().min(wanted.len());
    if existing.fields[..known] != wanted[..known] {
        return differs(format!(
            "its cells have the fields ({}), but ({}) are expected",
            list(&existing.fields),
            list(&wanted)
        ));
    }
    let Some(table) = &existing.table else { return Ok(RemainingSteps::CreateTable { fields: known }) };
    let grown = table.comment != description(schema);
    if grown && !may_grow(&table.comment, schema) {
        return differs(format!(
            "its comment is `{}`, but `{}` is expected",
            table.comment,
            description(schema)
        ));
    }
    if table.columns != columns(schema) {
        return differs(format!(
            "its columns are {:?}, but {:?} are expected",
            table.columns,
            columns(schema)
        ));
    }
    match (grown, known == wanted.len()) {
        (true, _) => Ok(RemainingSteps::AddColumns { fields: known }),
        (false, true) => Ok(RemainingSteps::None),
        (false, false) => differs(format!("its cells have only the fields ({})", list(&existing.fields))),
    }
}

fn description(schema: &Schema) -> String {
    ddl::describe(schema, schema.version(), schema.values().len())
}

/// Whether the comment describes an older version with fewer value columns.
fn may_grow(comment: &str, schema: &Schema) -> bool {
    let version = comment
        .strip_prefix(&format!("Rashomon: {} version ", schema.name()))
        .and_then(|rest| rest.split(',').next()?.parse::<u32>().ok());
    version.is_some_and(|version| {
        version < schema.version()
            && (0..schema.values().len()).any(|values| ddl::describe(schema, version, values) == comment)
    })
}

fn fields(schema: &Schema) -> Vec<(String, String)> {
    let fields = cell::fields(schema).into_iter();
    fields.map(|(name, column_type)| (name.to_owned(), ddl::type_of(column_type).to_owned())).collect()
}

/// Returns the expected columns of the table, sorted as in [`ExistingTable`].
fn columns(schema: &Schema) -> Vec<ColumnDescription> {
    let column = |kind: &str, position: i32, name: &str, column_type: String, order: &str| {
        (kind.to_owned(), position, name.to_owned(), column_type, order.to_owned())
    };
    let partition = (0..).zip(schema.partition()).map(|(position, it)| {
        column("partition_key", position, it.name, ddl::type_of(it.column_type).to_owned(), "none")
    });
    let clustering = (0..).zip(schema.clustering()).map(|(position, (it, direction))| {
        let order = ddl::order_of(*direction);
        column("clustering", position, it.name, ddl::type_of(it.column_type).to_owned(), order)
    });
    let cell = column("regular", -1, CELL, format!("frozen<{}>", ddl::type_name(schema)), "none");
    let mut columns: Vec<_> = partition.chain(clustering).chain([cell]).collect();
    columns.sort();
    columns
}

fn list(fields: &[(String, String)]) -> String {
    fields.iter().map(|(name, column_type)| format!("{name} {column_type}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use rashomon_tables::{ColumnType, Direction, SchemaBuilder};

    use super::*;

    fn pages() -> SchemaBuilder {
        Schema::builder("pages")
            .partition("page", ColumnType::Text)
            .clustering("rev", ColumnType::Int, Direction::Descending)
            .value("note", ColumnType::Text)
    }

    fn grown() -> Schema {
        pages().value("size", ColumnType::Int).version(3).build()
    }

    fn existing(schema: &Schema) -> ExistingTable {
        let table = TableDescription { comment: description(schema), columns: columns(schema) };
        ExistingTable { table: Some(table), fields: fields(schema) }
    }

    #[test]
    fn existing_table_is_unchanged_and_missing_table_is_created() {
        let schema = pages().build();
        assert_eq!(remaining_steps(&existing(&schema), &schema).expect("the same"), RemainingSteps::None);
        let nothing = ExistingTable { table: None, fields: Vec::new() };
        assert_eq!(
            remaining_steps(&nothing, &schema).expect("new"),
            RemainingSteps::CreateTable { fields: 0 }
        );
        let half = ExistingTable { table: None, ..existing(&schema) };
        assert_eq!(
            remaining_steps(&half, &schema).expect("half made"),
            RemainingSteps::CreateTable { fields: 2 }
        );
    }

    #[test]
    fn columns_are_added_and_interrupted_change_is_continued() {
        let old = existing(&pages().build());
        assert_eq!(
            remaining_steps(&old, &grown()).expect("a column more"),
            RemainingSteps::AddColumns { fields: 2 }
        );
        let broken_off = ExistingTable { fields: fields(&grown()), ..old };
        assert_eq!(
            remaining_steps(&broken_off, &grown()).expect("a column more"),
            RemainingSteps::AddColumns { fields: 3 }
        );
        // While only the fields were added, a process with the old schema can still open the table. It cannot
        // after the comment was set.
        assert_eq!(remaining_steps(&broken_off, &pages().build()).expect("as it was"), RemainingSteps::None);
        assert!(remaining_steps(&existing(&grown()), &pages().build()).is_err());
    }

    #[test]
    fn manual_changes_are_refused() {
        let schema = pages().build();
        let mut other = existing(&schema);
        other.fields[1].1 = "blob".to_owned();
        let Err(Error::Unsupported(message)) = remaining_steps(&other, &schema) else { panic!("taken") };
        assert!(message.contains("note blob") && message.contains("note text"), "{message}");
        let mut other = existing(&schema);
        other.fields.pop();
        assert!(remaining_steps(&other, &schema).is_err());
        let mut other = existing(&schema);
        let table = other.table.as_mut().expect("a table");
        table.columns[0].4 = "asc".to_owned();
        assert!(remaining_steps(&other, &schema).is_err());
        let mut other = existing(&schema);
        other.table.as_mut().expect("a table").comment = String::new();
        assert!(remaining_steps(&other, &schema).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn half_created_table_is_read_again() {
        let schema = pages().build();
        let mut half = existing(&schema);
        half.table.as_mut().expect("a table").columns.clear();
        let reads = std::sync::atomic::AtomicUsize::new(0);
        let read = |whole_from: usize| {
            let number = reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Ok(if number < whole_from { half.clone() } else { existing(&schema) }))
        };
        assert_eq!(
            read_until_stable(|| read(1), &schema).await.expect("made meanwhile"),
            RemainingSteps::None
        );
        reads.store(0, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(read_until_stable(|| read(2), &schema).await, Err(Error::Unsupported(_))));
    }
}
