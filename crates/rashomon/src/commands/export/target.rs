//! The target of an export: standard output, or a file that appears when it is complete.

use std::{
    io::{self, Stdout, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use rashomon_dumps::Output;
use tokio::sync::oneshot;

use crate::errors::CommandError;

/// The maximum time to wait for the last write of a thread after the export was aborted.
const LAST_WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The target of an export.
#[derive(Debug)]
pub(super) struct Target {
    writer: Writer,
    /// Dropped together with the writer, on any thread. The drop ends [`DeletionWaiter::wait`].
    _open: oneshot::Sender<()>,
}

#[derive(Debug)]
enum Writer {
    File(Box<Output>, PathBuf),
    Standard(Stdout),
}

/// Waits until the temporary file of a target is deleted. The thread that writes to the file deletes it.
#[derive(Debug)]
pub(super) struct DeletionWaiter(Option<oneshot::Receiver<()>>);

impl Target {
    /// Creates a temporary file that gets this name at the end, or opens standard output.
    pub(super) fn open(output: Option<&Path>) -> Result<(Self, DeletionWaiter), CommandError> {
        let writer = match output {
            None => Writer::Standard(io::stdout()),
            Some(path) => {
                check_directory(path)?;
                let file = Output::create(path).map_err(|source| cannot_write(path, source))?;
                Writer::File(Box::new(file), path.to_owned())
            }
        };
        let (open, gone) = oneshot::channel();
        Ok((Self { writer, _open: open }, DeletionWaiter(output.map(|_| gone))))
    }

    /// Completes the output. A file gets its final name.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        match self.writer {
            Writer::File(file, path) => file.finish().map_err(|source| cannot_write(&path, source)),
            Writer::Standard(mut stdout) => stdout.flush().map_err(|source| CommandError::Io {
                doing: "cannot write to standard output".to_owned(),
                source,
            }),
        }
    }
}

/// Checks that the directory of the file exists.
fn check_directory(path: &Path) -> Result<(), CommandError> {
    let directory = path.parent().filter(|directory| *directory != Path::new(""));
    match directory {
        Some(directory) if !directory.is_dir() => Err(CommandError::Usage(format!(
            "cannot write {}: there is no directory {}",
            path.display(),
            directory.display()
        ))),
        _ => Ok(()),
    }
}

fn cannot_write(path: &Path, source: io::Error) -> CommandError {
    CommandError::Io { doing: format!("cannot write {}", path.display()), source }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Writer::File(file, _) => file.write(bytes),
            Writer::Standard(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Writer::File(file, _) => file.flush(),
            Writer::Standard(stdout) => stdout.flush(),
        }
    }
}

impl DeletionWaiter {
    /// Waits until the temporary file is deleted, up to a time limit.
    pub(super) async fn wait(self) {
        if let Some(gone) = self.0 {
            // The sender never sends, and is only dropped. So the result has no information.
            let _ = tokio::time::timeout(LAST_WRITE_LIMIT, gone).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abandoned_file_is_deleted_after_the_wait() {
        let directory = tempfile::tempdir().unwrap();
        let (mut target, gone) = Target::open(Some(&directory.path().join("out.xml"))).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::thread::spawn(move || {
            target.write_all(b"half").unwrap();
            std::thread::sleep(Duration::from_millis(200));
            drop(target);
        });
        gone.wait().await;
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
