//! Formats values for HTML pages.

use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{RevisionRecord, SlotRecord, Tid};

/// A time, in UTC.
#[derive(Debug)]
pub(super) struct Time {
    /// In RFC 3339, with all its digits.
    pub(super) exact: String,
    /// `2013-09-25 16:43:09`
    pub(super) shown: String,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        let exact = rfc3339::format(time);
        // The date has the 10 characters before the T, and the time of day the 8 characters after it.
        let shown = exact.chars().take(19).map(|letter| if letter == 'T' { ' ' } else { letter }).collect();
        Self { exact, shown }
    }
}

/// A link to a render.
#[derive(Debug)]
pub(super) struct RenderLink {
    pub(super) tid: Tid,
    pub(super) time: Time,
}

impl From<Tid> for RenderLink {
    fn from(tid: Tid) -> Self {
        Self { tid, time: tid.time().into() }
    }
}

/// Formats a number with its digits in groups of three: `7,021`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The author of a revision.
pub(super) fn by(record: &RevisionRecord) -> String {
    if record.export.user_deleted {
        return "(hidden)".to_owned();
    }
    record.user.clone().filter(|user| !user.is_empty()).unwrap_or_else(|| "somebody".to_owned())
}

/// The comment of a revision; empty if there is none.
pub(super) fn comment(record: &RevisionRecord) -> String {
    if record.export.comment_deleted {
        return "(hidden)".to_owned();
    }
    record.comment.clone().unwrap_or_default()
}

/// The first letters of a text, with an ellipsis if there are more.
pub(super) fn beginning(mut text: String, letters: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(letters) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The erasure of a revision's content.
#[derive(Debug)]
pub(super) struct Erased {
    pub(super) time: Time,
    pub(super) by: Option<String>,
}

/// The erasure of a revision, if it was erased.
pub(super) fn erased(record: &RevisionRecord) -> Option<Erased> {
    let erasure = record.erased.as_ref()?;
    Some(Erased { time: erasure.at.into(), by: erasure.by.clone() })
}

/// Whether the wiki of origin had hidden the text of a revision.
pub(super) fn text_is_hidden(record: &RevisionRecord) -> bool {
    let SlotRecord { deleted, .. } = record.export.main.clone().unwrap_or_default();
    deleted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        for (text, shown) in [("", ""), ("äöü", "äöü"), ("äöüß", "äöü…")] {
            assert_eq!(beginning(text.to_owned(), 3), shown);
        }
    }

    #[test]
    fn numbers_are_grouped_in_threes() {
        for (number, text) in [
            (0, "0"),
            (12, "12"),
            (999, "999"),
            (1000, "1,000"),
            (123_456, "123,456"),
            (7_654_321, "7,654,321"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn times_are_shown_to_the_second_and_kept_to_the_microsecond() {
        let time = Time::from(Timestamp::from_micros(1_380_127_389_274_000));
        assert_eq!(
            (time.shown.as_str(), time.exact.as_str()),
            ("2013-09-25 16:43:09", "2013-09-25T16:43:09.274Z")
        );
    }
}
