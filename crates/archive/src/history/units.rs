//! Converts imported revisions into units of blocks.

use crate::format::{ArchivedBody, Bodies, BodyLocation, Texts, Unit};
use rashomon_clock::Timestamp;
use rashomon_records::{
    Error, ImportUnit, Result, Tid,
    content::{Bodies as NewBodies, Stored},
};

/// Converts the rows of an imported revision, with the write time `at`, into a unit of a block and its texts.
pub(super) fn unit_of_rows(mut renders: Vec<ImportUnit>, at: Timestamp) -> Result<(Unit, Texts)> {
    let mut texts = Texts::new();
    let first = renders.first_mut();
    let first = first.and_then(|unit| Some((unit.revision.take()?, std::mem::take(&mut unit.of_revision))));
    let Some((mut revision, of_revision)) = first else {
        return Err(Error::Invalid("an imported revision needs at least one render".to_owned()));
    };
    (revision.stored_at, revision.written_at) = (at, at);
    let bodies = take_texts(&mut texts, of_revision, None, at)?;
    let mut sealed = Vec::with_capacity(renders.len());
    for ImportUnit { mut render, of_render, .. } in renders {
        (render.stored_at, render.written_at) = (at, at);
        let bodies = take_texts(&mut texts, of_render, Some(render.tid), at)?;
        sealed.push((render, bodies));
    }
    Ok((Unit { revision, bodies, renders: sealed }, texts))
}

fn take_texts(
    texts: &mut Texts,
    bodies: NewBodies,
    of: Option<Tid>,
    written_at: Timestamp,
) -> Result<Bodies> {
    let mut taken = Bodies::new();
    for (name, body) in bodies {
        let text = body.stored.plain(body.info.size)?;
        let location = match body.stored {
            Stored::Chunks(set) => BodyLocation::Chunks(set),
            _ => {
                texts.insert((name.clone(), of), text.unwrap_or_default());
                BodyLocation::Entry(0)
            }
        };
        taken.insert(name, ArchivedBody { info: body.info, written_at, location });
    }
    Ok(taken)
}

/// The size of the bodies in bytes.
pub(super) fn size_of(unit: &ImportUnit) -> u64 {
    unit.of_revision.values().chain(unit.of_render.values()).map(|body| body.info.size).sum()
}
