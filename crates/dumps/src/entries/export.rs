//! Writes the entries of a bucket.

use std::{
    io::{self, Write},
    sync::Arc,
};

use crate::CountedItems;
use rashomon_clock::rfc3339;
use rashomon_entries::{Bucket, BucketType, Entry, EntryKey, Error, KeyValueStore};
use rashomon_pages::{Body, StoreError, StoredHeaders};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::entries::line::{
    BucketLine, CounterLine, EndLine, EntryLine, IncompleteLine, Line, MAX_PART_BYTES, VERSION, to_base64,
};

/// The maximum number of keys that are read in one call.
const PAGE_KEYS: usize = 200;

/// The size at which a buffer is passed to the thread that writes it.
const BUFFER_BYTES: usize = 1 << 18;

/// The maximum number of buffers that wait to be written.
const MAX_BUFFERS: usize = 4;

/// The report of an export: what it has written, and what the store has lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryExportReport {
    /// The number of entries or counters that were written as a whole.
    pub entries: u64,
    /// The number of bytes of the bodies of these entries.
    pub body_bytes: u64,
    /// Entries and counters that the store has lost, as a whole or in part: each with the reason.
    pub unreadable: CountedItems<String>,
}

/// The error that ended an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryExportError {
    /// The store failed.
    #[error("cannot read the store: {0}")]
    Store(#[from] Error),
    /// The output could not be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// Writes the definition of a bucket and its entries, in the byte order of their keys. Returns the writer, which
/// the caller has to finish. Must be called within a runtime of tokio; `writer` is used on one of its blocking
/// threads.
///
/// An entry that exists during the whole export is written as it was at some moment of the export. An entry that
/// the store has lost is left out. If the store has lost a part of a large body, a line marks the entry as incomplete,
/// and an import leaves the entry out. The report lists both. `progress` is called after each entry.
pub async fn export_entries<W: Write + Send + 'static>(
    store: &KeyValueStore,
    bucket: &Bucket,
    writer: W,
    mut progress: impl FnMut(&EntryExportReport) + Send,
) -> Result<(EntryExportReport, W), EntryExportError> {
    let mut export = Export::new(store, bucket, writer);
    export.put(&Line::Bucket(BucketLine {
        name: bucket.name.clone(),
        version: VERSION,
        definition: bucket.definition.clone(),
    }))?;
    let mut after: Option<EntryKey> = None;
    loop {
        let keys = store.keys(bucket, after.as_ref(), PAGE_KEYS).await?;
        for key in &keys.items {
            match bucket.bucket_type() {
                BucketType::Counter => export.export_counter(key).await?,
                _ => export.export_entry(key).await?,
            }
            export.flush_buffer(BUFFER_BYTES).await?;
            progress(&export.report);
        }
        after = keys.next;
        if after.is_none() {
            return export.finish().await;
        }
    }
}

struct Export<'a, W> {
    store: &'a KeyValueStore,
    bucket: &'a Bucket,
    buffer: Vec<u8>,
    sender: Option<mpsc::Sender<Vec<u8>>>,
    thread: JoinHandle<io::Result<W>>,
    /// The number of entries in the output, including incomplete entries.
    lines: u64,
    report: EntryExportReport,
}

