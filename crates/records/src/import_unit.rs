//! The unit of an import: the rows that one batch writes together.

use crate::{
    content::Bodies,
    rows::{RenderRow, RevisionRow},
};

/// The smallest part of an import that is written in one batch: a render, with its revision if the revision
/// is new.
#[derive(Debug, Clone)]
pub struct ImportUnit {
    /// The revision, if it is new.
    pub revision: Option<RevisionRow>,
    /// The render.
    pub render: RenderRow,
    /// The bodies of new properties of the revision.
    pub of_revision: Bodies,
    /// The bodies of the render's properties.
    pub of_render: Bodies,
}

impl ImportUnit {
    /// Compresses the bodies that are not compressed, if this makes them smaller.
    pub fn compress(&mut self) {
        for body in self.of_revision.values_mut().chain(self.of_render.values_mut()) {
            body.stored.compress();
        }
    }
}
