//! The connection to the cluster, on which all statements are executed.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use rashomon_tables::{Error, ReadFrom, Result};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use scylla::{
    client::{
        execution_profile::ExecutionProfile,
        session::{Session, TlsContext},
        session_builder::SessionBuilder,
    },
    errors::ExecutionError,
    frame,
    policies::{
        load_balancing::{
            DefaultPolicy, LoadBalancingPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
        },
        speculative_execution::SimpleSpeculativeExecutionPolicy,
    },
    response::query_result::QueryRowsResult,
    serialize::row::SerializeRow,
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
        unprepared::Statement,
    },
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    Compression, Consistency, Options, SerialConsistency, ddl,
    errors::{from_change, no_agreement, no_cluster, not_connected, not_prepared, unavailable, unexpected},
    replicas,
    retry::NextNodeRetryPolicy,
    statements::Statements,
    wire::BoundValue,
};

/// The maximum number of further nodes that get a request if the earlier nodes do not answer in time.
const MAX_SPECULATIONS: usize = 2;
/// The maximum number of concurrent requests. Further requests wait.
const MAX_IN_FLIGHT: usize = 1_024;
/// The maximum interval between two checks that a connection is alive. A connection that does not answer in time is
/// closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of a statement that creates or changes a table. The wait until all nodes know the change has the same
/// timeout.
const SCHEMA_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two checks whether all nodes know a change.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(20);
/// How long after the opening of the session a wait for agreement needs a connection to every node. Later, nodes
/// without a connection are ignored: a node that is down gets to know the tables when it is up again.
const ALL_NODES_TIMEOUT: Duration = Duration::from_secs(5);
/// The first major version of Cassandra with unified compaction. ScyllaDB reports version 3.
const UNIFIED_COMPACTION: u32 = 5;

/// A connection to one keyspace of the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    session: Session,
    /// The time at which the session was opened.
    connected_at: Instant,
    keyspace: String,
    /// The URL of the store for `--store`, without its parameters.
    url: String,
    may_create: bool,
    request_timeout: Duration,
    release: String,
    statements: Statements,
    in_flight: Semaphore,
}

impl Cluster {
    /// Connects to the cluster and creates the keyspace if it does not exist. An error of the connection names the
    /// contact points.
    pub(crate) async fn connect(options: &Options) -> Result<Self> {
        options.check()?;
        let deadline = Instant::now() + options.connect_timeout;
        let session = match session(options, deadline).await {
            Err(Error::Unavailable(why)) => {
                return Err(refusal(options, deadline).await.unwrap_or(Error::Unavailable(why)));
            }
            found => found?,
        };
        let mut cluster = Self {
            session,
            connected_at: Instant::now(),
            keyspace: options.keyspace.clone(),
            url: format!("cassandra://{}/{}", options.contact_points.join(","), options.keyspace),
            may_create: options.create,
            request_timeout: options.request_timeout,
            release: String::new(),
            statements: Statements::default(),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
        };
        let local = cluster.query("SELECT release_version FROM system.local", ()).await?;
        cluster.release = local.single_row::<(String,)>().map_err(unexpected)?.0;
        cluster.create_keyspace(options).await?;
        Ok(cluster)
    }

    /// Creates the keyspace if it does not exist. [`Error::Invalid`] if the options do not allow this, or if the
    /// cluster has too few nodes for the copies.
    async fn create_keyspace(&self, options: &Options) -> Result<()> {
        const EXISTING: &str = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let existing = self.query(EXISTING, (self.keyspace.clone(),)).await?;
        if existing.rows_num() > 0 {
            // Another process may have created the keyspace just now.
            return self.wait_for_agreement().await;
        }
        if !self.may_create {
            return Err(Error::Invalid(format!(
                "there is no keyspace {}: name the keyspace that holds the revisions, with --store \
                 cassandra://HOST/KEYSPACE",
                self.keyspace
            )));
        }
        let named = options.contact_points.len();
        replicas::check(&options.replication, options.consistency, &self.nodes().await?, named).map_err(
            |reason| Error::Invalid(format!("keyspace {} is not created: {reason}", self.keyspace)),
        )?;
        self.change(&format!("keyspace {}", self.keyspace), ddl::create_keyspace(options)).await
    }

    /// Counts the nodes of each data centre, including those that are down.
    async fn nodes(&self) -> Result<BTreeMap<String, usize>> {
        let mut nodes = BTreeMap::new();
        for query in ["SELECT data_center FROM system.local", "SELECT data_center FROM system.peers"] {
            let rows = self.query(query, ()).await?;
            for row in rows.rows::<(Option<String>,)>().map_err(unexpected)? {
                // A node that is joining has no data centre yet.
                if let Some(datacenter) = row.map_err(unexpected)?.0 {
                    *nodes.entry(datacenter).or_default() += 1;
                }
            }
        }
        Ok(nodes)
    }