impl<'a, W: Write + Send + 'static> Export<'a, W> {
    fn new(store: &'a KeyValueStore, bucket: &'a Bucket, mut writer: W) -> Self {
        let (sender, mut buffers) = mpsc::channel::<Vec<u8>>(MAX_BUFFERS);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(buffer) = buffers.blocking_recv() {
                writer.write_all(&buffer)?;
            }
            Ok(writer)
        });
        let (buffer, sender) = (Vec::new(), Some(sender));
        Self { store, bucket, buffer, sender, thread, lines: 0, report: EntryExportReport::default() }
    }

    fn put(&mut self, line: &Line) -> io::Result<()> {
        line.write(&mut self.buffer)
    }

    async fn export_counter(&mut self, key: &EntryKey) -> Result<(), EntryExportError> {
        match self.store.counter(self.bucket, key).await {
            Ok(Some(value)) => {
                self.lines += 1;
                self.report.entries += 1;
                Ok(self.put(&Line::Counter(CounterLine { key: key.as_str().to_owned(), value }))?)
            }
            Ok(None) => Ok(()),
            Err(error) => self.leave_out(key, error),
        }
    }

    async fn export_entry(&mut self, key: &EntryKey) -> Result<(), EntryExportError> {
        let entry = match self.store.entry(self.bucket, key).await {
            Ok(Some(entry)) => entry,
            // The entry was deleted or has expired.
            Ok(None) => return Ok(()),
            Err(error) => return self.leave_out(key, error),
        };
        let whole = match &entry.body {
            Body::Inline(body) if body.plain.len() <= MAX_PART_BYTES => Some(to_base64(&body.plain)),
            _ => None,
        };
        let is_whole = whole.is_some();
        self.lines += 1;
        self.put(&Line::Entry(entry_line(key, &entry, whole, self.store.stored_headers())))?;
        if is_whole {
            self.report.entries += 1;
            self.report.body_bytes += entry.size;
            return Ok(());
        }
        match self.export_parts(&entry.body).await {
            Ok(()) => {
                self.report.entries += 1;
                self.report.body_bytes += entry.size;
                Ok(())
            }
            Err(EntryExportError::Store(error)) => {
                let reason = error.to_string();
                self.leave_out(key, error)?;
                Ok(self.put(&Line::Incomplete(IncompleteLine { reason }))?)
            }
            Err(error) => Err(error),
        }
    }

    async fn export_parts(&mut self, body: &Body) -> Result<(), EntryExportError> {
        match body {
            Body::Inline(body) => self.export_pieces(&body.plain).await,
            Body::Chunked(body) => {
                for number in 0..body.chunks() {
                    let chunk = body.chunk(number).await.map_err(Error::from)?;
                    self.export_pieces(&chunk.plain).await?;
                }
                Ok(())
            }
        }
    }

    async fn export_pieces(&mut self, bytes: &[u8]) -> Result<(), EntryExportError> {
        for piece in bytes.chunks(MAX_PART_BYTES) {
            self.put(&Line::Part(to_base64(piece)))?;
            self.flush_buffer(BUFFER_BYTES).await?;
        }
        Ok(())
    }

    /// Reports an entry that the store has lost. Any other error ends the export.
    fn leave_out(&mut self, key: &EntryKey, error: Error) -> Result<(), EntryExportError> {
        if !matches!(&error, Error::Records(rashomon_pages::Error::Store(StoreError::Corrupt(_)))) {
            return Err(error.into());
        }
        self.report.unreadable.add(format!("{key}: {error}"));
        Ok(())
    }

    /// Passes the buffer to the thread that writes it, if the buffer has at least this many bytes.
    async fn flush_buffer(&mut self, at_least: usize) -> Result<(), EntryExportError> {
        if self.buffer.len() < at_least {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        if let Some(sender) = &self.sender
            && sender.send(buffer).await.is_ok()
        {
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

    async fn finish(mut self) -> Result<(EntryExportReport, W), EntryExportError> {
        self.put(&Line::End(EndLine { entries: self.lines }))?;
        self.flush_buffer(0).await?;
        self.sender = None;
        match self.thread.await {
            Ok(written) => Ok((self.report, written?)),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }
}

fn entry_line(key: &EntryKey, entry: &Arc<Entry>, body: Option<String>, rule: &StoredHeaders) -> EntryLine {
    let mut headers = entry.headers.clone();
    headers.other.retain(|name, _| rule.keep_with_entry(name));
    EntryLine {
        key: key.as_str().to_owned(),
        headers,
        size: entry.size,
        sha1: entry.sha1.to_string(),
        modified: rfc3339::format(entry.modified),
        expires: entry.expires_at.map(rfc3339::format),
        body,
    }
}
