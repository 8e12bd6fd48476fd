//! Creates tables, and adds columns to them.

use rashomon_tables::{Error, Result, Schema};

use crate::{
    cell::{self, CELL},
    ddl,
    existing_table::{self, MAX_READS, RemainingSteps},
    session::Cluster,
};

/// Creates or changes the table until it matches the schema. Each step can be repeated: an interrupted
/// creation is continued, and several processes may create the table at once.
pub(crate) async fn create(cluster: &Cluster, schema: &Schema) -> Result<()> {
    check_names(schema)?;
    let mut failed = None;
    for _ in 0..MAX_READS {
        let steps = existing_table::read_remaining_steps(cluster, schema).await?;
        if steps == RemainingSteps::None {
            // If another process created the table just now, some nodes may not know it yet.
            return cluster.agree().await;
        }
        if !cluster.may_create() {
            return Err(missing(cluster, schema, &steps));
        }
        match run_steps(cluster, schema, &steps).await {
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // Another process may have done the same step, so the next round reads the table again.
            done => failed = done.err(),
        }
    }
    Err(failed.unwrap_or_else(|| existing_table::changing(schema)))
}

/// The error if something is missing and the store may not create it. The error says what is missing, and who
/// can create it.
fn missing(cluster: &Cluster, schema: &Schema, steps: &RemainingSteps) -> Error {
    let (table, keyspace) = (schema.name(), cluster.keyspace());
    Error::Unsupported(if matches!(steps, RemainingSteps::AddColumns { .. }) {
        format!(
            "table {table} lacks columns in keyspace {keyspace}: start `rashomon serve` once with the right to \
             alter the tables, so that it adds the columns"
        )
    } else {
        format!(
            "table {table} does not exist in keyspace {keyspace}: name the keyspace that holds the revisions, \
             or, if this is the right one, start `rashomon serve`, which creates missing tables, or let an \
             administrator run the statements that `rashomon cassandra schema` prints"
        )
    })
}

async fn run_steps(cluster: &Cluster, schema: &Schema, steps: &RemainingSteps) -> Result<()> {
    let what = format!("table {}", schema.name());
    let keyspace = cluster.keyspace();
    let (RemainingSteps::CreateTable { fields } | RemainingSteps::AddColumns { fields }) = *steps else {
        return Ok(());
    };
    if fields == 0 {
        cluster.change(&what, ddl::create_type(keyspace, schema)).await?;
    } else {
        for (name, column_type) in cell::fields(schema).into_iter().skip(fields) {
            cluster.change(&what, ddl::add_field(keyspace, schema, name, column_type)).await?;
        }
    }
    let statement = if matches!(steps, RemainingSteps::CreateTable { .. }) {
        let compaction = cluster.has_unified_compaction().then_some(ddl::COMPACTION);
        ddl::create_table(keyspace, schema, compaction.as_slice())
    } else {
        let comment = ddl::describe(schema, schema.version(), schema.values().len());
        ddl::set_comment(keyspace, schema, &comment)
    };
    cluster.change(&what, statement).await
}

/// Refuses column names that the store uses itself.
fn check_names(schema: &Schema) -> Result<()> {
    let mut keys = schema.partition().iter().chain(schema.clustering().iter().map(|(column, _)| column));
    let mut values = schema.values().iter();
    let taken = keys.any(|column| column.name == CELL)
        || values.any(|column| [cell::EXPIRES_AT, cell::WRITTEN_AT].contains(&column.name));
    if taken {
        return Err(Error::Unsupported(format!(
            "table {} has a key column `{CELL}`, or a value column `{}` or `{}`, which are names of columns \
             of the store itself",
            schema.name(),
            cell::EXPIRES_AT,
            cell::WRITTEN_AT
        )));
    }
    Ok(())
}
