//! The pages in `docs/decisions`, and the change log.

use super::{Problem, Tree};

const FOLDER: &str = "docs/decisions/";
const STATUS: &[&str] = &["accepted", "proposed", "superseded by "];
const SECTIONS: &[&str] = &["## Context", "## Decision", "## Consequences"];

/// Checks that every decision has a unique number, a title, a status, a date and its three sections.
pub(super) fn pages(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut before: Option<&str> = None;
    for (path, text) in tree.ending(".md").filter(|(path, _)| path.starts_with(FOLDER)) {
        let name = &path[FOLDER.len()..];
        if name == "README.md" {
            continue;
        }
        let wrong = wrong(name, text, before);
        problems.extend(wrong.into_iter().map(|message| Problem::file(path, message)));
        before = name.get(..4);
    }
    problems
}

fn wrong(name: &str, text: &str, before: Option<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    let number = name.split_once('-').map(|(number, _)| number);
    match number.filter(|number| number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit())) {
        None => {
            wrong.push(
                "its name is not four digits and words, such as 0001-the-decision-as-a-sentence.md"
                    .to_owned(),
            );
        }
        Some(number) => {
            if before == Some(number) {
                wrong.push(format!("there are two decisions {number}"));
            }
            if !text.starts_with(&format!("# {number}: ")) {
                wrong.push(format!("its first line is not `# {number}: the decision as a sentence`"));
            }
        }
    }
    if !STATUS.iter().any(|status| field(text, "Status").is_some_and(|value| value.starts_with(status))) {
        wrong.push(format!("no line `Status: ` with one of {STATUS:?}"));
    }
    if !field(text, "Date").is_some_and(is_date) {
        wrong.push("no line with a date, such as `Date: 2026-01-31`".to_owned());
    }
    let missing = SECTIONS.iter().filter(|section| !text.lines().any(|line| line == **section));
    wrong.extend(missing.map(|section| format!("no section `{section}`")));
    wrong
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn is_date(text: &str) -> bool {
    let shape: String =
        text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    shape == "0000-00-00"
}

/// Checks that the change log has a section for unreleased changes.
pub(super) fn change_log(tree: &Tree) -> Vec<Problem> {
    const PATH: &str = "CHANGELOG.md";
    let fine = tree.text(PATH).is_some_and(|text| text.lines().any(|line| line == "## Unreleased"));
    if fine { Vec::new() } else { vec![Problem::file(PATH, "no section `## Unreleased`")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# 0001: A thing\n\nStatus: accepted\nDate: 2026-11-21\n\n## Context\n\n## Decision\n\n## Consequences\n";

    fn check(name: &str, text: &str) -> Vec<String> {
        let path = format!("{FOLDER}{name}");
        pages(&Tree::of(&[(&path, text)])).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_whole_decision_is_fine() {
        assert!(check("0001-a-thing.md", GOOD).is_empty());
        assert!(check("README.md", "# Decisions\n").is_empty());
    }

    #[test]
    fn each_missing_part_is_reported() {
        for (part, other) in [
            ("Status: accepted", "Status: fine"),
            ("Date: 2026-11-21", "Date: today"),
            ("# 0001: ", "# "),
            ("## Context", "## Text"),
            ("## Decision", "### Decision"),
            ("## Consequences", ""),
        ] {
            let broken = GOOD.replacen(part, other, 1);
            assert_eq!(check("0001-a-thing.md", &broken).len(), 1, "{part}");
        }
        assert_eq!(check("a-thing.md", GOOD).len(), 1);
    }

    #[test]
    fn two_decisions_of_one_number_are_found() {
        let files = [("docs/decisions/0001-a.md", GOOD), ("docs/decisions/0001-b.md", GOOD)];
        assert_eq!(pages(&Tree::of(&files)).len(), 1);
    }

    #[test]
    fn a_change_log_without_unreleased_is_found() {
        assert_eq!(change_log(&Tree::of(&[("CHANGELOG.md", "# Changes\n")])).len(), 1);
        assert_eq!(change_log(&Tree::of(&[])).len(), 1);
        assert_eq!(change_log(&Tree::of(&[("CHANGELOG.md", "# Changes\n\n## Unreleased\n")])), []);
    }
}
