//! What no compiler checks: the map of the code stays true, files stay small, links work.
//!
//! Each check is a function from the project's files to the problems in them, without any input of its own,
//! so that its tests can hand it files that break the rule.

mod arrows;
mod decisions;
mod markdown;
mod rust;
mod text;
mod tree;

use std::fmt;

use anyhow::Result;

pub use tree::Tree;

/// Something that has to be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, from the root of the project.
    pub path: String,
    /// The line, from 1, where it is a line's problem.
    pub line: Option<usize>,
    /// What is wrong, and the cure.
    pub message: String,
}

impl Problem {
    fn file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    /// `index` counts from 0, as iterators do.
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
    arrows::between_crates,
    arrows::workspace_lints,
    rust::sizes,
    rust::unfinished,
    rust::names,
    text::white_space,
    text::machine,
    text::registries,
    markdown::links,
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

/// Checks the project that this program was built from, prints what is wrong, and says whether nothing is.
pub fn run() -> Result<bool> {
    let tree = Tree::load(crate::root())?;
    let problems = problems(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {} files, {} problems", tree.len(), problems.len());
    Ok(problems.is_empty())
}
