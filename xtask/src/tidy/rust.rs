//! Checks of Rust sources: sizes, words that mean unfinished work, names that mean nothing.

use super::{Problem, Tree};

/// The maximum number of lines of a file, because a file should have one subject. Tests are read one at a time, so
/// files of tests may be longer.
const MAX_LINES: usize = 600;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Words that mark unfinished work. They are split, so that this file does not contain them.
const UNFINISHED: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimplem", "ented!"),
    concat!("db", "g!"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Words that are refused in comments only: a message may use them for a temporary state.
const UNFINISHED_IN_COMMENTS: &[&str] = &[concat!("for", " now")];

/// Names that attract unrelated code.
const MEANINGLESS_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc"];

/// Whether a file holds only tests or benchmarks.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.contains("/benches/")
}

/// Checks that no file is too long. Files of tests may have any length.
pub(super) fn sizes(tree: &Tree) -> Vec<Problem> {
    tree.ending(".rs")
        .filter(|(path, _)| !is_test(path) && !LONG_FILES.iter().any(|(longer, _)| longer == path))
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            let message = format!("{lines} lines, more than {MAX_LINES}: give the second idea its own file");
            (lines > MAX_LINES).then(|| Problem::file(path, message))
        })
        .collect()
}

/// Checks that no work is marked as unfinished.
pub(super) fn unfinished(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (index, line) in text.lines().enumerate() {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            let anywhere = UNFINISHED.iter().filter(|word| has_word(line, word));
            let in_comments = UNFINISHED_IN_COMMENTS.iter().filter(|word| has_word(comment, word));
            for word in anywhere.chain(in_comments) {
                problems.push(Problem::line(path, index, format!("`{word}`: finish it, or open an issue")));
            }
        }
    }
    problems
}

/// Whether the line has the word, and not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(in_word) && line[at + word.len()..].starts_with(in_word);
        !line[..at].ends_with(in_word) && !goes_on
    })
}

/// Checks that files, folders, modules and crates have meaningful names.
pub(super) fn names(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in tree.paths() {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.strip_suffix(".rs").unwrap_or(name);
        if MEANINGLESS_NAMES.contains(&stem) {
            problems.push(Problem::file(path, "a name without meaning: name the content"));
        }
    }
    for (path, text) in tree.ending(".rs") {
        for (index, line) in text.lines().enumerate() {
            // Modules in files of their own are checked by their paths.
            if let Some(name) = inline_module(line)
                && MEANINGLESS_NAMES.contains(&name)
            {
                problems.push(Problem::line(path, index, format!("a module named {name}: name the content")));
            }
        }
    }
    problems
}

fn inline_module(line: &str) -> Option<&str> {
    let line = line.trim().strip_suffix('{')?.trim_end();
    let (before, name) = line.rsplit_once(' ')?;
    (before == "mod" || (before.starts_with("pub") && before.ends_with(" mod"))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    #[test]
    fn a_long_file_is_named_unless_it_is_a_test() {
        let fits = "x\n".repeat(MAX_LINES);
        let long = "x\n".repeat(MAX_LINES + 1);
        assert!(sizes(&with("crates/a/src/lib.rs", &fits)).is_empty());
        assert_eq!(sizes(&with("crates/a/src/lib.rs", &long)).len(), 1);
        assert!(sizes(&with("crates/a/tests/all.rs", &long)).is_empty());
        assert!(sizes(&with("crates/a/src/scan/tests.rs", &long)).is_empty());
        assert!(sizes(&with("docs/long.md", &long)).is_empty());
    }

    #[test]
    fn each_word_of_unfinished_work_is_found() {
        for word in UNFINISHED.iter().chain(UNFINISHED_IN_COMMENTS) {
            let line = format!("fn a() {{\n    b(); // {word}\n}}\n");
            let found = unfinished(&with("a.rs", &line));
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].line, Some(2));
        }
    }

    #[test]
    fn a_part_of_another_word_is_not_found() {
        let (shout, print, later) = (UNFINISHED[4], UNFINISHED[2], UNFINISHED_IN_COMMENTS[0]);
        let line = format!("let a = \"{shout}Y{shout} {later}\"; // {later}here my_{print}\n");
        assert_eq!(unfinished(&with("a.rs", &line)), []);
    }

    #[test]
    fn names_that_mean_nothing_are_found_in_paths_and_in_files() {
        assert_eq!(names(&with("crates/a/src/util.rs", "")).len(), 1);
        assert_eq!(names(&with("crates/common/src/lib.rs", "")).len(), 1);
        assert_eq!(names(&with("crates/a/tests/common/mod.rs", "")).len(), 1);
        assert_eq!(names(&with("a.rs", "pub(crate) mod helpers {\n}\n")).len(), 1);
        assert_eq!(names(&with("crates/a/src/commonplace.rs", "mod utilities {\n}\nlet common = 1;\n")), []);
    }
}
