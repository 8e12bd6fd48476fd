//! The judge reports each kind of wrong answer, and accepts permitted answers.

use std::sync::LazyLock;

use rashomon_dumps::Format;
use rashomon_pages::DomainName;
use rashomon_testing::damage::{
    ask::{Answer, Answers, Question},
    base::Base,
    judge::{Judgement, Outcome, Verdict, judge, judge_answer},
    kinds::{Damage, Kind},
};

fn given(text: &str, names_damage: bool) -> Answer {
    Answer::Given { text: text.as_bytes().to_vec(), names_damage }
}

fn response(status: u16, body: &str) -> Answer {
    given(&format!("{status}\ncontent-type: application/json\n\n{body}"), false)
}

fn get() -> Question {
    Question::Get("/v1/en.example.org/page/Main_Page?rev/".to_owned(), None)
}

fn export(format: Format) -> Question {
    Question::Export(DomainName::new("en.example.org").expect("a domain"), true, format)
}

fn is_wrong(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wrong(_))
}

const LIST: &str = r#"{"revisions":[{"rev":2,"timestamp":"b","size":7,"href":"?rev/2/"},{"rev":1,"timestamp":"a","size":5,"href":"?rev/1/"}]}"#;

#[test]
fn response_must_be_right_or_an_error_or_name_the_damage() {
    let right = response(200, LIST);
    let judged = |answer: &Answer| judge_answer(&get(), answer, &right, &[]);
    assert_eq!(judged(&right), Verdict::Right);
    assert_eq!(judged(&Answer::Error("500 corrupt".to_owned())), Verdict::Error);
    assert!(is_wrong(&judged(&Answer::Mistake("500 internal".to_owned()))));
    assert!(is_wrong(&judged(&response(404, "{}"))));
    assert!(is_wrong(&judged(&response(200, r#"{"revisions":[]}"#))));
    assert!(is_wrong(&judged(&response(200, &LIST.replace(r#""size":5"#, r#""size":6"#)))));
    let row = r#"{"rev":1,"timestamp":"a","size":5,"href":"?rev/1/"}"#;
    let unreadable = LIST.replace(row, r#"{"rev":1,"damaged":true,"size":0,"href":"?rev/1/"}"#);
    assert_eq!(judged(&response(200, &unreadable)), Verdict::NamesDamage);
    let partly = LIST.replace(row, r#"{"rev":1,"timestamp":"a","damaged":true,"size":0,"href":"?rev/1/"}"#);
    assert_eq!(judged(&response(200, &partly)), Verdict::NamesDamage);
    assert!(is_wrong(&judged(&response(404, &partly))), "another status");
    assert!(is_wrong(&judged(&response(200, &partly.replace(r#""timestamp":"a""#, r#""timestamp":"c""#)))));
    let short = LIST.replace(&format!(",{row}"), "").replace(r#""size":7"#, r#""size":7,"damaged":true"#);
    assert!(is_wrong(&judged(&response(200, &short))), "a revision is missing beside a damaged one");
}

#[test]
fn export_may_lack_lines_only_if_it_names_the_damage() {
    let lines = [
        r#"{"kind":"page","title":"Main_Page"}"#,
        r#"{"kind":"revision","rev":1,"properties":{"wikitext":{"text":"one"}}}"#,
        r#"{"kind":"render","tid":"a","properties":{"html":{"text":"<p>"}}}"#,
        r#"{"kind":"end","pages":1,"revisions":1,"renders":1}"#,
    ];
    let right = given(&lines.join("\n"), false);
    let part = lines[..2].join("\n");
    let judged = |format, text: &str, named| judge_answer(&export(format), &given(text, named), &right, &[]);
    for format in [Format::JsonLines, Format::Xml] {
        assert_eq!(judged(format, &part, true), Verdict::NamesDamage, "{format:?}");
        assert!(
            is_wrong(&judged(format, &part, false)),
            "{format:?}: lines are missing, and no damage is named"
        );
        assert!(is_wrong(&judged(format, &part.replace("one", "two"), true)), "{format:?}: other bytes");
    }
    let without = part.replace(r#""wikitext":{"text":"one"}"#, "");
    assert_eq!(judged(Format::JsonLines, &without, true), Verdict::NamesDamage);
    let reordered = [lines[2], lines[1]].join("\n");
    assert!(is_wrong(&judged(Format::JsonLines, &reordered, true)), "another order");
}

#[test]
fn garbled_line_of_an_export_is_wrong_although_the_export_names_damage() {
    let (page, garbled) = (r#"{"kind":"page","title":"Main_Page"}"#, r#"{"kind":"revision","rev":1,"#);
    let end = r#"{"kind":"end","pages":1}"#;
    let text = format!("{page}\n{garbled}\n{end}\n");
    let judged = |right: &str| {
        judge_answer(&export(Format::JsonLines), &given(&text, true), &given(right, false), &[])
    };
    assert!(is_wrong(&judged(&format!("{page}\n{end}\n"))));
    let revision = r#"{"kind":"revision","rev":1,"properties":{}}"#;
    assert!(is_wrong(&judged(&format!("{page}\n{revision}\n{end}\n"))));
    let same = format!("{page}\n{garbled}\n{revision}\n{end}\n");
    assert_eq!(judged(&same), Verdict::NamesDamage, "the right export has the line too");
}

#[test]
fn answer_of_an_earlier_commit_is_recognized() {
    let (right, earlier) = (response(200, LIST), response(200, r#"{"revisions":[]}"#));
    let verdict = judge_answer(&get(), &earlier, &right, &[(3, &earlier), (4, &right)]);
    assert_eq!(verdict, Verdict::Earlier(vec![3]));
    assert!(is_wrong(&judge_answer(&get(), &earlier, &right, &[])));
}

#[test]
fn blends_have_only_parts_of_commits() {
    let item = |rev: i64, time: &str| format!(r#"{{"rev":{rev},"timestamp":"{time}"}}"#);
    let list =
        |items: &[String]| response(200, &format!(r#"{{"title":"A","revisions":[{}]}}"#, items.join(",")));
    let (one, two, three) = (item(1, "a"), item(2, "b"), item(3, "c"));
    let right = list(&[three.clone(), two.clone(), one.clone()]);
    let earlier = list(&[two.clone(), one.clone()]);
    let judged = |answer: &Answer| judge_answer(&get(), answer, &right, &[(1, &earlier)]);
    assert_eq!(judged(&list(&[three.clone(), one.clone()])), Verdict::Blend);
    assert!(is_wrong(&judged(&list(&[item(3, "x"), one]))), "no commit has this row");
    assert!(is_wrong(&judged(&response(404, "{}"))), "no commit has this status");
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| Base::all().expect("the stores are written"));

/// Takes the right answers of the first base's newest closed store, changes them with `alter`, and judges them.
fn judged(kind: Kind, changes_used_bytes: bool, alter: impl FnOnce(&Base, &mut Answers)) -> Judgement {
    let base = &BASES[0];
    let victim = base.victims.iter().rposition(|victim| victim.layout.is_some()).expect("a closed store");
    let own = *base.victims[victim].chain.last().expect("a state");
    let mut answers = base.answers(own).expect("answers").clone();
    alter(base, &mut answers);
    let files = base.victims[victim].files.clone();
    let damage = Damage { kind, base: 0, victim, what: String::new(), files, changes_used_bytes };
    judge(base, &damage, &answers).expect("judged")
}

/// The number of the last question for a revision list.
fn list(base: &Base) -> usize {
    let is_list = |question: &Question| matches!(question, Question::Get(path, _) if path.ends_with("?rev/"));
    base.questions.iter().rposition(is_list).expect("a list")
}

#[test]
fn stores_are_judged_by_all_their_answers() {
    assert_eq!(judged(Kind::FlippedBit, false, |_, _| {}).outcome, Outcome::Right);
    let wrong =
        judged(Kind::FlippedBit, true, |base, answers| answers.by_question[list(base)] = response(404, "{}"));
    assert_eq!(wrong.outcome, Outcome::Finding);
    let panicked = judged(Kind::FlippedBit, false, |_, answers| answers.panics = 1);
    assert_eq!(panicked.outcome, Outcome::Finding);
    let error =
        |base: &Base, answers: &mut Answers| answers.by_question[list(base)] = Answer::Error(String::new());
    let silent = judged(Kind::FlippedBit, false, error);
    assert!(
        silent.findings.iter().any(|finding| finding.contains("verify does not name the damage")),
        "{silent:?}"
    );
    let named = judged(Kind::FlippedBit, true, |base, answers| {
        error(base, answers);
        answers.verified = Ok(vec!["a row".to_owned()]);
    });
    assert_eq!((named.outcome, named.errors, named.is_named), (Outcome::Errors, 1, true));
    assert_eq!(judged(Kind::FlippedBit, true, |_, _| {}).outcome, Outcome::Finding, "used bytes, unnamed");
}

#[test]
fn earlier_commits_are_allowed_only_for_older_pages_and_logs() {
    let first = |base: &Base, answers: &mut Answers| {
        answers.by_question.clone_from(&base.answers(0).expect("answers").by_question);
    };
    assert_eq!(judged(Kind::OlderPage, true, first).outcome, Outcome::EarlierCommit);
    assert_eq!(judged(Kind::CutLog, true, first).outcome, Outcome::EarlierCommit);
    assert_eq!(judged(Kind::PageOverPage, true, first).outcome, Outcome::Finding);
    // One answer is from the first commit, and the others are from the last commit: no commit has both.
    let mixed = |base: &Base, answers: &mut Answers| {
        let is_of_first = |question: &Question| matches!(question, Question::Get(path, None) if path.ends_with("Main_Page?rev/"));
        let at = base.questions.iter().position(is_of_first).expect("the list of the first page");
        answers.by_question[at] = base.answers(0).expect("answers").by_question[at].clone();
    };
    assert_eq!(judged(Kind::OlderPage, true, mixed).outcome, Outcome::EarlierCommits);
    assert_eq!(judged(Kind::CutLog, true, mixed).outcome, Outcome::Finding);
}

/// If all pages above a row are from earlier commits, a search does not find the row.
#[test]
fn rows_may_be_missing_only_beside_several_older_pages() {
    // No commit has an answer with these words.
    let nothing = r#"{"detail":"nothing"}"#;
    let missing =
        |base: &Base, answers: &mut Answers| answers.by_question[list(base)] = response(404, nothing);
    assert_eq!(judged(Kind::OlderPages, true, missing).outcome, Outcome::Blend);
    for kind in [Kind::OlderPage, Kind::OlderLog, Kind::PageOverPage] {
        assert_eq!(judged(kind, true, missing).outcome, Outcome::Finding, "{kind:?}");
    }
    let moved = |base: &Base, answers: &mut Answers| answers.by_question[list(base)] = response(302, nothing);
    assert_eq!(judged(Kind::OlderPages, true, moved).outcome, Outcome::Finding);
}
