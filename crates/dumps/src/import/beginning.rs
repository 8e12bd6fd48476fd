//! Checks the beginning of an input, so that a wrong file is refused before anything is created for its import.

use std::{
    io::{self, Read as _},
    sync::atomic::Ordering,
};

use crate::{
    HistoryReader, Problem, ReadError, ReadLimits, Source,
    compression::{self, Compression, DecompressionLimits},
    recognise::{LOOK_BYTES, looks_like_export},
};

/// Checks whether an input is an export, or has one if it is an archive. Reads no further than to the first event. Fails
/// if there is none: with what the input is instead, or how it is damaged. A page that is broken is found only by the
/// import. May block.
pub fn check_beginning(source: Source, skip_broken: bool) -> Result<(), ReadError> {
    let limits = ReadLimits { skip_broken, ..ReadLimits::default() };
    let (mut result, mut has_export, mut is_compressed) = (Ok(()), false, false);
    let consumed = source.consumed();
    let read = compression::read_each(source, &DecompressionLimits::default(), |input, compression, name| {
        is_compressed = compression != Compression::None;
        if name.is_none() {
            has_export = true;
            result = HistoryReader::new(input, limits).and_then(|mut reader| reader.next().map(drop));
            return false;
        }
        let mut first = Vec::new();
        let begun = io::Read::take(&mut *input, LOOK_BYTES as u64).read_to_end(&mut first);
        has_export = begun.is_err() || looks_like_export(&first);
        !has_export
    });
    let at_beginning = |problem| ReadError { problem, position: Box::default() };
    let mut error = match (read, result) {
        (Err(error), _) => at_beginning(Problem::from_io_error(error)),
        (Ok(()), Err(error)) => error,
        (Ok(()), Ok(())) if has_export => return Ok(()),
        (Ok(()), Ok(())) => {
            let what =
                "none of the files in the archive is an export: extract the one that is, and import it";
            at_beginning(Problem::Unsupported(what.to_owned()))
        }
    };
    // These say nothing about the input, or the import can go on.
    if error.problem.is_of_machine() || error.concerns_a_page() {
        return Ok(());
    }
    if is_compressed && error.concerns_compressed_data() {
        error.position.compressed = Some(consumed.load(Ordering::Relaxed));
    }
    Err(error)
}
