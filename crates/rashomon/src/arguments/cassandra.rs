//! The command line of `rashomon cassandra`.

use std::path::PathBuf;

use crate::configuration::{Replication, StoreUrl};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CassandraCommand {
    /// Print the keyspace and its tables as CQL
    ///
    /// The output is for review, and for administrators who create the tables themselves. `serve` creates
    /// missing tables. If all tables exist, `serve` needs no right to create them. Applying the output a second
    /// time changes nothing.
    #[command(after_help = "Example:\n  rashomon cassandra schema --store cassandra://10.0.0.1/wiki \
        --replication east:3,west:3 | cqlsh 10.0.0.1")]
    Schema(SchemaArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Cluster and keyspace: `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]`; no connection is made
    /// [default: the store of the configuration; without a configuration, the keyspace rashomon]
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// Configuration file (TOML) of the server
    #[arg(long, env = "RASHOMON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Number of replicas, or the number in each data centre, as in east:3,west:2 [default: that of the URL or of the
    /// configuration, else 3]
    #[arg(long, value_name = "N")]
    pub(crate) replication: Option<Replication>,
}
