//! Reads a file that an operator names.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// The reason why a file cannot be read. The text of the error continues a sentence that names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system cannot read the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The path names something else, such as a directory or a named pipe.
    #[error("it is not a regular file")]
    NotRegular,
    /// The file is too large.
    #[error("it has more than {max_bytes} bytes")]
    TooLarge {
        /// The size limit.
        max_bytes: u64,
    },
}

/// Reads a regular file, or the regular file that a symbolic link leads to. Files of other kinds are refused: they
/// could make the reader wait, and could not be read again.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not a regular file, or has more than `max_bytes` bytes. At most
/// `max_bytes + 1` bytes are read.
pub fn read_regular_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
    // Opening a named pipe waits for a writer, so this check comes first.
    if !std::fs::metadata(path)?.is_file() {
        return Err(ReadError::NotRegular);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(ReadError::TooLarge { max_bytes });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "abc").unwrap();
        assert_eq!(read_regular_file(&path, 3).unwrap(), b"abc");
        assert_eq!(read_regular_file(&path, u64::MAX).unwrap(), b"abc");
        let error = read_regular_file(&path, 2).unwrap_err();
        assert!(matches!(error, ReadError::TooLarge { max_bytes: 2 }));
        assert_eq!(error.to_string(), "it has more than 2 bytes");
        fs::write(&path, "").unwrap();
        assert_eq!(read_regular_file(&path, 0).unwrap(), b"");
    }

    #[test]
    fn missing_file_has_the_error_of_the_system() {
        let directory = tempfile::tempdir().unwrap();
        match read_regular_file(&directory.path().join("file"), 1).unwrap_err() {
            ReadError::Io(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            error => panic!("{error}"),
        }
    }

    #[test]
    fn directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = read_regular_file(directory.path(), 1).unwrap_err();
        assert!(matches!(error, ReadError::NotRegular));
        assert_eq!(error.to_string(), "it is not a regular file");
    }

    /// The test hangs if the pipe is opened.
    #[cfg(unix)]
    #[test]
    fn named_pipe_is_refused_without_waiting_for_a_writer() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(read_regular_file(&path, 1), Err(ReadError::NotRegular)));
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "abc").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_regular_file(&link, 3).unwrap(), b"abc");
    }
}
