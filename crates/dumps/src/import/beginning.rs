//! Checks the beginning of an input, so that a wrong file is refused before anything is created for its import.

use std::io::{self, Read as _};

use crate::{
    HistoryReader, Problem, ReadError, ReadLimits, Source,
    compression::{self, DecompressionLimits},
    recognise::{LOOK_BYTES, looks_like_export},
};

/// Checks whether an input is an export, or has one if it is an archive. Reads no further than necessary. Fails with
/// what it is instead; damage is found only by the import. May block.
pub fn check_beginning(source: Source) -> Result<(), ReadError> {
    let (mut result, mut has_export) = (Ok(()), false);
    let read = compression::read_each(source, &DecompressionLimits::default(), |input, _, name| {
        if name.is_none() {
            has_export = true;
            result = HistoryReader::new(input, ReadLimits::default())
                .and_then(|mut reader| reader.next().map(drop));
            return false;
        }
        let mut first = Vec::new();
        let begun = io::Read::take(&mut *input, LOOK_BYTES as u64).read_to_end(&mut first);
        has_export = begun.is_err() || looks_like_export(&first);
        !has_export
    });
    match (read, result) {
        (_, Err(error)) if matches!(error.problem, Problem::Unsupported(_) | Problem::Empty) => Err(error),
        (Ok(()), _) if !has_export => {
            let what =
                "none of the files in the archive is an export: extract the one that is, and import it";
            let problem = Problem::Unsupported(what.to_owned());
            Err(ReadError { problem, position: Box::default() })
        }
        _ => Ok(()),
    }
}
