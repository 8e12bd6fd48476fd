//! The state of the page that is being read.

use rashomon_buckets::{NameError, PageInfo, Revision, Title};

use crate::{LeftOut, LeftOutReason};

/// The page that is being read.
#[derive(Debug, Default)]
pub(super) struct PageState {
    pub(super) line: u64,
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
        self.shown = Some(LeftOut::shorten(text));
        self.title = Some(Title::new(text));
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
