//! The revision that another was made from, as it comes.

use rashomon_buckets::{Parent, Revision};

use crate::{LeftOut, LeftOutReason};

/// Reads the parent of a revision; `None` where nothing is said of it. A revision is never its own.
pub(crate) fn of_revision(rev: Revision, text: Option<&str>) -> Result<Option<Parent>, LeftOutReason> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse().ok().and_then(Parent::from_number) {
        Some(Parent::Revision(parent)) if parent == rev => Err(LeftOutReason::OwnParent),
        Some(parent) => Ok(Some(parent)),
        None => Err(LeftOutReason::BadParent(LeftOut::shown(text))),
    }
}
