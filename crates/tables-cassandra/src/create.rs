//! Making tables, and adding columns to them.

use rashomon_tables::{Error, Result, Schema};

use crate::{
    cell::{self, CELL},
    ddl,
    session::Cluster,
    standing::{self, Left, MAX_LOOKS},
};

/// Makes the table what the schema says. Each step can be made twice, so that a creation that was broken off
/// is gone on with, and so that several may create at once.
pub(crate) async fn create(cluster: &Cluster, schema: &Schema) -> Result<()> {
    check_names(schema)?;
    let mut failed = None;
    for _ in 0..MAX_LOOKS {
        let left = standing::look(cluster, schema).await?;
        if left == Left::Nothing {
            // Where another process made it just now, some nodes may not know it yet.
            return cluster.agree().await;
        }
        if !cluster.may_create() {
            return Err(missing(cluster, schema, &left));
        }
        match work_off(cluster, schema, &left).await {
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // Somebody else may have done the same just now: what stands decides.
            done => failed = done.err(),
        }
    }
    Err(failed.unwrap_or_else(|| standing::changing(schema)))
}

/// What is left to do where nothing may be made, and who does it.
fn missing(cluster: &Cluster, schema: &Schema, left: &Left) -> Error {
    let what = if matches!(left, Left::Grow { .. }) { "lacks columns" } else { "is not there" };
    Error::Unsupported(format!(
        "table {} {what} in keyspace {}: name the keyspace that holds the revisions, or, if it is that one, \
         start `rashomon serve`, which makes what is missing, or let somebody who may run what \
         `rashomon cassandra schema` prints",
        schema.name(),
        cluster.keyspace()
    ))
}

async fn work_off(cluster: &Cluster, schema: &Schema, left: &Left) -> Result<()> {
    let what = format!("table {}", schema.name());
    let keyspace = cluster.keyspace();
    let (Left::Make { fields } | Left::Grow { fields }) = *left else { return Ok(()) };
    if fields == 0 {
        cluster.change(&what, ddl::create_type(keyspace, schema)).await?;
    } else {
        for (name, column_type) in cell::fields(schema).into_iter().skip(fields) {
            cluster.change(&what, ddl::add_field(keyspace, schema, name, column_type)).await?;
        }
    }
    let statement = if matches!(left, Left::Make { .. }) {
        let compaction = cluster.has_unified_compaction().then_some(ddl::COMPACTION);
        ddl::create_table(keyspace, schema, compaction.as_slice())
    } else {
        let comment = ddl::describe(schema, schema.version(), schema.values().len());
        ddl::set_comment(keyspace, schema, &comment)
    };
    cluster.change(&what, statement).await
}

/// A few names are taken.
fn check_names(schema: &Schema) -> Result<()> {
    let mut keys = schema.partition().iter().chain(schema.clustering().iter().map(|(column, _)| column));
    let mut values = schema.values().iter();
    let taken = keys.any(|column| column.name == CELL)
        || values.any(|column| [cell::EXPIRES_AT, cell::WRITTEN_AT].contains(&column.name));
    if taken {
        return Err(Error::Unsupported(format!(
            "table {} has a key column `{CELL}`, or a value column `{}` or `{}`, which the store has itself",
            schema.name(),
            cell::EXPIRES_AT,
            cell::WRITTEN_AT
        )));
    }
    Ok(())
}
