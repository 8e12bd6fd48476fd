//! What stands in the cluster of a table, and what is left to do until it is what the schema says.

use std::{future::Future, time::Duration};

use rashomon_tables::{Error, Result, Schema};

use crate::{
    cell::{self, CELL},
    ddl,
    errors::unexpected,
    session::Cluster,
};

/// A table and the type of its cells, as the cluster describes them. Fields and columns are in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// `None` where there is no table.
    pub(crate) table: Option<StandingTable>,
    /// The type's fields, by name and type; none where there is no type.
    pub(crate) fields: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandingTable {
    pub(crate) comment: String,
    pub(crate) columns: Vec<StandingColumn>,
}

/// As in `system_schema.columns`: kind, position, name, type, clustering order.
type StandingColumn = (String, i32, String, String, String);

/// What is left to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// All is as it should be.
    Nothing,
    /// The type lacks its last fields, so many are there; then the table is to be made.
    Make { fields: usize },
    /// The type lacks its last fields, so many are there; then the table's comment is to be set.
    Grow { fields: usize },
}

/// How often what stands is looked at, where others change it at the same time.
pub(crate) const MAX_LOOKS: usize = 5;

/// What somebody is making is there after this, as far as another saw a part of it before.
const PAUSE: Duration = Duration::from_millis(200);

/// What is left to do of what stands in the cluster.
pub(crate) async fn look(cluster: &Cluster, schema: &Schema) -> Result<Left> {
    settled(|| read(cluster, schema), schema).await
}

/// What stands is read in parts, between which somebody else may make it: what differs does so once more.
async fn settled<R>(read: impl Fn() -> R + Send, schema: &Schema) -> Result<Left>
where
    R: Future<Output = Result<Standing>> + Send,
{
    let mut standing = read().await?;
    for _ in 0..MAX_LOOKS {
        let error = match left(&standing, schema) {
            Ok(left) => return Ok(left),
            Err(error) => error,
        };
        tokio::time::sleep(PAUSE).await;
        let again = read().await?;
        if again == standing {
            return Err(error);
        }
        standing = again;
    }
    Err(changing(schema))
}

/// Others go on changing it.
pub(crate) fn changing(schema: &Schema) -> Error {
    Error::unavailable(format!("table {} is being changed by somebody else", schema.name()))
}

/// Reads what stands.
async fn read(cluster: &Cluster, schema: &Schema) -> Result<Standing> {
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
    let columns = columns.rows::<StandingColumn>().map_err(unexpected)?;
    let mut columns: Vec<_> = columns.collect::<std::result::Result<_, _>>().map_err(unexpected)?;
    columns.sort();
    let fields = types.maybe_first_row::<(Vec<String>, Vec<String>)>().map_err(unexpected)?;
    let fields = fields.map(|(names, types)| names.into_iter().zip(types).collect());
    Ok(Standing {
        table: comment.map(|(comment,)| StandingTable { comment: comment.unwrap_or_default(), columns }),
        fields: fields.unwrap_or_default(),
    })
}

/// What is left to do until what stands is the schema; `Unsupported` where nothing can be done, with what
/// differs. A change that was broken off is gone on with.
fn left(standing: &Standing, schema: &Schema) -> Result<Left> {
    let differs = |what: String| {
        Err(Error::Unsupported(format!(
            "table {} exists with other columns or settings: {what}",
            schema.name()
        )))
    };
    let wanted = fields(schema);
    let known = standing.fields.len().min(wanted.len());
    if standing.fields[..known] != wanted[..known] {
        return differs(format!(
            "its cells have ({}), and ({}) is wanted",
            list(&standing.fields),
            list(&wanted)
        ));
    }
    let Some(table) = &standing.table else { return Ok(Left::Make { fields: known }) };
    let grown = table.comment != description(schema);
    if grown && !may_grow(&table.comment, schema) {
        return differs(format!("it is `{}`, and `{}` is wanted", table.comment, description(schema)));
    }
    if table.columns != columns(schema) {
        return differs(format!("its columns are {:?}, and {:?} is wanted", table.columns, columns(schema)));
    }
    match (grown, known == wanted.len()) {
        (true, _) => Ok(Left::Grow { fields: known }),
        (false, true) => Ok(Left::Nothing),
        (false, false) => differs(format!("its cells have only ({})", list(&standing.fields))),
    }
}

fn description(schema: &Schema) -> String {
    ddl::describe(schema, schema.version(), schema.values().len())
}

/// Whether the comment is that of an older version with fewer value columns.
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

/// Sorted, as what stands is.
fn columns(schema: &Schema) -> Vec<StandingColumn> {
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

    fn standing(schema: &Schema) -> Standing {
        let table = StandingTable { comment: description(schema), columns: columns(schema) };
        Standing { table: Some(table), fields: fields(schema) }
    }

    #[test]
    fn a_table_that_stands_is_left_alone_and_one_that_does_not_is_made() {
        let schema = pages().build();
        assert_eq!(left(&standing(&schema), &schema).expect("the same"), Left::Nothing);
        let nothing = Standing { table: None, fields: Vec::new() };
        assert_eq!(left(&nothing, &schema).expect("new"), Left::Make { fields: 0 });
        let half = Standing { table: None, ..standing(&schema) };
        assert_eq!(left(&half, &schema).expect("half made"), Left::Make { fields: 2 });
    }

    #[test]
    fn columns_are_added_and_a_broken_off_change_is_gone_on_with() {
        let old = standing(&pages().build());
        assert_eq!(left(&old, &grown()).expect("a column more"), Left::Grow { fields: 2 });
        let broken_off = Standing { fields: fields(&grown()), ..old };
        assert_eq!(left(&broken_off, &grown()).expect("a column more"), Left::Grow { fields: 3 });
        // A process with the old schema may continue until the change is complete.
        assert_eq!(left(&broken_off, &pages().build()).expect("as it was"), Left::Nothing);
        assert!(left(&standing(&grown()), &pages().build()).is_err());
    }

    #[test]
    fn what_was_changed_by_hand_is_found() {
        let schema = pages().build();
        let mut other = standing(&schema);
        other.fields[1].1 = "blob".to_owned();
        let Err(Error::Unsupported(message)) = left(&other, &schema) else { panic!("taken") };
        assert!(message.contains("note blob") && message.contains("note text"), "{message}");
        let mut other = standing(&schema);
        other.fields.pop();
        assert!(left(&other, &schema).is_err());
        let mut other = standing(&schema);
        let table = other.table.as_mut().expect("a table");
        table.columns[0].4 = "asc".to_owned();
        assert!(left(&other, &schema).is_err());
        let mut other = standing(&schema);
        other.table.as_mut().expect("a table").comment = String::new();
        assert!(left(&other, &schema).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_seen_by_half_while_somebody_makes_it_is_looked_at_again() {
        let schema = pages().build();
        let mut half = standing(&schema);
        half.table.as_mut().expect("a table").columns.clear();
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let read = |whole_from: usize| {
            let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Ok(if look < whole_from { half.clone() } else { standing(&schema) }))
        };
        assert_eq!(settled(|| read(1), &schema).await.expect("made meanwhile"), Left::Nothing);
        looks.store(0, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(settled(|| read(2), &schema).await, Err(Error::Unsupported(_))));
    }
}
