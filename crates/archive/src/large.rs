//! Bodies that were stored in chunks, since they are too large for a row, and that a block takes.

use std::sync::Arc;

use rashomon_tables::Error as StoreError;

use super::{
    decide::Texts,
    entries::{Place, Unit},
};
use rashomon_records::{
    Error, Result, Sha1,
    content::{BodyRow, ChunkSet, ChunkStore, Stored},
};

/// Larger bodies stay in chunks, since a reader of a block has all of it in memory.
pub(super) const LARGEST: u64 = 4 << 20;

/// Takes bodies of a revision out of their chunks, and gives the chunks that are not needed any more. Those of what
/// cannot be read stay, for `verify` to name.
pub(super) async fn take_in(
    chunks: &Arc<ChunkStore>,
    unit: &mut Unit,
    texts: &mut Texts,
) -> Result<Vec<ChunkSet>> {
    let mut taken = Vec::new();
    let of_renders = unit.renders.iter_mut().map(|(render, bodies)| (Some(render.tid), bodies));
    for (of, bodies) in std::iter::once((None, &mut unit.bodies)).chain(of_renders) {
        for (name, body) in bodies {
            let Place::Chunks(set) = body.place.clone() else { continue };
            if body.info.size > LARGEST {
                continue;
            }
            let row = BodyRow { info: body.info.clone(), stored: Stored::Chunks(set.clone()) };
            match row.into_body(chunks)?.1.whole().await {
                Ok(text) if text.len() as u64 == body.info.size && Sha1::of(&text) == body.info.sha1 => {
                    texts.insert((name.clone(), of), text);
                    body.place = Place::Entry(0);
                    taken.push(set);
                }
                Ok(_) | Err(Error::Store(StoreError::Corrupt(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(taken)
}
