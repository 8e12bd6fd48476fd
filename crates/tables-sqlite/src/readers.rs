//! The threads that execute reads. Each thread has its own connection.

use std::{
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crossbeam_channel::Receiver;
use rashomon_clock::give_way;
use rashomon_tables::{Error, Result};
use tokio::sync::oneshot;

use crate::{
    Options,
    audit::AuditConnection,
    damaged_keys::DamagedKeys,
    errors::from_sqlite,
    file,
    panics::Panics,
    queue::{Queue, Queued, closed_error},
};

enum Job {
    Read(Box<dyn FnOnce(&AuditConnection) + Send>),
    Stop,
}

/// A pool of reading threads with read-only connections. Each read runs on one of the threads.
pub(crate) struct Readers {
    queue: Queue<Job>,
    count: usize,
    panics: Arc<Panics>,
}

impl Readers {
    /// Opens the connections and starts the threads.
    pub(crate) fn start(
        directory: &Path,
        options: &Options,
        panics: Arc<Panics>,
        damaged_keys: &Arc<DamagedKeys>,
    ) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let capacity = u32::try_from(options.queued_reads.get()).unwrap_or(u32::MAX);
        let (queue, jobs) = Queue::new(capacity);
        let connections = (0..options.readers.get()).map(|_| file::open_reader(directory, options));
        let connections =
            connections.collect::<rusqlite::Result<Vec<_>>>().map_err(|error| from_sqlite(&error))?;
        let count = connections.len();
        let threads = connections.into_iter().map(|connection| {
            let jobs = jobs.clone();
            let connection = AuditConnection::sharing(connection, Arc::clone(damaged_keys));
            thread::Builder::new()
                .name("tables-read".to_owned())
                .spawn(move || run(&connection, &jobs))
                .map_err(|error| Error::unavailable(format!("cannot start a thread for reads: {error}")))
        });
        let threads = threads.collect::<Result<Vec<_>>>()?;
        Ok((Self { queue, count, panics }, threads))
    }

    /// Runs a read on one of the connections. A panic of the read is returned as an error, and the thread
    /// continues.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&AuditConnection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let panics = Arc::clone(&self.panics);
        let job = move |connection: &AuditConnection| {
            // If the caller has been dropped, nobody needs the answer.
            if !reply.is_closed() {
                // A panic ends the read's transaction, since unwinding drops its statements.
                let read = panics.catch("tables-read", || read(connection));
                let _ = reply.send(read.and_then(std::convert::identity));
            }
        };
        self.queue.push(Job::Read(Box::new(job)), 1).await?;
        answer.await.map_err(|_| closed_error())?
    }

    /// Refuses new reads, and ends the threads after they have answered all reads in the queue.
    pub(crate) fn stop(&self) {
        self.queue.close();
        (0..self.count).for_each(|_| self.queue.push_last(Job::Stop));
    }
}

fn run(connection: &AuditConnection, jobs: &Receiver<Queued<Job>>) {
    while let Ok(Queued { job: Job::Read(read), .. }) = jobs.recv() {
        read(connection);
        give_way();
    }
}
