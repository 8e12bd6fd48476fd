//! Checks docs/varnish.vcl with a real Varnish. `cargo xtask test --only varnish` fetches Varnish and runs this
//! program.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command-line program prints its results.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask_varnish::{Files, interleaved, rules};

/// Check docs/varnish.vcl with a real Varnish.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder into which the packages of Varnish and its modules were unpacked, or / if they are installed.
    #[arg(long, global = true, value_name = "FOLDER", default_value = "/")]
    varnish: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check each rule of the VCL with scripted servers.
    Rules,
    /// Send interleaved reads and writes through two caches, kill the server in between, and check that no read after
    /// an acknowledged purge returns an older version.
    Interleaved {
        /// The program `rashomon`.
        #[arg(long, value_name = "FILE")]
        binary: PathBuf,
        #[command(flatten)]
        options: interleaved::Options,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let files = Files::find_below(&arguments.varnish)?;
    match &arguments.command {
        Command::Rules => println!("{} rules hold", rules::run(&files)?),
        Command::Interleaved { binary, options } => interleaved::run(&files, binary, options)?,
    }
    Ok(())
}
