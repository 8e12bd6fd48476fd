//! Creates tables, and adds columns to tables. Only a command of the operator adds columns, since a process of an
//! earlier version refuses the table from then on.

use rashomon_tables::{Error, Result, Schema};

use crate::{
    cell::{self, CELL},
    ddl,
    existing_table::{self, MAX_READS, RemainingSteps},
    session::Cluster,
};

/// Creates the table if it is missing. `Unsupported` if it exists with fewer or other columns, or if it is missing and
/// may not be created. Each step can be repeated: an interrupted creation is continued, and several processes may
/// create the table at once.
pub(crate) async fn create(cluster: &Cluster, schema: &Schema) -> Result<()> {
    check_names(schema)?;
    run_until_done(cluster, schema, |steps| match steps {
        RemainingSteps::AddColumns { .. } => Err(Error::Unsupported(format!(
            "table {} lacks columns in keyspace {}: run `rashomon upgrade --store {}`, which adds them",
            schema.name(),
            cluster.keyspace(),
            cluster.url()
        ))),
        _ if !cluster.may_create() => Err(missing_table(cluster, schema)),
        _ => Ok(true),
    })
    .await
    .map(drop)
}

/// Adds the columns that the table lacks, and returns whether columns were missing. Does not create a missing table.
/// Each step can be repeated, and several processes may add the columns at once. Processes that have the table open
/// can continue to use it.
pub(crate) async fn upgrade(cluster: &Cluster, schema: &Schema) -> Result<bool> {
    check_names(schema)?;
    run_until_done(cluster, schema, |steps| Ok(matches!(steps, RemainingSteps::AddColumns { .. }))).await
}

/// Runs the remaining steps until none remains, or until `permits` refuses them. Returns whether steps were run.
async fn run_until_done(
    cluster: &Cluster,
    schema: &Schema,
    permits: impl Fn(&RemainingSteps) -> Result<bool>,
) -> Result<bool> {
    let (mut failed, mut has_run) = (None, false);
    for _ in 0..MAX_READS {
        let steps = existing_table::read_remaining_steps(cluster, schema).await?;
        if steps == RemainingSteps::None || !permits(&steps)? {
            // Another process may have changed the table just now, so that some nodes do not know the change yet.
            return cluster.wait_for_agreement().await.map(|()| has_run);
        }
        has_run = true;
        match run_steps(cluster, schema, &steps).await {
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // Another process may have done the same step, so the next round reads the table again.
            done => failed = done.err(),
        }
    }
    Err(failed.unwrap_or_else(|| existing_table::table_is_changing(schema)))
}

/// Returns the error for a missing table that the store may not create. The error says who can create the table.
fn missing_table(cluster: &Cluster, schema: &Schema) -> Error {
    let (table, keyspace) = (schema.name(), cluster.keyspace());
    Error::Unsupported(format!(
        "table {table} does not exist in keyspace {keyspace}: name the keyspace that holds the revisions, or, if \
         this is the right one, start `rashomon serve`, which creates missing tables, or let an administrator run \
         the statements that `rashomon cassandra schema` prints"
    ))
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

/// Checks the names of the columns. `Unsupported` if a column has a name that the store itself uses.
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
