//! Revisions with a property that its definition does not allow: one that is too large, or belongs to a render instead
//! of the revision. Each is left out by itself, and listed. If earlier renders of the revision are stored already, only
//! its further renders are left out.

use rashomon_pages::{Definitions, Title, Versions};

use crate::{LeftOut, LeftOutReason, SourceProperty, SourceRevision};

/// Reports a revision with a property that its definition does not allow, and removes the renders that are left out.
/// Only a further part of a revision keeps the renders before the one with this property. `None` if all properties are
/// allowed.
pub(super) fn remove_not_allowed(
    title: &Title,
    revision: &mut SourceRevision,
    definitions: &Definitions,
) -> Option<LeftOut> {
    let fault_in = |properties: &[SourceProperty], place: Versions| {
        properties.iter().find_map(|SourceProperty { name, body, .. }| {
            let definition = definitions.get(name);
            let (size, limit, name) = (body.len() as u64, definition.max_size, name.clone());
            match (definition.versions, place) {
                (Versions::Render, Versions::Revision) => Some(LeftOutReason::OnePerRender(name)),
                (Versions::Revision, Versions::Render) => Some(LeftOutReason::OnePerRevision(name)),
                _ => (size > limit).then_some(LeftOutReason::TooLarge { name, size, limit }),
            }
        })
    };
    let in_renders = || {
        revision.renders.iter().enumerate().find_map(|(index, render)| {
            let (tid, reason) = (render.tid, Box::new(fault_in(&render.properties, Versions::Render)?));
            Some(match revision.continued {
                true => (index, LeftOutReason::RemainingRenders { tid, reason }),
                false => (0, LeftOutReason::BadRender { tid, reason }),
            })
        })
    };
    let in_revision = fault_in(&revision.properties, Versions::Revision).map(|reason| (0, reason));
    let (kept_renders, reason) = in_revision.or_else(in_renders)?;
    revision.renders.truncate(kept_renders);
    let (title, rev) = (Some(LeftOut::shorten(title.as_str())), Some(revision.record.rev));
    Some(LeftOut { line: revision.line, title, rev, revisions: 1, reason })
}
