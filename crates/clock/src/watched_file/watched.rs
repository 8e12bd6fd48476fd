//! A value that is made from the contents of files, and replaced when the contents change.

use std::{
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use xxhash_rust::xxh3::Xxh3;

/// The files of a [`Watched`] value.
pub trait Source {
    /// The contents of the files. Equal contents make equal values.
    type Contents: Hash;
    /// The value that is made from the contents.
    type Value;
    /// The reason why there is no value. Failures with the same text count as the same failure.
    type Error: fmt::Display;

    /// Reads the files. May block.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read.
    fn read(&self) -> Result<Self::Contents, Self::Error>;

    /// Makes the value.
    ///
    /// # Errors
    ///
    /// Returns an error if no value can be made from the contents.
    fn parse(&self, contents: Self::Contents) -> Result<Self::Value, Self::Error>;
}

/// A value that is made from files. It stays in use until another value is made from changed files.
///
/// `Debug` shows the source alone, since the value may be secret.
pub struct Watched<S: Source> {
    source: S,
    current: RwLock<Arc<S::Value>>,
    state: Mutex<State>,
}

/// The state after the files were last read.
struct State {
    /// The hash of the contents that the current value was made from. Contents may be secret, so only the hash is kept.
    fingerprint: u128,
    /// The text of the last failure; `None` after a success.
    failure: Option<String>,
}

/// The result of [`Watched::reload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload<E> {
    /// The files have the contents that the current value was made from.
    Unchanged,
    /// The files have changed, and the new value is in use.
    Replaced,
    /// No value can be made from the files. The previous value stays in use.
    Failed {
        /// The reason.
        error: E,
        /// Whether the failure is new: `false` if the previous reload failed for the same reason. A caller that logs
        /// only new failures does not repeat itself.
        is_new: bool,
    },
}

impl<S: Source> Watched<S> {
    /// Reads the files for the first time. May block.
    ///
    /// # Errors
    ///
    /// Returns an error if no value can be made from the files.
    pub fn open(source: S) -> Result<Self, S::Error> {
        let contents = source.read()?;
        let state = State { fingerprint: fingerprint(&contents), failure: None };
        let value = source.parse(contents)?;
        Ok(Self { source, current: RwLock::new(Arc::new(value)), state: Mutex::new(state) })
    }

    /// The source, which names the files.
    #[must_use]
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The value that is in use.
    #[must_use]
    pub fn current(&self) -> Arc<S::Value> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again. If they have changed, and a value can be made from them, replaces the value. May block:
    /// the files may be on a disk that does not answer.
    pub fn reload(&self) -> Reload<S::Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.read_changed(state.fingerprint) {
            Ok(changed) => {
                state.failure = None;
                let Some((fingerprint, value)) = changed else { return Reload::Unchanged };
                state.fingerprint = fingerprint;
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                Reload::Replaced
            }
            Err(error) => {
                let text = error.to_string();
                let is_new = state.failure.as_ref() != Some(&text);
                state.failure = Some(text);
                Reload::Failed { error, is_new }
            }
        }
    }

    /// Reads the files. If they have changed, returns the new value, with the fingerprint of the contents.
    fn read_changed(&self, known: u128) -> Result<Option<(u128, S::Value)>, S::Error> {
        let contents = self.source.read()?;
        let fingerprint = fingerprint(&contents);
        if fingerprint == known {
            return Ok(None);
        }
        Ok(Some((fingerprint, self.source.parse(contents)?)))
    }
}

impl<S: Source + fmt::Debug> fmt::Debug for Watched<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("source", &self.source).finish_non_exhaustive()
    }
}

