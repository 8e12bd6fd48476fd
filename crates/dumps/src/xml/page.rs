//! The state of the page that is being read.

use std::borrow::Cow;

use rashomon_pages::{NameError, PageInfo, Revision, Title};

use crate::{LeftOut, LeftOutReason};

/// Returns a title as MediaWiki normalises it: without spaces, line breaks and underscores at its ends, and with one
/// space for each run of spaces and underscores. The spaces of Unicode are spaces, too.
pub(super) fn normalise_title(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| matches!(c, '\t' | '\n' | '\r');
    let is_space = |c: char| matches!(c, '_' | '\u{180e}') || (c.is_whitespace() && !c.is_control());
    let trimmed = text.trim_matches(|c: char| is_space(c) || is_control(c));
    let mut last_is_space = false;
    let is_normal = |c: char| {
        let follows_a_space = std::mem::replace(&mut last_is_space, is_space(c));
        !last_is_space || (matches!(c, ' ' | '_') && !follows_a_space)
    };
    if trimmed.chars().all(is_normal) {
        return Cow::Borrowed(trimmed);
    }
    let words: Vec<&str> = trimmed.split(is_space).filter(|word| !word.is_empty()).collect();
    Cow::Owned(words.join(" "))
}

/// The page that is being read.
#[derive(Debug, Default)]
pub(super) struct PageState {
    pub(super) line: u64,
    /// The elements that have occurred and may occur once.
    pub(super) seen: Vec<&'static str>,
    pub(super) title: Option<Result<Title, NameError>>,
    /// The title from the input, as messages show it.
    pub(super) shown: Option<String>,
    pub(super) page_id: Option<i64>,
    pub(super) namespace: Option<i64>,
    pub(super) redirect: Option<String>,
    pub(super) restrictions: Option<String>,
    pub(super) highest: Option<Revision>,
    /// The number of revisions that came without a valid title.
    pub(super) left_out: u64,
}

impl PageState {
    pub(super) fn set_title(&mut self, text: &str) {
        let text = normalise_title(text);
        self.shown = Some(LeftOut::shorten(&text));
        self.title = Some(Title::new(&text));
    }

    /// Records that a revision was parsed, and is passed on to the import.
    pub(super) fn add_revision(&mut self, rev: Revision) {
        self.highest = self.highest.max(Some(rev));
    }

    /// The metadata of the page. `None` if no revision was passed on.
    pub(super) fn info(&self) -> Option<PageInfo> {
        Some(PageInfo {
            as_of: self.highest?,
            page_id: self.page_id,
            namespace: self.namespace,
            redirect: self.redirect.clone(),
            restrictions: self.restrictions.clone(),
        })
    }

    /// Reports the revisions that came without a valid title, if there are any.
    pub(super) fn untitled(&self) -> Option<LeftOut> {
        let reason = match &self.title {
            Some(Err(error)) => LeftOutReason::BadTitle(error.clone()),
            _ => LeftOutReason::NoTitle,
        };
        (self.left_out > 0).then(|| LeftOut {
            line: self.line,
            title: self.shown.clone(),
            rev: None,
            revisions: self.left_out,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_normalised_as_mediawiki_does() {
        for (text, title) in [
            ("A", "A"),
            (" A_b c_ ", "A_b c"),
            ("\n\tA\r\n", "A"),
            ("A  b__c _d", "A b c d"),
            ("\u{2003}A\u{2003}", "A"),
            ("A\u{a0}b", "A b"),
            ("A \u{3000}\u{180e}b", "A b"),
            ("A\u{200e}b", "A\u{200e}b"),
        ] {
            assert_eq!(normalise_title(text), title, "{text:?}");
            assert_eq!(normalise_title(title), title);
        }
    }
}
