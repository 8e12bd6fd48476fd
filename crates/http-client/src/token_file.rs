//! A file with the token of a client.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{BearerToken, MAX_TOKEN_BYTES, TokenError};

/// The size limit of a file with a token. The file may end with a line break.
const MAX_FILE_BYTES: u64 = MAX_TOKEN_BYTES as u64 + 2;

/// Why a file gives no token. The error names the file, and does not contain its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; name a readable file whose only line is the token", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file does not contain a token alone.
    #[error("{}: {source}; write the token as the only line of the file", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with the content.
        source: TokenError,
    },
}

/// A file with a token, which may be replaced while it is in use.
#[derive(Debug, Clone)]
pub struct TokenFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    token: BearerToken,
    /// Why the file could not be read the last time. `None` if it could.
    failure: Option<String>,
}

impl TokenFile {
    /// Reads a file whose only line is a token.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has something else.
    pub fn open(path: PathBuf) -> Result<Self, TokenFileError> {
        let state = Mutex::new(State { token: read(&path)?, failure: None });
        Ok(Self(Arc::new(Shared { path, state })))
    }

    /// The token that the file has now. If the file cannot be used any more, this is logged once, and the last token
    /// stays in use.
    pub async fn token(&self) -> BearerToken {
        let shared = Arc::clone(&self.0);
        // The file may be on a disk that does not answer.
        let token = tokio::task::spawn_blocking(move || shared.read_again()).await;
        token.unwrap_or_else(|_| self.0.state.lock().unwrap_or_else(PoisonError::into_inner).token.clone())
    }
}

impl Shared {
    fn read_again(&self) -> BearerToken {
        let read = read(&self.path);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(token) => {
                state.token = token;
                state.failure = None;
            }
            Err(error) => {
                let error = error.to_string();
                if state.failure.as_ref() != Some(&error) {
                    tracing::warn!(%error, "cannot read the changed token; the previous one stays in use");
                }
                state.failure = Some(error);
            }
        }
        state.token.clone()
    }
}

fn read(path: &Path) -> Result<BearerToken, TokenFileError> {
    let unreadable = |source| TokenFileError::Unreadable { path: path.to_owned(), source };
    // Another kind of file, such as a named pipe, could make the reader wait.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    BearerToken::parse(line).map_err(|source| TokenFileError::NoToken { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn changed_file_gives_the_new_token_and_a_broken_one_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "first\n").unwrap();
        let file = TokenFile::open(path.clone()).unwrap();
        assert_eq!(file.token().await.header(), "Bearer first");
        fs::write(directory.path().join("new"), "second\r\n").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!(file.token().await.header(), "Bearer second");
        fs::write(&path, "two words").unwrap();
        assert_eq!(file.token().await.header(), "Bearer second");
        fs::remove_file(&path).unwrap();
        assert_eq!(file.token().await.header(), "Bearer second");
        fs::write(&path, "third").unwrap();
        assert_eq!(file.token().await.header(), "Bearer third");
    }

    #[test]
    fn file_without_a_token_is_refused_with_its_name_and_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let refused = |path: &Path, words: &[&str]| {
            let error = TokenFile::open(path.to_owned()).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            words.iter().for_each(|word| assert!(error.contains(word), "no {word:?} in {error}"));
            assert!(!error.contains("secret"), "{error}");
        };
        refused(&path, &["cannot read", "name a readable file"]);
        refused(directory.path(), &["not a regular file"]);
        for (content, word) in [
            ("", "empty"),
            ("\n", "empty"),
            ("secret\nsecret\n", "no token has"),
            ("secret \n", "no token has"),
            (&"a".repeat(MAX_TOKEN_BYTES + 1), "more than"),
            (&"a".repeat(1 << 20), "more than"),
        ] {
            fs::write(&path, content).unwrap();
            refused(&path, &[word, "only line"]);
        }
    }
}
