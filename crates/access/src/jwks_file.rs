//! The file with the keys that verify JSON Web Tokens. It is read again when it changes.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use crate::jwt::KeySet;

/// The maximum size of the file.
const MAX_BYTES: u64 = 4 << 20;

/// A file with a set of keys.
#[derive(Debug)]
pub(crate) struct JwksFile {
    path: PathBuf,
    current: RwLock<Arc<KeySet>>,
    state: Mutex<State>,
}

/// The state after the last reading of the file.
#[derive(Debug)]
struct State {
    /// The content of the file that `current` was made from.
    text: Vec<u8>,
    /// The last error that was logged, so that the same error is logged once.
    logged: Option<String>,
}

/// The error for a file of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the JWKS file {path}: {reason}")]
pub struct JwksError {
    path: String,
    reason: String,
}

/// Checks that a file of keys can be used.
pub fn check_jwks_file(path: &Path) -> Result<(), JwksError> {
    JwksFile::open(path).map(drop)
}

impl JwksFile {
    /// Reads the file for the first time.
    pub(crate) fn open(path: &Path) -> Result<Self, JwksError> {
        let error = |reason: String| JwksError { path: path.display().to_string(), reason };
        let text = read(path).map_err(|cause| error(format!("it cannot be read: {cause}")))?;
        let keys = KeySet::parse(&text).map_err(|cause| error(cause.to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            current: RwLock::new(Arc::new(keys)),
            state: Mutex::new(State { text, logged: None }),
        })
    }

    /// The keys.
    pub(crate) fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again. If it has changed and can be used, its keys replace the earlier ones. Otherwise
    /// the earlier ones stay, and the log says why. Returns whether the keys were replaced. Blocks.
    pub(crate) fn reload(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match read(&self.path) {
            Ok(text) if text == state.text => Ok(None),
            Ok(text) => {
                KeySet::parse(&text).map(|keys| Some((text, keys))).map_err(|cause| cause.to_string())
            }
            Err(cause) => Err(format!("it cannot be read: {cause}")),
        };
        match changed {
            Ok(None) => {
                state.logged = None;
                false
            }
            Ok(Some((text, keys))) => {
                tracing::info!(path = %self.path.display(), keys = keys.len(), "the JWKS file has changed");
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                *state = State { text, logged: None };
                true
            }
            Err(reason) => {
                if state.logged.as_ref() != Some(&reason) {
                    tracing::error!(
                        path = %self.path.display(), reason,
                        "the JWKS file cannot be used; the earlier keys stay in use"
                    );
                    state.logged = Some(reason);
                }
                false
            }
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
