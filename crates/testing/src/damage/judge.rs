//! Decides whether a damaged store may give an answer.

mod part;

use anyhow::Result;

use crate::damage::{
    ask::{Answer, Answers, Question},
    base::Base,
    kinds::{Damage, Kind},
};

/// The verdict on an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The answer of the undamaged store.
    Right,
    /// An error that a damaged store may cause.
    Error,
    /// The answer names damage, and is otherwise a part of the right answer, or of that of an earlier state.
    NamesDamage,
    /// The answer of each of the earlier states with these numbers.
    Earlier(Vec<usize>),
    /// All parts of the answer are from commits, but no commit has all of them.
    Blend,
    /// A wrong answer.
    Wrong(String),
}

/// The result for a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The store cannot be opened, and the error says so.
    Refused,
    /// All answers are right.
    Right,
    /// All answers are right, or errors.
    Errors,
    /// Some answers name damage. All others are right, or errors.
    NamesDamage,
    /// All answers are of one earlier commit, except errors and answers that name damage.
    EarlierCommit,
    /// Like [`Outcome::EarlierCommit`], but the answers are of several commits. Each single answer is of one commit.
    EarlierCommits,
    /// The parts of some answers are from several commits, or rows are missing beside older pages.
    Blend,
    /// At least one answer is wrong, there was a panic, `verify` does not name damage that it must name, answers are of
    /// several commits after damage to the log, or a command of the program behaved wrongly.
    Finding,
}

/// The judgement of a damaged store.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The result for the store.
    pub outcome: Outcome,
    /// Whether `verify` names damage, or the store cannot be opened.
    pub is_named: bool,
    /// Descriptions of the findings.
    pub findings: Vec<String>,
    /// The number of answers that were errors.
    pub errors: usize,
}

/// Judges one answer. `chain` has the answers of the earlier states, if the store may give such answers.
#[must_use]
pub fn judge_answer(
    question: &Question,
    answer: &Answer,
    right: &Answer,
    chain: &[(usize, &Answer)],
) -> Verdict {
    if answer == right {
        return Verdict::Right;
    }
    match answer {
        Answer::Error(_) => return Verdict::Error,
        Answer::Mistake(what) => return Verdict::Wrong(what.clone()),
        Answer::Given { .. } => {}
    }
    let same: Vec<_> =
        chain.iter().filter(|(_, earlier)| *earlier == answer).map(|(state, _)| *state).collect();
    if !same.is_empty() {
        return Verdict::Earlier(same);
    }
    let wholes = std::iter::once(right).chain(chain.iter().map(|(_, earlier)| *earlier));
    if wholes.into_iter().any(|whole| part::names_damage(question, answer, whole)) {
        return Verdict::NamesDamage;
    }
    let wholes: Vec<_> = std::iter::once(right).chain(chain.iter().map(|(_, earlier)| *earlier)).collect();
    if !chain.is_empty() && part::is_blend(question, answer, &wholes) {
        return Verdict::Blend;
    }
    Verdict::Wrong(difference(answer, right))
}

/// Judges all answers of a damaged store.
pub fn judge(base: &Base, damage: &Damage, answers: &Answers) -> Result<Judgement> {
    let chain = &base.victims[damage.victim].chain;
    let (own, earlier) = chain.split_last().unwrap_or((&0, &[]));
    let right = base.answers(*own)?;
    let mut findings = Vec::new();
    if answers.panics > 0 {
        findings.push(format!("{} panics", answers.panics));
    }
    let may_be_earlier = damage.kind.is_of_older_pages() || damage.kind.is_of_log();
    let (mut errors, mut blends, mut names_damage, mut is_right) = (0, Vec::new(), false, true);
    // The states that agree with all answers so far.
    let mut common: Option<Vec<usize>> = None;
    let mut is_of_one_state = true;
    for (number, answer) in answers.by_question.iter().enumerate() {
        let question = &base.questions[number];
        if *answer == right.by_question[number] && !may_be_earlier {
            continue;
        }
        let mut others = Vec::new();
        if may_be_earlier {
            for state in earlier {
                others.push((*state, &base.answers(*state)?.by_question[number]));
            }
        }
        let verdict = judge_answer(question, answer, &right.by_question[number], &others);
        is_right &= matches!(verdict, Verdict::Right | Verdict::Error | Verdict::NamesDamage);
        let mut states = match verdict {
            Verdict::Error => {
                errors += 1;
                continue;
            }
            Verdict::NamesDamage => {
                names_damage = true;
                continue;
            }
            Verdict::Blend => {
                blends.push(format!("{question:?}: the answer has parts of several commits"));
                continue;
            }
            // The rows of one answer may lie on pages of several commits. `verify` reports this. See decision 0020.
            Verdict::Wrong(_) if damage.kind.is_of_older_pages() && answers.names_damage() => {
                blends.push(format!("{question:?}: the answer is made of rows of several commits"));
                continue;
            }
            // If all pages above a row are from earlier commits, a search does not find the row. See decision
            // 0020.
            Verdict::Wrong(_) if damage.kind == Kind::OlderPages && part::is_missing(answer) => {
                blends.push(format!("{question:?}: nothing was found, which is the answer of no commit"));
                continue;
            }
            Verdict::Wrong(what) => {
                findings.push(format!("{question:?}: {what}"));
                continue;
            }
            Verdict::Earlier(states) => states,
            Verdict::Right => {
                let same = others.iter().filter(|(_, other)| *other == answer);
                same.map(|(state, _)| *state).chain([*own]).collect()
            }
        };
        if let Some(common) = &common {
            states.retain(|state| common.contains(state));
        }
        is_of_one_state &= !states.is_empty();
        common = Some(states);
    }
    let is_damage_seen = errors > 0 || names_damage || !findings.is_empty();
    let outcome = if answers.opened.is_err() {
        Outcome::Refused
    } else if !blends.is_empty() {
        Outcome::Blend
    } else if !is_right {
        if is_of_one_state { Outcome::EarlierCommit } else { Outcome::EarlierCommits }
    } else if names_damage {
        Outcome::NamesDamage
    } else if errors > 0 {
        Outcome::Errors
    } else {
        Outcome::Right
    };
    let is_of_several = matches!(outcome, Outcome::EarlierCommits | Outcome::Blend);
    if is_of_several && damage.kind.is_of_log() {
        findings.push("the answers are of several commits".to_owned());
        findings.append(&mut blends);
    }
    let is_named = answers.names_damage();
    let must_be_named = is_damage_seen || (damage.changes_used_bytes && !may_be_earlier);
    if must_be_named && !is_named {
        findings.push(format!("verify does not name the damage; {errors} answers are errors"));
    }
    let outcome = if findings.is_empty() { outcome } else { Outcome::Finding };
    Ok(Judgement { outcome, is_named, findings, errors })
}

/// Shows the bytes around the first difference.
fn difference(answer: &Answer, right: &Answer) -> String {
    const SHOWN: usize = 160;
    let (Answer::Given { text, names_damage }, Answer::Given { text: right, .. }) = (answer, right) else {
        return format!("{answer:?} instead of {right:?}");
    };
    let same = text.iter().zip(right).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(SHOWN / 4);
    let part = |bytes: &[u8]| {
        let part = bytes.get(from..bytes.len().min(from + SHOWN)).unwrap_or_default();
        String::from_utf8_lossy(part).into_owned()
    };
    format!(
        "differs from byte {same} on (names damage: {names_damage}), {} bytes for {}: {:?} instead of {:?}",
        text.len(),
        right.len(),
        part(text),
        part(right)
    )
}
