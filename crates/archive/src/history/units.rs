//! Converts imported revisions: into units of blocks, and into rows.

use rashomon_archive_format::{ArchivedBody, Bodies, BodyLocation, Texts, Unit};
use rashomon_clock::Timestamp;
use rashomon_records::{
    Error, ImportRevision, ImportUnit, Result, Tid,
    content::{Bodies as NewBodies, Stored},
};

/// Converts the rows of an imported revision, with the write time `at`, into a unit of a block and its texts.
pub(super) fn unit_of_rows(renders: &[ImportUnit], at: Timestamp) -> Result<(Unit, Texts)> {
    let mut texts = Texts::new();
    let first = renders.first().and_then(|unit| Some((unit.revision.clone()?, &unit.of_revision)));
    let Some((mut revision, of_revision)) = first else {
        return Err(Error::Invalid("an imported revision needs at least one render".to_owned()));
    };
    (revision.stored_at, revision.written_at) = (at, at);
    let bodies = take_texts(&mut texts, of_revision, None, at)?;
    let mut sealed = Vec::with_capacity(renders.len());
    for unit in renders {
        let mut render = unit.render.clone();
        (render.stored_at, render.written_at) = (at, at);
        let bodies = take_texts(&mut texts, &unit.of_render, Some(render.tid), at)?;
        sealed.push((render, bodies));
    }
    Ok((Unit { revision, bodies, renders: sealed }, texts))
}

fn take_texts(
    texts: &mut Texts,
    bodies: &NewBodies,
    of: Option<Tid>,
    written_at: Timestamp,
) -> Result<Bodies> {
    let mut taken = Bodies::new();
    for (name, body) in bodies {
        let location = match (&body.stored, body.stored.plain(body.info.size)?) {
            (Stored::Chunks(set), _) => BodyLocation::Chunks(set.clone()),
            (_, text) => {
                texts.insert((name.clone(), of), text.unwrap_or_default());
                BodyLocation::Entry(0)
            }
        };
        taken.insert(name.clone(), ArchivedBody { info: body.info.clone(), written_at, location });
    }
    Ok(taken)
}

/// The size of the bodies in bytes.
pub(super) fn size_of(unit: &ImportUnit) -> u64 {
    unit.of_revision.values().chain(unit.of_render.values()).map(|body| body.info.size).sum()
}

/// Compresses the bodies, which an import into blocks does not.
pub(super) fn compressed(mut revision: ImportRevision) -> ImportRevision {
    let of_renders = revision.renders.iter_mut().flat_map(|render| &mut render.properties);
    for (property, _) in revision.properties.iter_mut().chain(of_renders) {
        property.body.stored.compress();
    }
    revision
}

/// Compresses the bodies of a render and its revision.
pub(super) fn compressed_unit(mut unit: ImportUnit) -> ImportUnit {
    for body in unit.of_revision.values_mut().chain(unit.of_render.values_mut()) {
        body.stored.compress();
    }
    unit
}
