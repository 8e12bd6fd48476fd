//! A file with the token of a client.

use std::{path::PathBuf, sync::Arc};

use rashomon_clock::watched_file::{ReadError, Reload, Source, Watched, read_regular_file};

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
        /// The reason.
        source: ReadError,
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
pub struct TokenFile(Arc<Watched<TokenSource>>);

impl TokenFile {
    /// Reads a file whose only line is a token.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has other content.
    pub fn open(path: PathBuf) -> Result<Self, TokenFileError> {
        Ok(Self(Arc::new(Watched::open(TokenSource(path))?)))
    }

    /// Returns the token that is in the file now. If the file is no longer usable, logs this once, and returns the last
    /// valid token.
    pub async fn token(&self) -> BearerToken {
        let watched = Arc::clone(&self.0);
        // The file may be on a disk that does not answer.
        let reload = tokio::task::spawn_blocking(move || watched.reload()).await;
        if let Ok(Reload::Failed { error, is_new: true }) = reload {
            tracing::warn!(%error, "cannot read the changed token; the previous one stays in use");
        }
        BearerToken::clone(&self.0.current())
    }
}

/// The path of a file with a token.
#[derive(Debug)]
struct TokenSource(PathBuf);

impl TokenSource {
    fn no_token(&self, source: TokenError) -> TokenFileError {
        TokenFileError::NoToken { path: self.0.clone(), source }
    }
}

impl Source for TokenSource {
    type Contents = Vec<u8>;
    type Value = BearerToken;
    type Error = TokenFileError;

    fn read(&self) -> Result<Vec<u8>, TokenFileError> {
        read_regular_file(&self.0, MAX_FILE_BYTES).map_err(|error| match error {
            ReadError::TooLarge { .. } => self.no_token(TokenError::TooLong),
            source => TokenFileError::Unreadable { path: self.0.clone(), source },
        })
    }

    fn parse(&self, bytes: Vec<u8>) -> Result<BearerToken, TokenFileError> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        BearerToken::parse(line).map_err(|source| self.no_token(source))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

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
