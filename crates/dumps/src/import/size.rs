//! Revisions that exceed a size limit. Each is left out by itself, and listed. If earlier renders of the revision are
//! stored already, only its further renders are left out.

use rashomon_buckets::{Definitions, Title};

use crate::{LeftOut, LeftOutReason, SourceProperty, SourceRevision};

/// Reports a revision with a property that is larger than its definition allows, and removes the renders that are
/// left out. Only a further part of a revision keeps the renders before the one with this property. `None` if no
/// property is too large.
pub(super) fn remove_too_large(
    title: &Title,
    revision: &mut SourceRevision,
    definitions: &Definitions,
) -> Option<LeftOut> {
    let fault_in = |properties: &[SourceProperty]| {
        properties.iter().find_map(|SourceProperty { name, body, .. }| {
            let (size, limit) = (body.len() as u64, definitions.get(name).max_size);
            (size > limit).then(|| LeftOutReason::TooLarge { name: name.clone(), size, limit })
        })
    };
    let in_renders = || {
        revision.renders.iter().enumerate().find_map(|(index, render)| {
            let (tid, reason) = (render.tid, Box::new(fault_in(&render.properties)?));
            Some(match revision.continued {
                true => (index, LeftOutReason::RemainingRenders { tid, reason }),
                false => (0, LeftOutReason::BadRender { tid, reason }),
            })
        })
    };
    let in_revision = fault_in(&revision.properties).map(|reason| (0, reason));
    let (kept_renders, reason) = in_revision.or_else(in_renders)?;
    revision.renders.truncate(kept_renders);
    let (title, rev) = (Some(LeftOut::shorten(title.as_str())), Some(revision.record.rev));
    Some(LeftOut { line: revision.line, title, rev, revisions: 1, reason })
}
