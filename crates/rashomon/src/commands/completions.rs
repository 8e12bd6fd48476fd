//! `rashomon completions SHELL`.

use clap::CommandFactory as _;

use crate::{arguments::Arguments, errors::CommandError, exit::Exit, output};

/// Prints the script that completes the command line in a shell.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<Exit, CommandError> {
    // The script is written to memory first, since the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "rashomon", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
