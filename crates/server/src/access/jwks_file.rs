//! The file with the keys that verify JSON Web Tokens. The keys are replaced when the file changes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rashomon_clock::watched_file::{Reload, Source, Watched, read_regular_file};

use crate::access::jwt::KeySet;

/// The maximum size of the file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A file with a set of keys.
#[derive(Debug)]
pub(crate) struct JwksFile(Watched<JwksSource>);

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
        let watched = Watched::open(JwksSource(path.to_owned()));
        watched.map(Self).map_err(|reason| JwksError { path: path.display().to_string(), reason })
    }

    /// The keys.
    pub(crate) fn keys(&self) -> Arc<KeySet> {
        self.0.current()
    }

    /// Reads the file again. If the file has changed and can be used, its keys replace the earlier keys. Otherwise
    /// the earlier keys stay, and a new reason is logged. Returns whether the keys were replaced. Blocks.
    pub(crate) fn reload(&self) -> bool {
        let path = self.0.source().0.display();
        match self.0.reload() {
            Reload::Replaced => {
                tracing::info!(%path, keys = self.keys().len(), "the JWKS file has changed");
                return true;
            }
            Reload::Failed { error: reason, is_new: true } => {
                tracing::error!(%path, reason, "the JWKS file cannot be used; the earlier keys stay in use");
            }
            Reload::Failed { .. } | Reload::Unchanged => {}
        }
        false
    }
}

/// The path of a file with a set of keys.
#[derive(Debug)]
struct JwksSource(PathBuf);

impl Source for JwksSource {
    type Contents = Vec<u8>;
    type Value = KeySet;
    type Error = String;

    fn read(&self) -> Result<Vec<u8>, String> {
        read_regular_file(&self.0, MAX_FILE_BYTES).map_err(|error| format!("it cannot be read: {error}"))
    }

    fn parse(&self, text: Vec<u8>) -> Result<KeySet, String> {
        KeySet::parse(&text).map_err(|error| error.to_string())
    }
}
