//! 7z archives: a table of contents at the end, so they are read from a file in which one can go back.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    sync::{Arc, atomic::AtomicU64},
};

use sevenz_rust2::{ArchiveReader, Error, Password};

use super::{Compression, source::Counted};

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
    read: impl FnOnce(&mut dyn Read, Compression) -> T,
) -> io::Result<T> {
    let followed = is_followed(&file)?;
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
                let mut content = ToTheEnd { content, followed };
                done = read.take().map(|read| read(&mut content, Compression::SevenZip));
            }
            Ok(true)
        })
        .or_else(|error| if done.is_some() { Ok(()) } else { Err(damaged(error)) })?;
    done.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the archive's file has no content"))
}

/// Where the header of an archive says how far its table of contents is from the header's end, and how long it
/// is: it is the last thing in the archive.
const TABLE_AT: u64 = 12;
/// The bytes of that header.
const HEADER: u64 = 32;

/// Whether something follows the archive in its file, and does not belong to it. Leaves the file where it was.
fn is_followed(mut file: &File) -> io::Result<bool> {
    let begin = file.stream_position()?;
    let mut table = [0; 16];
    file.seek(SeekFrom::Start(begin + TABLE_AT))?;
    let read = file.read_exact(&mut table);
    file.seek(SeekFrom::Start(begin))?;
    if read.is_err() {
        // It is shorter than the header, as whoever reads the archive will say.
        return Ok(false);
    }
    let [distance, size] = [&table[..8], &table[8..]]
        .map(|bytes| bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)));
    let end = HEADER.saturating_add(distance).saturating_add(size);
    Ok(file.metadata()?.len().saturating_sub(begin) > end)
}

/// The content of an archive, which is an error at its end where something follows the archive.
struct ToTheEnd<'a> {
    content: &'a mut dyn Read,
    followed: bool,
}

impl Read for ToTheEnd<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        if count == 0 && !buffer.is_empty() && self.followed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "something follows the end of the 7z archive",
            ));
        }
        Ok(count)
    }
}

fn damaged(error: Error) -> io::Error {
    match error {
        Error::Io(error, _) | Error::FileOpen(error, _) => error,
        error => {
            io::Error::new(io::ErrorKind::InvalidData, format!("the 7z archive cannot be read: {error}"))
        }
    }
}
