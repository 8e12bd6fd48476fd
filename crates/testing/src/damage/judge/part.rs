//! Compares answers part by part: an answer may name damage if the rest of the answer is right, or may have parts
//! of several commits.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::damage::ask::{Answer, Question};
use rashomon_dumps::Format;

/// Whether an answer names damage, and is otherwise a part of `whole`. The text of statistics is not compared. A
/// response that is not JSON is not compared either: it names damage if it has the word `damaged` more often than
/// `whole`.
pub(super) fn names_damage(question: &Question, answer: &Answer, whole: &Answer) -> bool {
    let (Answer::Given { text, names_damage }, Answer::Given { text: whole, .. }) = (answer, whole) else {
        return false;
    };
    match question {
        Question::Get(..) => response_names_damage(text, whole),
        Question::Export(_, _, Format::JsonLines) => *names_damage && lines_are_part(text, whole),
        Question::Export(..) => *names_damage && lines_are_among(text, whole),
        Question::Stats(_) | Question::Tables => *names_damage,
    }
}

fn response_names_damage(text: &[u8], whole: &[u8]) -> bool {
    let (Some((status, body)), Some((whole_status, whole))) = (split(text), split(whole)) else {
        return false;
    };
    if status != whole_status {
        return false;
    }
    match (serde_json::from_slice::<Value>(body), serde_json::from_slice::<Value>(whole)) {
        (Ok(body), Ok(whole)) => has_damage(&body) && is_part(&body, &whole),
        // HTML pages name damage in a sentence.
        _ => count(body, b"damaged") > count(whole, b"damaged"),
    }
}

/// The status and the body of a response.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let body = text.windows(2).position(|two| two == b"\n\n")?;
    let status = text.iter().position(|byte| *byte == b'\n')?;
    Some((&text[..status], &text[body + 2..]))
}

fn count(text: &[u8], word: &[u8]) -> usize {
    text.windows(word.len()).filter(|window| *window == word).count()
}

fn has_damage(value: &Value) -> bool {
    match value {
        Value::Object(members) => is_damaged(members) || members.values().any(has_damage),
        Value::Array(items) => items.iter().any(has_damage),
        _ => false,
    }
}

fn is_damaged(members: &Map<String, Value>) -> bool {
    members.get("damaged") == Some(&Value::Bool(true))
}

/// Whether all members and items are those of `whole`. A damaged item may lack members, and its size and counts may
/// differ.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            let damaged = is_damaged(part);
            // If the row of a revision is damaged, only the number of the revision is known.
            let is_unreadable = damaged && whole.contains_key("timestamp") && !part.contains_key("timestamp");
            let is_right = |(name, value): (&String, &Value)| {
                // Sizes and counts of a damaged item cover only its undamaged parts.
                let is_of_rest = damaged && matches!(name.as_str(), "damaged" | "size" | "renders" | "tid");
                let says_nothing = is_unreadable && !matches!(name.as_str(), "rev" | "href");
                is_of_rest || says_nothing || whole.get(name).is_some_and(|whole| is_part(value, whole))
            };
            part.iter().all(is_right) && (damaged || part.len() == whole.len())
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        (part, whole) => part == whole,
    }
}

/// Whether an answer says that something does not exist.
pub(super) fn is_missing(answer: &Answer) -> bool {
    matches!(answer, Answer::Given { text, .. } if text.starts_with(b"404\n"))
}

/// Whether all parts of an answer are parts of the answers of some commits: lines of a text, or members and items of
/// JSON. Counts may have any value, so statistics are always a blend.
pub(super) fn is_blend(question: &Question, answer: &Answer, wholes: &[&Answer]) -> bool {
    let Answer::Given { text, .. } = answer else { return false };
    let wholes: Vec<_> = wholes
        .iter()
        .filter_map(|whole| match whole {
            Answer::Given { text, .. } => Some(&text[..]),
            _ => None,
        })
        .collect();
    let is_count = |line: &[u8]| count(line, b"\"kind\":\"end\"") > 0;
    match question {
        Question::Stats(_) | Question::Tables => true,
        Question::Export(..) => {
            let lines: HashSet<_> =
                wholes.iter().flat_map(|whole| whole.split(|byte| *byte == b'\n')).collect();
            text.split(|byte| *byte == b'\n').all(|line| lines.contains(line) || is_count(line))
        }
        Question::Get(..) => {
            let (Some((status, body)), wholes) =
                (split(text), wholes.iter().filter_map(|whole| split(whole)))
            else {
                return false;
            };
            let bodies: Vec<_> = wholes.filter(|(other, _)| *other == status).map(|(_, body)| body).collect();
            let known: HashSet<_> = bodies.iter().flat_map(|body| parts(body)).collect();
            !bodies.is_empty() && parts(body).iter().all(|part| known.contains(part))
        }
    }
}

/// The parts of a body: items and members of JSON, lines of anything else.
fn parts(body: &[u8]) -> Vec<String> {
    let mut parts = Vec::new();
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => add_parts(&value, &mut parts),
        Err(_) => {
            // In a timemap, the first and the last line are marked, and each line except the last ends with a comma.
            let plain = |line: &str| line.trim_end_matches(',').replace("first ", "").replace("last ", "");
            parts.extend(String::from_utf8_lossy(body).lines().map(plain));
        }
    }
    parts
}

fn add_parts(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::Array(_) => add_parts(value, parts),
                    // The start of the next result page depends on the content of the list.
                    _ if name == "next" => {}
                    _ => parts.push(format!("{name}: {value}")),
                }
            }
        }
        Value::Array(items) => parts.extend(items.iter().map(ToString::to_string)),
        value => parts.push(value.to_string()),
    }
}

/// Whether each line is a line of the undamaged export, in the same order. A line of JSON may lack some members. The
/// last line has counts, which may differ. A line that is not JSON must be the same. Empty lines are not compared.
fn lines_are_part(text: &[u8], whole: &[u8]) -> bool {
    fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], Option<Value>)> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| (line, serde_json::from_slice(line).ok()))
    }
    let whole: Vec<_> = lines(whole).collect();
    let mut rest = &whole[..];
    for (line, value) in lines(text) {
        if value.as_ref().is_some_and(|value| value["kind"] == "end") {
            continue;
        }
        let is_it = |(whole_line, whole): &(&[u8], Option<Value>)| match (&value, whole) {
            (Some(value), Some(whole)) => is_line_of(value, whole),
            _ => line == *whole_line,
        };
        match rest.iter().position(is_it) {
            Some(at) => rest = &rest[at + 1..],
            None => return false,
        }
    }
    true
}

fn is_line_of(line: &Value, whole: &Value) -> bool {
    let (Value::Object(line), Value::Object(whole)) = (line, whole) else { return false };
    line.iter().all(|(name, value)| match (name.as_str(), value, whole.get(name)) {
        ("properties", Value::Object(part), Some(Value::Object(whole))) => {
            part.iter().all(|(name, value)| whole.get(name) == Some(value))
        }
        (_, value, whole) => whole == Some(value),
    })
}

/// Whether each line is a line of the undamaged export.
fn lines_are_among(text: &[u8], whole: &[u8]) -> bool {
    let whole: HashSet<_> = whole.split(|byte| *byte == b'\n').collect();
    text.split(|byte| *byte == b'\n').all(|line| whole.contains(line))
}
