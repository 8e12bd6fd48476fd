//! The subjects of commits.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use super::Problem;

/// The last commit before this check was added. Earlier subjects have other forms.
const LAST_BEFORE: &str = "c7b0d235936088855bc4f7d7851c02148fb7156f";

/// The maximum number of characters of a subject. Many programs cut off longer ones.
const MAX_CHARACTERS: usize = 72;

/// The log of git.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// A line for each commit: its abbreviated hash, a tab, its subject.
    Read(String),
    /// The log is missing. The text is the reason.
    Missing(String),
}

/// Reads the log of the commits that this check is for.
pub(super) fn log(root: &Path) -> Result<Log> {
    log_since(root, LAST_BEFORE)
}

/// The log of the commits after `base`. Merges are omitted: git writes their subjects.
fn log_since(root: &Path, base: &str) -> Result<Log> {
    let known = git(root, &["cat-file", "-e", &format!("{base}^{{commit}}")])?;
    if !known.status.success() {
        return Ok(Log::Missing(format!("this repository has no commit {base}")));
    }
    let log = git(root, &["log", "--no-merges", "--format=%h%x09%s", &format!("{base}..HEAD")])?;
    if !log.status.success() {
        return Ok(Log::Missing(String::from_utf8_lossy(&log.stderr).trim().to_owned()));
    }
    Ok(Log::Read(String::from_utf8_lossy(&log.stdout).into_owned()))
}

fn git(root: &Path, arguments: &[&str]) -> Result<std::process::Output> {
    Command::new("git").args(arguments).current_dir(root).output().context("cannot start git")
}

/// Checks that each subject is `component: what changed`, and is short.
pub(super) fn subjects(log: &str) -> Vec<Problem> {
    let commits = log.lines().filter_map(|line| line.split_once('\t'));
    commits
        .filter_map(|(hash, subject)| {
            let path = format!("commit {hash}");
            wrong(subject).map(|wrong| Problem::file(&path, format!("{wrong}: {subject}")))
        })
        .collect()
}

fn wrong(subject: &str) -> Option<String> {
    let characters = subject.chars().count();
    if characters > MAX_CHARACTERS {
        return Some(format!("the subject has {characters} characters, more than {MAX_CHARACTERS}"));
    }
    let is_fine = subject.split_once(": ").is_some_and(|(components, change)| {
        components.split(", ").all(is_component) && change.starts_with(|letter: char| !letter.is_whitespace())
    });
    (!is_fine).then(|| "the subject is not `component: what changed`".to_owned())
}

/// A crate, or a part of the project such as `docs`.
fn is_component(name: &str) -> bool {
    let is_letter =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_/.".contains(letter);
    !name.is_empty() && name.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_the_form_are_fine() {
        let longest = format!("docs: {}", "é".repeat(MAX_CHARACTERS - 6));
        for subject in
            ["api: answer 304 to a HEAD", "tables-sqlite, cli: read: twice", "xtask/tidy: a", &longest]
        {
            assert_eq!(subjects(&format!("abc1234\t{subject}\n")), [], "{subject}");
        }
        assert_eq!(subjects(""), []);
    }

    #[test]
    fn other_subjects_are_named_with_their_commits() {
        let long = format!("docs: {}", "x".repeat(MAX_CHARACTERS - 5));
        let others = [
            "Add a thing",
            "Two words: add a thing",
            "api:no blank",
            "api: ",
            ": a",
            "api,cli: a",
            "",
            &long,
        ];
        for subject in others {
            let found = subjects(&format!("abc1234\tapi: good\ndef5678\t{subject}\n"));
            assert_eq!(found.len(), 1, "{subject}");
            assert_eq!(found[0].path, "commit def5678");
        }
    }

    fn commit(root: &Path, subject: &str) -> Result<String> {
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        let done = git(root, &[&who[..], &["commit", "--quiet", "--allow-empty", "-m", subject]].concat())?;
        assert!(done.status.success(), "{done:?}");
        Ok(String::from_utf8(git(root, &["rev-parse", "HEAD"])?.stdout)?.trim().to_owned())
    }

    #[test]
    fn commits_after_the_base_are_read() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        assert!(git(root, &["init", "--quiet"])?.status.success());
        let base = commit(root, "An old one")?;
        assert_eq!(log_since(root, &base)?, Log::Read(String::new()));
        commit(root, "api: a\n\nwhy")?;
        commit(root, "b")?;
        let Log::Read(log) = log_since(root, &base)? else { panic!("there is a log") };
        let read: Vec<_> =
            log.lines().filter_map(|line| line.split_once('\t')).map(|(_, subject)| subject).collect();
        assert_eq!(read, ["b", "api: a"]);
        assert_eq!(subjects(&log).len(), 1);
        Ok(())
    }

    #[test]
    fn a_repository_without_the_base_is_skipped() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let base = "ba84193b1831efa7c7b35b8ed9d901a1b598d14b";
        assert!(matches!(log_since(folder.path(), base)?, Log::Missing(_)));
        assert!(git(folder.path(), &["init", "--quiet"])?.status.success());
        commit(folder.path(), "the only one of a shallow clone")?;
        assert!(matches!(log_since(folder.path(), base)?, Log::Missing(_)));
        Ok(())
    }
}
