//! `rashomon cassandra`.

use crate::configuration::{ClusterSettings, RawSettings, Settings, StoreSettings};
use rashomon_pages::schemas;
use rashomon_tables_cassandra::ddl;

use crate::{
    arguments::{CassandraCommand, SchemaArguments},
    errors::CommandError,
    exit::Exit,
    output,
};

/// Runs the command. It never connects to a cluster.
pub(crate) fn run(command: CassandraCommand) -> Result<Exit, CommandError> {
    let CassandraCommand::Schema(arguments) = command;
    let cluster = cluster(arguments)?;
    output::line(ddl(&schemas::all(), &cluster.options()).trim_end())?;
    Ok(Exit::Done)
}

/// The named cluster, or the default one.
fn cluster(arguments: SchemaArguments) -> Result<ClusterSettings, CommandError> {
    let SchemaArguments { store, config, replication } = arguments;
    let cluster = if store.is_none() && config.is_none() {
        ClusterSettings::default()
    } else {
        let raw = RawSettings { store, ..RawSettings::default() };
        match Settings::load_offline(raw, config.as_deref())?.store {
            StoreSettings::Cassandra(cluster) => *cluster,
            other => {
                let message =
                    format!("{other} is not a cluster: name one with --store cassandra://HOST/KEYSPACE");
                return Err(CommandError::Usage(message));
            }
        }
    };
    Ok(match replication {
        Some(replication) => cluster.with_replication(replication),
        None => cluster,
    })
}
