//! Revisions that exceed a size limit. Each is left out by itself, and listed.

use rashomon_buckets::{Definitions, Title};

use crate::{LeftOut, LeftOutReason, SourceProperty, SourceRevision};

/// Reports a revision with a property that is larger than its definition allows. `None` if no property is too
/// large.
pub(super) fn too_large(
    title: &Title,
    revision: &SourceRevision,
    definitions: &Definitions,
) -> Option<LeftOut> {
    let fault_in = |properties: &[SourceProperty]| {
        properties.iter().find_map(|SourceProperty { name, body, .. }| {
            let (size, limit) = (body.len() as u64, definitions.get(name).max_size);
            (size > limit).then(|| LeftOutReason::TooLarge { name: name.clone(), size, limit })
        })
    };
    let in_renders = || {
        revision.renders.iter().find_map(|render| {
            let reason = Box::new(fault_in(&render.properties)?);
            Some(LeftOutReason::BadRender { tid: render.tid, reason })
        })
    };
    let reason = fault_in(&revision.properties).or_else(in_renders)?;
    let (title, rev) = (Some(LeftOut::shorten(title.as_str())), Some(revision.record.rev));
    Some(LeftOut { line: revision.line, title, rev, revisions: 1, reason })
}
