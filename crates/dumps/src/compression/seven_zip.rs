//! 7z archives: a table of contents at the end, so they are read from a file in which one can go back.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    sync::{Arc, atomic::AtomicU64},
};

use sevenz_rust2::{ArchiveReader, Error, Password};

use super::source::Counted;

/// Keeps a stream in a temporary file, which is gone when it is closed.
pub(super) fn spool(mut stream: impl Read, limit: u64) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    let count = io::copy(&mut stream.by_ref().take(limit.saturating_add(1)), &mut file)?;
    if count > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("a 7z archive that comes as a stream may have at most {limit} bytes; give it as a file"),
        ));
    }
    file.rewind()?;
    Ok(file)
}

/// Hands the one file that is in the archive to `read`.
pub(super) fn read<T>(
    file: File,
    consumed: Arc<AtomicU64>,
    read: impl FnOnce(&mut dyn Read) -> T,
) -> io::Result<T> {
    let input = BufReader::with_capacity(1 << 16, Counted::new(file, consumed));
    let mut archive = ArchiveReader::new(input, Password::empty()).map_err(damaged)?;
    // Decoding on several threads takes a window for each.
    archive.set_thread_count(1);
    let files = archive.archive().files.iter().filter(|file| !file.is_directory()).count();
    if files != 1 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("a 7z archive with one file in it can be read; this one has {files}"),
        ));
    }
    let (mut read, mut done) = (Some(read), None);
    archive
        .for_each_entries(|entry, content| {
            if !entry.is_directory() {
                done = read.take().map(|read| read(content));
            }
            Ok(true)
        })
        .or_else(|error| if done.is_some() { Ok(()) } else { Err(damaged(error)) })?;
    done.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the archive's file has no content"))
}

fn damaged(error: Error) -> io::Error {
    match error {
        Error::Io(error, _) | Error::FileOpen(error, _) => error,
        error => {
            io::Error::new(io::ErrorKind::InvalidData, format!("the 7z archive cannot be read: {error}"))
        }
    }
}
