//! `rashomon import --domain NAME FILE...`.

mod connection;
mod late_reader;
mod local;
mod remote;
mod report;
mod server_url;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use rashomon_clock::{Clock, SystemClock};

pub(crate) use self::server_url::ServerUrl;
use crate::{arguments::ImportArguments, errors::CommandError, exit::Exit, logging, signals::Signals};

/// Imports files into the store, or sends them to a server.
pub(crate) async fn run(arguments: ImportArguments) -> Result<Exit, CommandError> {
    logging::start_quietly();
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // A name that is mistyped is told before anything is done, not after the hours that the others take.
    // So it is the command line that is wrong, whatever is wrong with the name.
    arguments.files.iter().try_for_each(|file| look(file))?;
    match &arguments.to {
        Some(server) => remote::run(server, &arguments, clock, signals).await,
        None => Box::pin(local::run(&arguments, clock, signals)).await,
    }
}

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// Whether there is something of this name that can be read.
fn look(file: &Path) -> Result<(), CommandError> {
    if is_standard_input(file) {
        return Ok(());
    }
    let failure = |error| CommandError::Usage(format!("cannot read {}: {error}", file.display()));
    let metadata = std::fs::metadata(file).map_err(failure)?;
    if metadata.is_dir() {
        return Err(CommandError::Usage(format!("{} is a directory: name the dumps in it", file.display())));
    }
    // Opening a named pipe may block, and would take the data from the next reader.
    if metadata.is_file() {
        File::open(file).map_err(failure)?;
    }
    Ok(())
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

/// How messages call a file.
fn shown(file: &Path) -> String {
    if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() }
}

/// How the progress calls a file: a path would leave no room for it.
fn label(file: &Path) -> String {
    let name = file.file_name().filter(|_| !is_standard_input(file));
    name.map_or_else(|| shown(file), |name| name.display().to_string())
}

/// What is left to be read when `file` stopped the import, for the message.
fn not_read(files: &[PathBuf], file: &Path) -> String {
    let rest: Vec<String> =
        files.iter().skip_while(|other| *other != file).skip(1).map(|file| shown(file)).collect();
    if rest.is_empty() { String::new() } else { format!("; not read: {}", rest.join(", ")) }
}
