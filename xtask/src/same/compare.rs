//! Compares the answers of two programs.

/// A request or a command, and its whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) asked: String,
    pub(super) given: Vec<u8>,
}

/// Describes the first answer in which two runs differ. `None`: nothing differs, except perhaps the values of tids and
/// measured times.
pub(super) fn difference(old: &[Answer], new: &[Answer]) -> Option<String> {
    let mut tids = (TidNumbers::default(), TidNumbers::default());
    for (number, (old, new)) in old.iter().zip(new).enumerate() {
        let asked = (tids.0.normalize(old.asked.as_bytes()), tids.1.normalize(new.asked.as_bytes()));
        let given = (tids.0.normalize(&old.given), tids.1.normalize(&new.given));
        if asked.0 != asked.1 || given.0 != given.1 {
            return Some(describe(number, &asked.0, &asked.1, &given.0, &given.1));
        }
    }
    (old.len() != new.len()).then(|| format!("{} answers before, {} after", old.len(), new.len()))
}

fn describe(number: usize, old_asked: &str, new_asked: &str, old: &str, new: &str) -> String {
    let at = old.bytes().zip(new.bytes()).take_while(|(old, new)| old == new).count();
    let around = |text: &str| {
        let start =
            (0..=at.saturating_sub(400).min(text.len())).rev().find(|start| text.is_char_boundary(*start));
        let end = (at + 400).min(text.len());
        let end = (end..=text.len()).find(|end| text.is_char_boundary(*end));
        text[start.unwrap_or(0)..end.unwrap_or(text.len())].to_owned()
    };
    let asked = if old_asked == new_asked {
        old_asked.to_owned()
    } else {
        format!("{old_asked}\n(after) {new_asked}")
    };
    format!("step {number}: {asked}\n--- before\n{}\n--- after\n{}", around(old), around(new))
}

/// The tids of a run, each with its number in the order of their first appearance.
#[derive(Debug, Default)]
struct TidNumbers(std::collections::HashMap<String, usize>);

impl TidNumbers {
    /// Replaces each tid of a text by its number, and removes measured times.
    fn normalize(&mut self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let mut result = String::with_capacity(text.len());
        let mut rest = &*text;
        while let Some(at) = find_tid(rest) {
            let (before, after) = rest.split_at(at);
            let (tid, after) = after.split_at(TID);
            let next = self.0.len();
            let number = *self.0.entry(tid.to_owned()).or_insert(next);
            result.push_str(before);
            result.push_str(&format!("<tid {number}>"));
            rest = after;
        }
        result.push_str(rest);
        result.lines().map(without_measured_times).collect::<Vec<_>>().join("\n")
    }
}

/// The length of a tid in bytes.
const TID: usize = 36;

/// Finds the offset of the first tid in a text.
pub(super) fn find_tid(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_tid = |window: &[u8]| {
        window.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'1',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
    };
    bytes.windows(TID).position(is_tid)
}

/// Removes the end of a command's line that says how long the command took: ", in 0.1 s (112 rows/s, 6.9
/// kB/s)".
fn without_measured_times(line: &str) -> &str {
    match line.find(" in ") {
        Some(at) if line[at..].contains(" s") && line[at + 4..].starts_with(|c: char| c.is_ascii_digit()) => {
            &line[..at]
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(texts: &[&str]) -> Vec<Answer> {
        let answer = |text: &&str| Answer { asked: "GET /".to_owned(), given: text.as_bytes().to_vec() };
        texts.iter().map(answer).collect()
    }

    const A: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";
    const B: &str = "9f545ba0-2601-11e3-885c-4160918f0fb9";

    #[test]
    fn tids_may_differ_if_their_places_are_equal() {
        let one = [format!("{A} {B}"), B.to_owned()];
        let same = [format!("{B} {A}"), A.to_owned()];
        let other = [format!("{B} {A}"), B.to_owned()];
        let answers = |texts: &[String; 2]| answers(&[&texts[0], &texts[1]]);
        assert_eq!(difference(&answers(&one), &answers(&same)), None);
        assert!(difference(&answers(&one), &answers(&other)).is_some());
    }

    #[test]
    fn measured_times_may_differ() {
        assert_eq!(
            difference(&answers(&["1 row, in 0.1 s"]), &answers(&["1 row, in 7.3 s (2 rows/s)"])),
            None
        );
        assert!(difference(&answers(&["abc"]), &answers(&["abd"])).unwrap().contains("step 0: GET /"));
        assert!(difference(&answers(&["a", "b"]), &answers(&["a"])).is_some());
    }
}