fn fingerprint(contents: &impl Hash) -> u128 {
    let mut hasher = Xxh3::new();
    contents.hash(&mut hasher);
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::watched_file::{ReadError, read_regular_file};

    /// A file with a number.
    #[derive(Debug)]
    struct Number(PathBuf);

    impl Source for Number {
        type Contents = Vec<u8>;
        type Value = u32;
        type Error = String;

        fn read(&self) -> Result<Vec<u8>, String> {
            read_regular_file(&self.0, 10).map_err(|error: ReadError| error.to_string())
        }

        fn parse(&self, contents: Vec<u8>) -> Result<u32, String> {
            let text = String::from_utf8(contents).map_err(|error| error.to_string())?;
            text.parse().map_err(|_| format!("no number: {text}"))
        }
    }

    fn watch(directory: &Path) -> (PathBuf, Watched<Number>) {
        let path = directory.join("number");
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(Number(path.clone())).unwrap();
        (path, watched)
    }

    fn failed(error: &str, is_new: bool) -> Reload<String> {
        Reload::Failed { error: error.to_owned(), is_new }
    }

    #[test]
    fn changed_file_replaces_the_value() {
        let directory = tempfile::tempdir().unwrap();
        let (path, watched) = watch(directory.path());
        assert_eq!((watched.reload(), *watched.current()), (Reload::Unchanged, 1));
        let before = watched.current();
        fs::write(&path, "2").unwrap();
        assert_eq!((watched.reload(), *watched.current()), (Reload::Replaced, 2));
        assert_eq!(*before, 1, "a value that is in use does not change");
        assert_eq!(watched.reload(), Reload::Unchanged);
        // Another file takes its place.
        fs::write(directory.path().join("new"), "3").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!((watched.reload(), *watched.current()), (Reload::Replaced, 3));
    }

    #[test]
    fn only_changed_contents_replace_the_value() {
        let directory = tempfile::tempdir().unwrap();
        let (path, watched) = watch(directory.path());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "1").unwrap();
        assert_eq!(watched.reload(), Reload::Unchanged);
        fs::write(&path, "01").unwrap();
        assert_eq!((watched.reload(), *watched.current()), (Reload::Replaced, 1));
    }

    #[test]
    fn unusable_file_leaves_the_previous_value_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let (path, watched) = watch(directory.path());
        fs::write(&path, "x").unwrap();
        assert_eq!((watched.reload(), *watched.current()), (failed("no number: x", true), 1));
        fs::write(&path, "1").unwrap();
        assert_eq!(watched.reload(), Reload::Unchanged, "the contents of the current value are no change");
        fs::remove_file(&path).unwrap();
        assert!(matches!(watched.reload(), Reload::Failed { is_new: true, .. }));
        assert_eq!(*watched.current(), 1);
        fs::write(&path, "2").unwrap();
        assert_eq!((watched.reload(), *watched.current()), (Reload::Replaced, 2));
    }

    #[test]
    fn repeated_failure_is_not_new() {
        let directory = tempfile::tempdir().unwrap();
        let (path, watched) = watch(directory.path());
        fs::write(&path, "x").unwrap();
        assert_eq!(watched.reload(), failed("no number: x", true));
        assert_eq!(watched.reload(), failed("no number: x", false));
        fs::write(&path, "y").unwrap();
        assert_eq!(watched.reload(), failed("no number: y", true));
        assert_eq!(watched.reload(), failed("no number: y", false));
        fs::write(&path, "1").unwrap();
        assert_eq!(watched.reload(), Reload::Unchanged);
        fs::write(&path, "y").unwrap();
        assert_eq!(watched.reload(), failed("no number: y", true));
        fs::write(&path, "2").unwrap();
        assert_eq!(watched.reload(), Reload::Replaced);
        fs::write(&path, "y").unwrap();
        assert_eq!(watched.reload(), failed("no number: y", true));
    }

    #[test]
    fn unusable_file_is_refused_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        assert!(Watched::open(Number(path.clone())).is_err());
        fs::write(&path, "x").unwrap();
        assert_eq!(Watched::open(Number(path)).unwrap_err(), "no number: x");
    }

    #[test]
    fn debug_output_has_no_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "987654321").unwrap();
        let watched = Watched::open(Number(path)).unwrap();
        let shown = format!("{watched:?}");
        assert!(shown.contains("file") && !shown.contains("987654321"), "{shown}");
    }
}
