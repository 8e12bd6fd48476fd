//! Asks some of the damaged stores through the program itself, to check its exit codes and messages as well.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result};
use rashomon_dumps::Format;

use crate::damage::{
    ask::{self, Answer, Answers, Question},
    base::{self, Base},
    kinds::Damage,
};

/// The exit codes of the program.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const PARTLY: i32 = 3;

/// The program `rashomon`.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a>(&'a Path);

impl<'a> Program<'a> {
    /// The program at this path.
    #[must_use]
    pub const fn new(path: &'a Path) -> Self {
        Self(path)
    }

    /// Runs `verify`, `export` and `stats` on copies of a damaged store. Returns the findings.
    pub fn check(&self, base: &Base, damage: &Damage, answers: &Answers) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        let verified = self.run(damage, &["verify"])?;
        let expected = if answers.names_damage() { FAILED } else { DONE };
        findings.extend(judge_command("verify", &verified, &[expected]));
        for (number, question) in base.questions.iter().enumerate() {
            let Question::Export(domain, true, Format::JsonLines) = question else { continue };
            let ran =
                self.run(damage, &["export", "--history", "--format", "jsonl", "--domain", domain.as_str()])?;
            findings.extend(judge_command("export", &ran, &[DONE, FAILED, PARTLY]));
            let in_process = answers.by_question.get(number);
            let is_same = match (ran.status.code(), in_process) {
                (Some(DONE | PARTLY), Some(Answer::Given { text, .. })) => *text == ran.stdout,
                (code, _) => may_fail(code, answers.names_damage(), in_process),
            };
            if !is_same {
                findings
                    .push(format!("export of {domain} differs from that of the library: {}", shown(&ran)));
            }
        }
        let ran = self.run(damage, &["stats"])?;
        findings.extend(judge_command("stats", &ran, &[DONE, FAILED]));
        Ok(findings)
    }

    fn run(&self, damage: &Damage, words: &[&str]) -> Result<Output> {
        let directory = base::scratch()?;
        damage.files.write_to(&directory.path().join("store"))?;
        let mut command = Command::new(self.0);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RASHOMON_")) {
            command.env_remove(name);
        }
        command.args(words).args(["--data", "store"]).current_dir(directory.path()).stdin(Stdio::null());
        command.output().with_context(|| format!("cannot run {}", self.0.display()))
    }
}

/// Whether an export with this exit code failed and was allowed to fail. It may fail if `verify` names damage, or if
/// the domain does not exist.
fn may_fail(code: Option<i32>, names_damage: bool, in_process: Option<&Answer>) -> bool {
    code == Some(FAILED) && (names_damage || in_process.is_some_and(is_no_domain))
}

fn is_no_domain(answer: &Answer) -> bool {
    matches!(answer, Answer::Given { text, .. } if text == ask::NO_DOMAIN)
}

/// Judges a command. A wrong exit code, a panic, and a failure without a message are findings.
fn judge_command(name: &str, ran: &Output, codes: &[i32]) -> Vec<String> {
    let mut findings = Vec::new();
    let code = ran.status.code();
    if !code.is_some_and(|code| codes.contains(&code)) {
        findings.push(format!("{name} ended with {code:?} and not {codes:?}: {}", shown(ran)));
    }
    let stderr = String::from_utf8_lossy(&ran.stderr);
    if stderr.contains("panicked") {
        findings.push(format!("{name} panicked: {}", shown(ran)));
    }
    if code != Some(DONE) && stderr.trim().is_empty() && ran.stdout.is_empty() {
        findings.push(format!("{name} ended with {code:?} without a message"));
    }
    findings
}

fn shown(ran: &Output) -> String {
    const SHOWN: usize = 600;
    let mut text = format!("{:?} {}", ran.status.code(), String::from_utf8_lossy(&ran.stderr));
    if text.len() < SHOWN {
        text.push_str(&String::from_utf8_lossy(&ran.stdout));
    }
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_may_fail_only_if_damage_is_named_or_the_domain_is_missing() {
        let no_domain = Answer::Given { text: ask::NO_DOMAIN.to_vec(), names_damage: false };
        let other = Answer::Given { text: b"{}".to_vec(), names_damage: false };
        for (code, names_damage, answer, expected) in [
            (Some(FAILED), false, &no_domain, true),
            (Some(FAILED), true, &other, true),
            (Some(FAILED), false, &other, false),
            (Some(DONE), false, &no_domain, false),
            (Some(PARTLY), true, &no_domain, false),
            (None, true, &no_domain, false),
        ] {
            assert_eq!(
                may_fail(code, names_damage, Some(answer)),
                expected,
                "{code:?} {names_damage} {answer:?}"
            );
        }
    }
}
