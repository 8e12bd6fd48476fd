//! The bodies of entries: the input of a stored entry, and the output of a read entry.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    pin::Pin,
};

use bytes::Bytes;
use rashomon_dumps::AtomicFile;
use tokio::io::{AsyncRead, AsyncWriteExt as _};

use crate::errors::CommandError;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// A body to be stored.
pub(super) struct Upload {
    /// The bytes.
    pub(super) reader: Pin<Box<dyn AsyncRead + Send>>,
    /// The size in bytes, if it is known.
    pub(super) size: Option<u64>,
}

impl Upload {
    /// Opens a file, or standard input.
    pub(super) async fn open(file: &Path) -> Result<Self, CommandError> {
        if file == Path::new(STANDARD_INPUT) {
            return Ok(Self { reader: Box::pin(tokio::io::stdin()), size: None });
        }
        let failure = |error| CommandError::Usage(format!("cannot read {}: {error}", file.display()));
        let opened = tokio::fs::File::open(file).await.map_err(failure)?;
        let metadata = opened.metadata().await.map_err(failure)?;
        if metadata.is_dir() {
            return Err(CommandError::Usage(format!(
                "{} is a directory: name a file with the body of the entry",
                file.display()
            )));
        }
        Ok(Self { reader: Box::pin(opened), size: metadata.is_file().then_some(metadata.len()) })
    }
}

/// The target to which a body is written.
pub(super) enum Sink {
    /// A file that gets its name when it is complete.
    File { file: Box<AtomicFile>, handle: std::fs::File, path: PathBuf },
    /// Standard output.
    Standard(tokio::io::Stdout),
}

impl Sink {
    pub(super) fn open(output: Option<&Path>) -> Result<Self, CommandError> {
        let Some(path) = output else { return Ok(Self::Standard(tokio::io::stdout())) };
        let failure = |error| CommandError::Usage(format!("cannot write {}: {error}", path.display()));
        let file = AtomicFile::create(path).map_err(failure)?;
        let handle = file.handle().map_err(failure)?;
        Ok(Self::File { file: Box::new(file), handle, path: path.to_owned() })
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), CommandError> {
        match self {
            Self::File { handle, path, .. } => {
                // The bytes are at most a chunk, so the write does not delay a runtime with several threads.
                handle.write_all(&bytes).map_err(|source| cannot_write(path, source))
            }
            Self::Standard(stdout) => stdout.write_all(&bytes).await.map_err(of_stdout),
        }
    }

    /// Completes the output. A file gets its name.
    pub(super) async fn finish(self) -> Result<(), CommandError> {
        match self {
            Self::File { file, path, .. } => file.commit().map_err(|source| cannot_write(&path, source)),
            Self::Standard(mut stdout) => stdout.flush().await.map_err(of_stdout),
        }
    }
}

fn cannot_write(path: &Path, source: std::io::Error) -> CommandError {
    CommandError::Io { doing: format!("cannot write {}", path.display()), source }
}

fn of_stdout(source: std::io::Error) -> CommandError {
    match source.kind() {
        std::io::ErrorKind::BrokenPipe => CommandError::OutputClosed,
        _ => CommandError::Io { doing: "cannot write to standard output".to_owned(), source },
    }
}
