//! The token of the client.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use http::HeaderValue;

use crate::{BoxError, ConfigError};

/// The size limit of a token.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// A token as the value of `Authorization` (RFC 6750). `Debug` does not show it.
pub(crate) fn header(token: &str) -> Result<HeaderValue, ConfigError> {
    let characters = token.trim_end_matches('=');
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    if characters.is_empty() || token.len() > MAX_TOKEN_BYTES || !characters.bytes().all(is_known) {
        return Err(ConfigError::Token);
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ConfigError::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

/// The source of the token.
#[derive(Debug, Clone)]
pub(crate) enum Token {
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
}

impl Token {
    /// The value of `Authorization` for the next request.
    pub(crate) async fn current(&self) -> Result<Option<HeaderValue>, BoxError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(header.clone())),
            Self::File(file) => {
                let file = Arc::clone(file);
                // The file may be on a disk that does not answer.
                Ok(Some(tokio::task::spawn_blocking(move || file.current()).await?))
            }
        }
    }
}

/// A file whose only line is a token. The file may change.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Mutex<LastToken>,
}

#[derive(Debug)]
struct LastToken {
    header: HeaderValue,
    /// Whether the last attempt to read the file failed, so that this is logged once.
    has_failed: bool,
}

impl TokenFile {
    pub(crate) fn open(path: PathBuf) -> Result<Self, ConfigError> {
        match read(&path) {
            Ok(header) => Ok(Self { path, last: Mutex::new(LastToken { header, has_failed: false }) }),
            Err(source) => Err(ConfigError::TokenFile { path, source }),
        }
    }

    /// Reads the token in the file. While the file cannot be used, returns the last valid token.
    fn current(&self) -> HeaderValue {
        let read = read(&self.path);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(header) => *last = LastToken { header, has_failed: false },
            Err(error) => {
                if !std::mem::replace(&mut last.has_failed, true) {
                    let path = self.path.display();
                    tracing::warn!(%path, %error, "cannot read the token; the previous one stays in use");
                }
            }
        }
        last.header.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue, BoxError> {
    let file = File::open(path)?;
    // Reading from a pipe might never end.
    if !file.metadata()?.is_file() {
        return Err("this is not a regular file".into());
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES as u64 + 3).read_to_string(&mut text)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(header(line.strip_suffix('\r').unwrap_or(line))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn token_becomes_a_header_that_is_not_shown() {
        for text in ["x1", "AZaz09-._~+/", "dG9rZW4=="] {
            let header = header(text).unwrap();
            assert_eq!(header, format!("Bearer {text}"));
            assert!(!format!("{header:?}").contains(text));
        }
        for text in ["", "=", "secret secret", "secret\n", "sec=ret", "Bearer secret", "secrét"] {
            let error = header(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(header(&"a".repeat(MAX_TOKEN_BYTES + 1)).is_err());
    }

    #[tokio::test]
    async fn changed_file_gives_its_token_and_an_unusable_file_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(TokenFile::open(path.clone()).is_err());
        fs::write(&path, "first\n").unwrap();
        let token = Token::File(Arc::new(TokenFile::open(path.clone()).unwrap()));
        let current = async || token.current().await.unwrap().unwrap();
        assert_eq!(current().await, "Bearer first");
        fs::write(&path, "other\r\n").unwrap();
        assert_eq!(current().await, "Bearer other");
        fs::write(&path, "two words").unwrap();
        assert_eq!(current().await, "Bearer other");
        fs::remove_file(&path).unwrap();
        assert_eq!(current().await, "Bearer other");
        fs::write(&path, "third").unwrap();
        assert_eq!(current().await, "Bearer third");
        assert!(TokenFile::open(directory.path().to_owned()).is_err());
    }
}
