//! The project's files: the files that git knows, and new ones that it does not ignore.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The maximum size of a text file. Larger files are not written by hand.
const MAX_TEXT: u64 = 4 << 20;

/// The files of a project. Paths are relative to its root, with `/`.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    /// All files, including those that are not text, and their folders.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the files of the repository at `root`.
    pub fn load(root: &Path) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot start git")?;
        ensure!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr));
        let mut tree = Self::default();
        for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
            let file = root.join(path);
            // A file that git knows may have been deleted, or be a folder of its own (a submodule).
            let Ok(about) = fs::symlink_metadata(&file) else { continue };
            if !about.is_file() {
                continue;
            }
            tree.add_path(path);
            if about.len() <= MAX_TEXT
                && let Ok(text) = String::from_utf8(fs::read(&file)?)
            {
                tree.texts.insert(path.to_owned(), text);
            }
        }
        Ok(tree)
    }

    /// A project of these files.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add_path(path);
            tree.texts.insert((*path).to_owned(), (*text).to_owned());
        }
        tree
    }

    fn add_path(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
        let mut rest = path;
        while let Some((folder, _)) = rest.rsplit_once('/') {
            self.paths.insert(folder.to_owned());
            rest = folder;
        }
    }

    /// All files that are text, by path.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text files whose path ends with `ending`.
    pub fn ending(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| path.ends_with(ending))
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether there is such a file or folder.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    /// All files and folders.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// The number of text files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is no text file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
