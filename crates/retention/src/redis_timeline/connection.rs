//! A connection to Redis. The connection is opened at the first request, and opened again after a failure.
//!
//! The connection manager of the client library is not used: the connection manager keeps a connection that has
//! stopped answering, and retries while a write waits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rashomon_clock::Clock;
use rashomon_records::excerpt;
use rashomon_tables::Error as StoreError;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, Pipeline, RedisError, aio::MultiplexedConnection,
};

/// How long no requests are sent after Redis did not answer, so that a failing Redis does not delay every write.
pub const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// A connection to Redis.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    /// The open connection. A task that connects holds the lock, so that the other tasks wait for the connection.
    open: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    /// The monotonic time until which no requests are sent to Redis.
    paused_until: Mutex<Option<Duration>>,
}

impl Connection {
    pub(crate) fn new(client: Client, clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        let (open, paused_until) = (tokio::sync::Mutex::new(None), Mutex::new(None));
        Self { client, clock, timeout, open, paused_until }
    }

    /// Sends commands to Redis, and waits at most `timeout` for the answer. After a failure without an
    /// answer, no requests are sent for [`RETRY_PAUSE`].
    pub(crate) async fn ask<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, StoreError> {
        if self.is_paused() {
            return Err(self.unavailable("did not answer a moment ago"));
        }
        let failure = match tokio::time::timeout(self.timeout, self.try_to_ask(commands)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Failure::Answer(error))) => {
                return Err(self.unavailable(&format!("answered with an error: {}", excerpt(error))));
            }
            Ok(Err(Failure::Broken(error))) => format!("cannot be reached: {error}"),
            Err(_) => format!("did not answer within {:?}", self.timeout),
        };
        self.pause().await;
        Err(self.unavailable(&failure))
    }

    async fn try_to_ask<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, Failure> {
        let mut connection = self.connected().await.map_err(Failure::Broken)?;
        commands.query_async(&mut connection).await.map_err(|error| {
            if error.is_io_error() || error.is_unrecoverable_error() {
                Failure::Broken(error)
            } else {
                Failure::Answer(error)
            }
        })
    }

    async fn connected(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok(connection.clone());
        }
        // `timeout` already limits both the connection and the response.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        tracing::debug!(redis = %self.address(), "connected");
        Ok(open.insert(connection).clone())
    }

    fn is_paused(&self) -> bool {
        let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| self.clock.monotonic() < until)
    }

    async fn pause(&self) {
        let until = self.clock.monotonic().saturating_add(RETRY_PAUSE);
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        // If another task has the lock, the task is connecting, or is about to fail with the broken connection and
        // to close it.
        if let Ok(mut open) = self.open.try_lock() {
            *open = None;
        }
    }

    fn unavailable(&self, why: &str) -> StoreError {
        StoreError::unavailable(format!("the timeline in Redis at {} {why}", self.address()))
    }

    fn address(&self) -> impl std::fmt::Display {
        self.client.get_connection_info().addr()
    }
}

/// The reason why a request has no result.
enum Failure {
    /// Redis refused the commands. The connection can still be used.
    Answer(RedisError),
    /// There is no connection, or it is broken.
    Broken(RedisError),
}
