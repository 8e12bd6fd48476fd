//! The identity of a body.

use rashomon_records::{Page, PropertyName, Revision, Tid, Versions};

/// Names a body: a property of a render, or of its revision.
#[derive(Debug, Clone, Copy)]
pub struct BodyId<'a> {
    /// The page.
    pub page: &'a Page,
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Tid,
    /// The property.
    pub name: &'a PropertyName,
    /// Whether the property belongs to the render or to the revision.
    pub versions: Versions,
}

impl BodyId<'_> {
    /// The revision, and the render if the property belongs to the render.
    #[must_use]
    pub fn value(self) -> (Revision, Option<Tid>) {
        (self.rev, (self.versions == Versions::Render).then_some(self.tid))
    }
}