    /// Waits until all nodes have the same schema, so that any node can answer a request. The error names the nodes
    /// without a connection.
    pub(crate) async fn wait_for_agreement(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let left = SCHEMA_CHANGE_TIMEOUT.saturating_sub(started.elapsed());
            let agreed = timeout(left, self.session.check_schema_agreement()).await;
            let is_complete =
                self.unconnected().is_empty() || self.connected_at.elapsed() >= ALL_NODES_TIMEOUT;
            if is_complete && matches!(agreed, Ok(Ok(Some(_)))) {
                return Ok(());
            }
            if started.elapsed() >= SCHEMA_CHANGE_TIMEOUT {
                let why = match agreed {
                    Ok(Err(error)) => format!(" ({error})"),
                    Ok(Ok(_)) => String::new(),
                    Err(_) => " (a node does not answer)".to_owned(),
                };
                return Err(no_agreement(SCHEMA_CHANGE_TIMEOUT, &self.unconnected(), &why));
            }
            tokio::time::sleep(AGREEMENT_INTERVAL).await;
        }
    }

    /// The addresses of the nodes without a connection.
    fn unconnected(&self) -> Vec<String> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().filter(|node| !node.is_connected());
        nodes.map(|node| format!("{}:{}", node.address.ip(), node.address.port())).collect()
    }

    pub(crate) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the store creates missing tables.
    pub(crate) const fn may_create(&self) -> bool {
        self.may_create
    }

    pub(crate) const fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// The version that the node of the first query reports.
    pub(crate) fn release(&self) -> &str {
        &self.release
    }

    pub(crate) fn has_unified_compaction(&self) -> bool {
        let major = self.release.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major >= UNIFIED_COMPACTION)
    }

    /// Executes a query without preparing it. This is for rare queries.
    pub(crate) async fn query(&self, text: &str, values: impl SerializeRow) -> Result<QueryRowsResult> {
        let result = self.session.query_unpaged(text, values).await.map_err(|error| self.failed(&error))?;
        result.into_rows_result().map_err(unexpected)
    }

    /// Executes a statement that creates or changes `what`, and waits until all nodes know the change.
    ///
    /// Clients with connections to the same nodes send these statements to the same node. If two clients create a
    /// table on two nodes at once, the cluster may get two tables with the same name.
    pub(crate) async fn change(&self, what: &str, text: String) -> Result<()> {
        let mut statement = Statement::new(text);
        statement.set_request_timeout(Some(SCHEMA_CHANGE_TIMEOUT));
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
        if let Some(node) = nodes.min_by_key(|node| node.host_id) {
            let node = NodeIdentifier::Node(Arc::clone(node));
            statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(node, None)));
        }
        self.session.query_unpaged(statement, ()).await.map_err(|error| from_change(what, &error))?;
        self.wait_for_agreement().await
    }

    /// Prepares a statement, unless it was prepared before. The statement is marked as idempotent.
    pub(crate) async fn prepare(&self, text: String) -> Result<PreparedStatement> {
        if let Some(prepared) = self.statements.get(&text) {
            return Ok(prepared);
        }
        let preparing = tokio::time::timeout(self.request_timeout, self.session.prepare(text.as_str())).await;
        let mut prepared = preparing
            .map_err(|_| Error::unavailable("a statement was not prepared in time"))?
            .map_err(|error| not_prepared(&error))?;
        prepared.set_is_idempotent(true);
        self.statements.insert(text, prepared.clone());
        Ok(prepared)
    }

    /// Executes a read with the consistency of the options.
    pub(crate) async fn read(&self, text: String, values: &[BoundValue<'_>]) -> Result<QueryRowsResult> {
        let prepared = self.prepare(text).await?;
        self.read_prepared(&prepared, values).await
    }

    /// Executes a read. `read_from` says which replicas have to answer.
    pub(crate) async fn read_from(
        &self,
        read_from: ReadFrom,
        text: String,
        values: &[BoundValue<'_>],
    ) -> Result<QueryRowsResult> {
        let mut prepared = self.prepare(text).await?;
        if read_from == ReadFrom::AllReplicas {
            prepared.set_consistency(frame::types::Consistency::All);
        }
        self.read_prepared(&prepared, values).await
    }

    pub(crate) async fn read_prepared(
        &self,
        prepared: &PreparedStatement,
        values: &[BoundValue<'_>],
    ) -> Result<QueryRowsResult> {
        let _permit = self.in_flight.acquire().await.map_err(unexpected)?;
        let result =
            self.session.execute_unpaged(prepared, values).await.map_err(|error| self.failed(&error))?;
        result.into_rows_result().map_err(unexpected)
    }

    /// Translates the error of a read or a write. The result names the nodes without a connection.
    fn failed(&self, error: &ExecutionError) -> Error {
        unavailable(error, &self.unconnected())
    }

    /// Executes statements on one partition, all of them or none.
    pub(crate) async fn apply(
        &self,
        statements: Vec<(PreparedStatement, Vec<BoundValue<'_>>)>,
    ) -> Result<()> {
        let _permit = self.in_flight.acquire().await.map_err(unexpected)?;
        let done = if let [(statement, values)] = &statements[..] {
            self.session.execute_unpaged(statement, values).await
        } else {
            let mut batch = Batch::new(BatchType::Logged);
            batch.set_is_idempotent(true);
            let (statements, values): (Vec<_>, Vec<_>) = statements.into_iter().unzip();
            for statement in statements {
                batch.append_statement(statement);
            }
            self.session.batch(&batch, values).await
        };
        done.map(drop).map_err(|error| self.failed(&error))
    }
}

async fn session(options: &Options, deadline: Instant) -> Result<Session> {
    tokio::time::timeout_at(deadline, builder(options)?.build())
        .await
        .map_err(|_| no_cluster(options, &format!("no answer within {:?}", options.connect_timeout)))?
        .map_err(|error| not_connected(options, &error))
}

/// Returns the first error by which a contact point refuses the client. Connects to each contact point separately:
/// with several contact points, the driver reports only the error of the last one, which may be down. `None` if no
/// contact point refuses the client, or if there is only one.
async fn refusal(options: &Options, deadline: Instant) -> Option<Error> {
    if options.contact_points.len() < 2 {
        return None;
    }
    for point in &options.contact_points {
        let alone = Options { contact_points: vec![point.clone()], ..options.clone() };
        match session(&alone, deadline).await {
            Ok(_) | Err(Error::Unavailable(_)) => {}
            Err(refusal) => return Some(refusal),
        }
    }
    None
}

fn builder(options: &Options) -> Result<SessionBuilder> {
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.contact_points)
        .default_execution_profile_handle(profile(options).into_handle())
        .compression(options.compression.map(|compression| match compression {
            Compression::Lz4 => frame::Compression::Lz4,
            Compression::Snappy => frame::Compression::Snappy,
        }))
        .connection_timeout(options.connect_timeout / 4)
        // The connection to a hanging node is closed soon, since requests that are not idempotent can only wait for
        // the node. While connecting, a client may wait for such a node twice: as a contact point, and as a member of
        // the cluster. Each wait takes at most an eighth plus a quarter of `connect_timeout`, which leaves a quarter
        // for other nodes. The driver's connection timeout does not help, since a hanging node still accepts
        // connections.
        .keepalive_interval(KEEPALIVE_INTERVAL.min(options.connect_timeout / 8))
        .keepalive_timeout(options.request_timeout.min(options.connect_timeout / 4))
        .keyspaces_to_fetch([&options.keyspace])
        .schema_agreement_timeout(SCHEMA_CHANGE_TIMEOUT)
        .schema_agreement_interval(AGREEMENT_INTERVAL);
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    if let Some(authorities) = &options.tls {
        builder = builder.tls_context(Some(tls(authorities)?));
    }
    if let Some(datacenter) = &options.local_datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    Ok(builder)
}

fn profile(options: &Options) -> ExecutionProfile {
    use frame::types;
    let speculation = SimpleSpeculativeExecutionPolicy {
        max_retry_count: MAX_SPECULATIONS,
        retry_interval: options.attempt_timeout,
    };
    ExecutionProfile::builder()
        .consistency(match options.consistency {
            Consistency::LocalQuorum => types::Consistency::LocalQuorum,
            Consistency::Quorum => types::Consistency::Quorum,
            Consistency::All => types::Consistency::All,
        })
        .serial_consistency(Some(match options.serial_consistency {
            SerialConsistency::Serial => types::SerialConsistency::Serial,
            SerialConsistency::LocalSerial => types::SerialConsistency::LocalSerial,
        }))
        .request_timeout(Some(options.request_timeout))
        .retry_policy(Arc::new(NextNodeRetryPolicy))
        .speculative_execution_policy(Some(Arc::new(speculation)))
        .load_balancing_policy(load_balancing(options))
        .build()
}

/// Returns the policy that sends requests to the replicas of a partition. If the local data centre is known, other
/// data centres get no requests: they are too far away, and their quorum is not the requested quorum.
fn load_balancing(options: &Options) -> Arc<dyn LoadBalancingPolicy> {
    let policy = DefaultPolicy::builder().token_aware(true).permit_dc_failover(false);
    match &options.local_datacenter {
        Some(datacenter) => policy.prefer_datacenter(datacenter.clone()).build(),
        None => policy.build(),
    }
}

/// Returns a TLS context that accepts only certificates signed by the authorities in this PEM file.
fn tls(authorities: &Path) -> Result<TlsContext> {
    let failed = |what: &dyn std::fmt::Display| {
        Error::Unsupported(format!("no certificates in {}: {what}", authorities.display()))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authorities).map_err(|error| failed(&error))? {
        roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"it is empty"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsContext::Rustls023(Arc::new(config)))
}
