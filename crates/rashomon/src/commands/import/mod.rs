//! `rashomon import --domain NAME FILE...`.

mod connection;
mod entries;
mod inputs;
mod local;
mod remote;
mod report;
mod server_target;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{Shown, visible};

use crate::{arguments::ImportArguments, errors::CommandError, exit::Exit, logging, signals::Signals};

/// Imports files into the store, or sends them to a server.
pub(crate) async fn run(arguments: ImportArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // All names are checked first, so that a mistyped name is reported before the import of other files takes hours. So
    // a problem with a name is always an error of the command line.
    arguments.files.iter().try_for_each(|file| check_readable(file))?;
    match &arguments.to {
        Some(server) => remote::run(server, &arguments, clock, signals).await,
        None => Box::pin(local::run(&arguments, clock, signals)).await,
    }
}

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// Checks that a file of this name can be read.
fn check_readable(file: &Path) -> Result<(), CommandError> {
    if is_standard_input(file) {
        return Ok(());
    }
    let failure = |error| CommandError::Usage(format!("cannot read {}: {error}", file.display()));
    let metadata = std::fs::metadata(file).map_err(failure)?;
    if metadata.is_dir() {
        return Err(CommandError::Usage(format!("{} is a directory: name the dumps in it", file.display())));
    }
    // Opening a named pipe may block, and would take data from the next reader.
    if metadata.is_file() {
        File::open(file).map_err(failure)?;
    }
    Ok(())
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// Returns the name of a file for messages.
fn display_name(file: &Path) -> String {
    if is_standard_input(file) {
        return "standard input".to_owned();
    }
    visible(&file.display().to_string(), Shown::InLine).into_owned()
}

/// Returns the name of a file for the progress, without its path, which would be too long.
fn progress_label(file: &Path) -> String {
    let name = file.file_name().filter(|_| !is_standard_input(file));
    name.map_or_else(|| display_name(file), |name| display_name(Path::new(name)))
}

/// Lists, for messages, the files that were not read because `file` stopped the import.
fn list_unread_files(files: &[PathBuf], file: &Path) -> String {
    let rest: Vec<String> =
        files.iter().skip_while(|other| *other != file).skip(1).map(|file| display_name(file)).collect();
    if rest.is_empty() { String::new() } else { format!("; not read: {}", rest.join(", ")) }
}
