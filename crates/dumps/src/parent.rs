//! The parent of a revision in an input.

use rashomon_pages::{Parent, Revision};

use crate::{LeftOut, LeftOutReason};

/// Parses the parent of a revision. `None` if the input has no parent. Fails if the text is not the number of a parent,
/// or is the number of the revision itself.
pub(crate) fn parse_parent(rev: Revision, text: Option<&str>) -> Result<Option<Parent>, LeftOutReason> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse().ok().and_then(Parent::from_number) {
        Some(Parent::Revision(parent)) if parent == rev => Err(LeftOutReason::OwnParent),
        Some(parent) => Ok(Some(parent)),
        None => Err(LeftOutReason::BadParent(LeftOut::shorten(text))),
    }
}
