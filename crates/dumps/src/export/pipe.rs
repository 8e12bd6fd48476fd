//! The thread that writes an export, and the channel to it.

use std::io::{self, Write};

use tokio::{sync::mpsc, task::JoinHandle};

use super::ExportError;

/// The size at which a buffer is passed to the thread, as a part.
pub(super) const PART_BYTES: usize = 1 << 18;
/// The maximum number of parts that wait in the channel.
const MAX_QUEUED_PARTS: usize = 4;

/// Passes parts to a thread that writes them.
pub(super) struct Pipe<W> {
    sender: Option<mpsc::Sender<Vec<u8>>>,
    thread: JoinHandle<io::Result<W>>,
}

impl<W: Write + Send + 'static> Pipe<W> {
    pub(super) fn new(mut writer: W) -> Self {
        let (sender, mut parts) = mpsc::channel::<Vec<u8>>(MAX_QUEUED_PARTS);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(part) = parts.blocking_recv() {
                writer.write_all(&part)?;
            }
            Ok(writer)
        });
        Self { sender: Some(sender), thread }
    }

    pub(super) async fn send(&mut self, part: Vec<u8>) -> Result<(), ExportError> {
        let sent = match &self.sender {
            Some(sender) => sender.send(part).await.is_ok(),
            None => false,
        };
        if sent {
            return Ok(());
        }
        // The thread has stopped, and its result says why.
        self.sender = None;
        match (&mut self.thread).await {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(_)) => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    pub(super) async fn finish(mut self) -> Result<W, ExportError> {
        self.sender = None;
        match self.thread.await {
            Ok(written) => Ok(written?),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }
}
