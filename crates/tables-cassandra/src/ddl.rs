//! The tables as CQL: the statements that the store executes, and a script for administrators.

use std::fmt::Write;

use rashomon_tables::{ColumnType, Direction, Schema};

use crate::{
    Options, Replication,
    cell::{self, CELL},
    names::quoted,
};

/// The compaction option of new tables: leveled compaction with a fan factor of ten. With it, a row is in few
/// SSTables, even if its partition is often written.
pub(crate) const COMPACTION: &str =
    "compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L10'}";

/// Returns the schemas as a CQL script with comments. It is for review, and for administrators who create the tables
/// for a service that may not create them. `cqlsh` can execute the script, and executing it again changes nothing.
#[must_use]
pub fn ddl(schemas: &[&Schema], options: &Options) -> String {
    let keyspace = &options.keyspace;
    let mut text = format!(
        "-- The tables of Rashomon in the keyspace {keyspace}.\n\
         --\n\
         -- The value columns of a row are one frozen value, `{CELL}`, so that a row never mixes the values of\n\
         -- two writers. `{EXPIRES_AT}` is the time from which the row is invisible. Times are microseconds\n\
         -- since 1970 in a bigint, since a CQL timestamp has milliseconds. The service reads the comments of\n\
         -- the tables, and refuses a table with another comment.\n\n\
         -- An existing keyspace is left as it is.\n{};\n",
        create_keyspace(options),
        EXPIRES_AT = cell::EXPIRES_AT,
    );
    for schema in schemas {
        let comment = schema_comment(schema);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{comment}{};\n{};\n",
            create_type(keyspace, schema),
            create_table(keyspace, schema, &[])
        );
    }
    text.push_str(
        "\n-- Only for Cassandra 5.0 and later; leave this out on ScyllaDB and Cassandra 4. Unified compaction in\n\
         -- levels keeps a partition that is written again and again in few SSTables, so that reads stay short.\n",
    );
    for schema in schemas {
        let _ = writeln!(text, "ALTER TABLE {} WITH {COMPACTION};", qualified(keyspace, schema.name()));
    }
    text
}

/// Returns the comment lines of the script above the statements of a schema.
fn schema_comment(schema: &Schema) -> String {
    let mut comment = format!("-- {}\n", describe(schema, schema.version(), schema.values().len()));
    if schema.swap_only() {
        comment.push_str(
            "-- Written only by lightweight transactions. Cassandra chooses their write times, so the field\n\
             -- written_at has the time of the swap. Never write to this table in another way.\n",
        );
    }
    comment
}

/// Returns the name of a table or type, with its keyspace.
pub(crate) fn qualified(keyspace: &str, name: &str) -> String {
    format!("{}.{}", quoted(keyspace), quoted(name))
}

/// Returns the name of the user type of the table's cells.
pub(crate) fn type_name(schema: &Schema) -> String {
    format!("{}_cell", schema.name())
}

pub(crate) const fn type_of(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Int | ColumnType::Timestamp => "bigint",
        ColumnType::TimeUuid => "timeuuid",
        ColumnType::Blob => "blob",
    }
}

pub(crate) fn create_keyspace(options: &Options) -> String {
    let replicas = match &options.replication {
        Replication::Simple(copies) => {
            format!("'class': 'SimpleStrategy', 'replication_factor': {copies}")
        }
        Replication::ByDatacenter(copies) => copies
            .iter()
            .fold("'class': 'NetworkTopologyStrategy'".to_owned(), |text, (datacenter, copies)| {
                format!("{text}, '{}': {copies}", datacenter.replace('\'', "''"))
            }),
    };
    let keyspace = quoted(&options.keyspace);
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{replicas}}}")
}

pub(crate) fn create_type(keyspace: &str, schema: &Schema) -> String {
    let fields: Vec<_> = cell::fields(schema)
        .into_iter()
        .map(|(name, column_type)| format!("    {} {}", quoted(name), type_of(column_type)))
        .collect();
    format!(
        "CREATE TYPE IF NOT EXISTS {} (\n{}\n)",
        qualified(keyspace, &type_name(schema)),
        fields.join(",\n")
    )
}

