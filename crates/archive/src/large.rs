//! Bodies that are stored in chunks: large ones, and smaller ones for which memory or a batch had no room. A
//! seal or an import moves those of at most [`MAX_BODY_IN_BLOCK`] bytes into the block of their revision. If a
//! block already has a part of the revision, its bodies stay in chunks.

use std::sync::Arc;

use crate::format::{BodyLocation, MAX_BODY_IN_BLOCK, Texts, Unit};
use rashomon_tables::Error as StoreError;

use rashomon_records::{
    Error, Result, Sha1, Tid,
    content::{BodyRow, ChunkSet, ChunkStore, Stored},
};

/// Reads bodies of a revision from their chunks into `texts`, so that they go into a block. Returns the chunk
/// sets whose bodies are now in `texts`, each with its render (`None`: a body of the revision). The caller
/// releases these chunk sets when the page references the block, not before. An unreadable body stays in its
/// chunks, so that `verify` reports it.
pub(super) async fn read_from_chunks(
    chunks: &Arc<ChunkStore>,
    unit: &mut Unit,
    texts: &mut Texts,
) -> Result<Vec<(Option<Tid>, ChunkSet)>> {
    let mut taken = Vec::new();
    let of_renders = unit.renders.iter_mut().map(|(render, bodies)| (Some(render.tid), bodies));
    for (render, bodies) in std::iter::once((None, &mut unit.bodies)).chain(of_renders) {
        for (name, body) in bodies {
            let BodyLocation::Chunks(set) = body.location.clone() else { continue };
            if body.info.size > MAX_BODY_IN_BLOCK {
                continue;
            }
            let row = BodyRow { info: body.info.clone(), stored: Stored::Chunks(set.clone()) };
            match row.into_body(chunks)?.1.whole().await {
                Ok(text) if text.len() as u64 == body.info.size && Sha1::of(&text) == body.info.sha1 => {
                    texts.insert((name.clone(), render), text);
                    // A placeholder: the unit's writer sets the ordinal.
                    body.location = BodyLocation::Entry(0);
                    taken.push((render, set));
                }
                Ok(_) | Err(Error::Store(StoreError::Corrupt(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(taken)
}
