//! Checks rules that no compiler knows: imports, sizes, links, decisions.
//!
//! Each check is a function that takes the project's files and returns the problems in them. A check reads nothing
//! else, so a test can call it with made-up files that break the rule. Only the check of [`commits`] also reads the log
//! of git.

mod commits;
pub mod count;
mod decisions;
mod import_cycles;
mod imports;
mod manifests;
mod markdown;
mod modules;
mod rust;
mod source;
mod text;
mod tree;

use std::{fmt, path::Path};

use anyhow::Result;

pub use tree::Tree;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, from the root of the project, or a commit.
    pub path: String,
    /// The line, counted from 1. `None` if the whole file is concerned.
    pub line: Option<usize>,
    /// What is wrong, and how to correct it.
    pub message: String,
}

impl Problem {
    fn file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    /// Makes a problem of a line. `index` counts from 0, as iterators do.
    fn line(path: &str, index: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(index + 1), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree) -> Vec<Problem>;

const CHECKS: &[Check] = &[
    manifests::workspace_lints,
    import_cycles::between_folders,
    rust::sizes,
    rust::unfinished,
    rust::names,
    text::white_space,
    text::machine,
    text::registries,
    markdown::links,
    markdown::line_lengths,
    decisions::pages,
    decisions::change_log,
];

/// All problems of the project's files, sorted.
#[must_use]
pub fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems: Vec<_> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    problems.sort();
    problems
}

/// Checks the project in the folder `root`, and prints problems. Returns `true` if there are none.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let mut problems = problems(&tree);
    match commits::log(root)? {
        commits::Log::Read(log) => problems.extend(commits::subjects(&log)),
        commits::Log::Missing(reason) => println!("tidy: the subjects of commits are not checked: {reason}"),
    }
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {} files, {} problems", tree.len(), problems.len());
    Ok(problems.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_a_project_is_reported() {
        let long = "x ".repeat(61);
        let library = format!("use crate::a::A;\n{}", "\n".repeat(600));
        let tree = Tree::of(&[
            ("docs/a.md", &format!("{long}x\n")),
            ("crates/x/src/lib.rs", &library),
            ("crates/x/src/a/mod.rs", "use crate::c::C;\n"),
            ("crates/x/src/a/b.rs", "\n"),
            ("crates/x/src/c.rs", "use crate::a::A;\n"),
        ]);
        let found = problems(&tree);
        for (path, part) in [
            ("docs/a.md", "123 characters"),
            ("crates/x/src/lib.rs", "more than 600"),
            ("crates/x/src/a/mod.rs", "`a` imports `c`"),
        ] {
            let is_it = |problem: &Problem| problem.path == path && problem.message.contains(part);
            assert!(found.iter().any(is_it), "{path}: {part}");
        }
    }
}