/// Returns the statement that adds one field to the user type. Each field needs its own statement, since some
/// servers accept only one field in a statement.
pub(crate) fn add_field(keyspace: &str, schema: &Schema, field: &str, column_type: ColumnType) -> String {
    format!(
        "ALTER TYPE {} ADD {} {}",
        qualified(keyspace, &type_name(schema)),
        quoted(field),
        type_of(column_type)
    )
}

pub(crate) fn create_table(keyspace: &str, schema: &Schema, options: &[&str]) -> String {
    let mut columns = String::new();
    for column in schema.partition().iter().chain(schema.clustering().iter().map(|(column, _)| column)) {
        let _ = writeln!(columns, "    {} {},", quoted(column.name), type_of(column.column_type));
    }
    let partition = names(schema.partition().iter().map(|column| column.name));
    let clustering: String =
        schema.clustering().iter().map(|(column, _)| format!(", {}", quoted(column.name))).collect();
    let order: Vec<_> = (schema.clustering().iter())
        .map(|(column, direction)| format!("{} {}", quoted(column.name), order_of(*direction)))
        .collect();
    let order = (!order.is_empty()).then(|| format!("CLUSTERING ORDER BY ({})", order.join(", ")));
    let comment = comment_option(&describe(schema, schema.version(), schema.values().len()));
    let options: Vec<_> =
        order.into_iter().chain([comment]).chain(options.iter().map(|&option| option.to_owned())).collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {} (\n{columns}    {CELL} frozen<{}>,\n    \
         PRIMARY KEY (({partition}){clustering})\n) WITH {}",
        qualified(keyspace, schema.name()),
        quoted(&type_name(schema)),
        options.join("\n    AND ")
    )
}

pub(crate) fn set_comment(keyspace: &str, schema: &Schema, comment: &str) -> String {
    format!("ALTER TABLE {} WITH {}", qualified(keyspace, schema.name()), comment_option(comment))
}

fn comment_option(comment: &str) -> String {
    format!("comment = '{}'", comment.replace('\'', "''"))
}

/// Describes a version of the schema in one line, with only the first `values` value columns. This line is the
/// comment of the table in the cluster, and identifies the table. So the line of an existing schema must never
/// change.
pub(crate) fn describe(schema: &Schema, version: u32, values: usize) -> String {
    let column = |name: &str, column_type: ColumnType| format!("{name} {}", kind_of(column_type));
    let partition = schema.partition().iter().map(|it| column(it.name, it.column_type));
    let clustering = (schema.clustering().iter())
        .map(|(it, direction)| format!("{} {}", column(it.name, it.column_type), order_of(*direction)));
    let values = schema.values().iter().take(values).map(|it| column(it.name, it.column_type));
    let list = |columns: Vec<String>| columns.join(", ");
    let mut line = format!(
        "Rashomon: {} version {version}, partition ({}), clustering ({}), values ({})",
        schema.name(),
        list(partition.collect()),
        list(clustering.collect()),
        list(values.collect()),
    );
    if let Some(ttl) = schema.default_ttl() {
        let _ = write!(line, ", expires after {} us", ttl.as_micros());
    }
    if schema.swap_only() {
        line.push_str(", swapped");
    }
    line
}

/// Returns the name of a column type in descriptions. CQL types are not specific enough, since both `Int` and
/// `Timestamp` are `bigint`.
const fn kind_of(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Int => "int",
        ColumnType::Timestamp => "time",
        ColumnType::TimeUuid => "timeuuid",
        ColumnType::Blob => "blob",
    }
}

pub(crate) const fn order_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "asc",
        Direction::Descending => "desc",
    }
}

/// Returns a list of names in CQL.
pub(crate) fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.map(quoted).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static INDEX: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("index").partition("title", ColumnType::Text).value("number", ColumnType::Int).build()
    });

    #[test]
    fn keyspace_that_is_a_word_of_cql_is_quoted() {
        let options = Options { keyspace: "table".to_owned(), ..Options::default() };
        let script = ddl(&[&INDEX], &options);
        for name in ["KEYSPACE IF NOT EXISTS \"table\" ", " \"table\".index_cell", " \"table\".\"index\""] {
            assert!(script.contains(name), "{name}: {script}");
        }
    }
}
