//! The inputs of an import into a store. Their beginnings are checked first, so that no store is created for a wrong file.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use rashomon_dumps::entries::EntryImportError;
use rashomon_dumps::{DecompressionLimits, ImportFailure, ReadError, Source};

use super::{display_name, entries, is_standard_input};
use crate::{arguments::ImportArguments, errors::CommandError, exit::Exit, signals::Signals};

/// What the inputs should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// Exports of pages.
    Pages,
    /// Exports of entries.
    Entries,
    /// What the bucket has, which is not known yet.
    Either,
}

/// The inputs that are still to be opened.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The first input, if it can be read only once, and its beginning was read already.
    first: Option<Source>,
}

/// Why an input is wrong.
enum WrongInput {
    Pages(ReadError),
    Entries(EntryImportError),
}

impl Inputs {
    /// Checks the beginnings of all files, and that of the first input even if it is none: standard input, or a named
    /// pipe. Later pipes are not opened, since their writers may wait until earlier ones were read. Returns the exit
    /// code of a signal that interrupted this.
    pub(super) async fn check(
        arguments: &ImportArguments,
        expected: Expected,
        signals: &mut Signals,
    ) -> Result<Result<Self, Exit>, CommandError> {
        let (files, skip_broken) = (arguments.files.clone(), arguments.skip_broken);
        let checking = tokio::task::spawn_blocking(move || check_all(&files, expected, skip_broken));
        let checked = tokio::select! {
            checked = checking => checked.map_err(|error| CommandError::TaskFailed(error.to_string()))??,
            exit = signals.first() => return Ok(Err(exit)),
        };
        checked.map(Ok).map_err(|(file, wrong)| match wrong {
            WrongInput::Pages(error) => CommandError::Import(input_error(&file, &error.into(), true)),
            WrongInput::Entries(error) => entries::import_error(&error, None, arguments, &file),
        })
    }

    /// Opens an input. The inputs have to be opened in their order.
    pub(super) fn open(&mut self, file: &Path) -> Result<Source, CommandError> {
        self.first.take().map_or_else(|| open_source(file), Ok)
    }
}

type Checked = Result<Inputs, (PathBuf, WrongInput)>;

fn check_all(files: &[PathBuf], expected: Expected, skip_broken: bool) -> Result<Checked, CommandError> {
    let mut inputs = Inputs::default();
    for (index, file) in files.iter().enumerate() {
        let is_file = file.is_file() && !is_standard_input(file);
        if index > 0 && !is_file {
            continue;
        }
        match check(open_source(file)?, expected, skip_broken) {
            Ok(source) if !is_file => inputs.first = Some(source),
            Ok(_) => {}
            Err(wrong) => return Ok(Err((file.clone(), wrong))),
        }
    }
    Ok(Ok(inputs))
}

/// Checks the beginning of an input. Returns the whole input.
fn check(source: Source, expected: Expected, skip_broken: bool) -> Result<Source, WrongInput> {
    let limits = DecompressionLimits::default();
    let unreadable = |error: io::Error| WrongInput::Pages(error.into());
    let (source, not_pages) = match expected {
        Expected::Entries => (source, None),
        Expected::Pages | Expected::Either => {
            let of_pages = |source| rashomon_dumps::check_beginning(source, skip_broken);
            let (checked, source) = source.look(&limits, of_pages).map_err(unreadable)?;
            match checked {
                Ok(()) => return Ok(source),
                Err(error) if expected == Expected::Pages => return Err(WrongInput::Pages(error)),
                Err(error) => (source, Some(error)),
            }
        }
    };
    let (checked, source) =
        source.look(&limits, rashomon_dumps::entries::check_beginning).map_err(unreadable)?;
    // If the bucket may have pages, the error says why the input is no export of pages.
    let wrong = |error| not_pages.map_or(WrongInput::Entries(error), WrongInput::Pages);
    checked.map(|()| source).map_err(wrong)
}

/// Describes the error that ended the import of a file.
pub(super) fn input_error(file: &Path, failure: &ImportFailure, skips_broken: bool) -> String {
    let advice = match failure {
        ImportFailure::Read(error) if error.concerns_a_page() && !skips_broken => {
            ". The pages before are stored. To leave out pages that are broken, and go on with the next one, add \
             --skip-broken"
        }
        _ => "",
    };
    format!("{}: {failure}{advice}", display_name(file))
}

fn open_source(file: &Path) -> Result<Source, CommandError> {
    if is_standard_input(file) {
        return Ok(Source::stream(std::io::stdin()));
    }
    let failure = |source| CommandError::Io { doing: format!("cannot read {}", file.display()), source };
    Source::file(File::open(file).map_err(failure)?).map_err(failure)
}
