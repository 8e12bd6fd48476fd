//! The driver alone: sends recorded statements from as many tasks as the service has connections. The statements are
//! prepared beforehand.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rashomon_clock::Clock;
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    frame::types::Consistency,
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};

use super::{
    calls::Call,
    statements::{self, Raw, Statement},
};

/// The maximum number of attempts. A node that stalls answers with an error after two seconds. The benchmark
/// then tries again, as the service does.
const MAX_ATTEMPTS: usize = 3;

/// A session of the driver.
pub(super) struct Driver {
    session: Arc<Session>,
    prepared: HashMap<String, PreparedStatement>,
}

/// A call that is ready to be sent.
struct PreparedCall {
    reads: Vec<(PreparedStatement, Vec<Raw>)>,
    first: Vec<Change>,
    then: Option<Change>,
}

/// A batch. Like the store, the benchmark sends a batch of one statement as a single statement.
enum Change {
    Alone(PreparedStatement, Vec<Raw>),
    Together(Batch, Vec<Vec<Raw>>),
}

impl Driver {
    pub(super) async fn connect(node: SocketAddr, keyspace: &str) -> Result<Self> {
        let profile = ExecutionProfile::builder().consistency(Consistency::LocalQuorum).build();
        let session = SessionBuilder::new()
            .known_node_addr(node)
            .default_execution_profile_handle(profile.into_handle())
            .use_keyspace(keyspace, false)
            .build()
            .await?;
        Ok(Self { session: Arc::new(session), prepared: HashMap::new() })
    }

    /// Deletes a keyspace, so that the next measurement has all of the disk space.
    pub(super) async fn drop_keyspace(&self, keyspace: &str) -> Result<()> {
        self.session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {keyspace}"), ()).await?;
        Ok(())
    }

    /// Makes `count` calls, cycling through `calls`. Returns the calls per second.
    pub(super) async fn send(
        &mut self,
        calls: &[Call],
        count: usize,
        tasks: usize,
        clock: &dyn Clock,
    ) -> Result<f64> {
        let mut ready = Vec::with_capacity(calls.len());
        for call in calls {
            ready.push(self.prepare_call(call).await?);
        }
        let ready = Arc::new(ready);
        let next = Arc::new(AtomicUsize::new(0));
        let started = clock.monotonic();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..tasks {
            let (session, ready, next) = (Arc::clone(&self.session), Arc::clone(&ready), Arc::clone(&next));
            running.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return anyhow::Ok(());
                    }
                    ready[number % ready.len()].send_with_retries(&session).await?;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(count as f64 / (clock.monotonic() - started).as_secs_f64())
    }

    async fn prepare_call(&mut self, call: &Call) -> Result<PreparedCall> {
        let mut reads = Vec::with_capacity(call.reads.len());
        for read in &call.reads {
            reads.push(self.prepare(statements::of_read(read)?).await?);
        }
        let mut first = Vec::with_capacity(call.first.len());
        for batch in &call.first {
            first.push(self.prepare_batch(batch).await?);
        }
        let then = match &call.then {
            Some(batch) => Some(self.prepare_batch(batch).await?),
            None => None,
        };
        Ok(PreparedCall { reads, first, then })
    }

    async fn prepare_batch(&mut self, batch: &rashomon_tables::Batch) -> Result<Change> {
        let mut statements = Vec::new();
        for statement in statements::of_batch(batch)? {
            statements.push(self.prepare(statement).await?);
        }
        if statements.len() == 1 {
            let (statement, values) = statements.remove(0);
            return Ok(Change::Alone(statement, values));
        }
        let mut together = Batch::new(BatchType::Logged);
        together.set_is_idempotent(true);
        let (statements, values): (Vec<_>, _) = statements.into_iter().unzip();
        for statement in statements {
            together.append_statement(statement);
        }
        Ok(Change::Together(together, values))
    }

    async fn prepare(&mut self, statement: Statement) -> Result<(PreparedStatement, Vec<Raw>)> {
        if let Some(prepared) = self.prepared.get(&statement.text) {
            return Ok((prepared.clone(), statement.values));
        }
        let mut prepared = self.session.prepare(statement.text.as_str()).await?;
        prepared.set_is_idempotent(true);
        self.prepared.insert(statement.text, prepared.clone());
        Ok((prepared, statement.values))
    }
}

impl PreparedCall {
    /// Sends the statements up to [`MAX_ATTEMPTS`] times. Repeating them is harmless.
    async fn send_with_retries(&self, session: &Session) -> Result<()> {
        for _ in 1..MAX_ATTEMPTS {
            if self.send(session).await.is_ok() {
                return Ok(());
            }
        }
        self.send(session).await
    }

    async fn send(&self, session: &Session) -> Result<()> {
        try_join_all(self.reads.iter().map(|(statement, values)| async move {
            let rows = session.execute_unpaged(statement, values).await?.into_rows_result()?;
            // A write of a new page reads rows that do not exist.
            ensure!(self.then.is_some() || rows.rows_num() > 0, "a row that was written is not there");
            Ok(())
        }))
        .await?;
        try_join_all(self.first.iter().map(|change| change.send(session))).await?;
        match &self.then {
            Some(change) => change.send(session).await,
            None => Ok(()),
        }
    }
}

impl Change {
    async fn send(&self, session: &Session) -> Result<()> {
        match self {
            Self::Alone(statement, values) => session.execute_unpaged(statement, values).await?,
            Self::Together(batch, values) => session.batch(batch, values).await?,
        };
        Ok(())
    }
}
