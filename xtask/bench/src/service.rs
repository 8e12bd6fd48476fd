//! The service as users run it, and folders for its data on the measured disk.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xtask::service::Service;

/// The wiki that benchmarks write to.
pub(crate) const DOMAIN: &str = "bench";

/// Returns the given binary, or builds one.
pub(crate) fn binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(binary) = given {
        return Ok(binary.to_owned());
    }
    eprintln!("building the service");
    let status = xtask::process::cargo_command()
        .args(["build", "--quiet", "--profile", xtask::DIST, "--locked", "--package", "rashomon"])
        .current_dir(xtask::root())
        .status()?;
    ensure!(status.success(), "the service does not build");
    Ok(xtask::target().join(xtask::DIST).join("rashomon"))
}

/// Makes a new folder for data in the target directory. Other temporary folders may be in memory, where
/// nothing is durable and all writes are fast.
pub(crate) fn data_folder() -> Result<TempDir> {
    let parent = xtask::target().join("bench");
    fs::create_dir_all(&parent)?;
    Ok(tempfile::tempdir_in(parent)?)
}

/// Starts a server on a data folder.
pub(crate) fn serve(binary: &Path, data: &Path) -> Result<Service> {
    let log = data.with_extension("log");
    Service::start(binary, &["serve".as_ref(), "--data".as_ref(), data.as_os_str()], &log)
}

/// Starts a server on the store of a URL, with its output in `log`.
pub(crate) fn serve_store(binary: &Path, store: &str, log: &Path) -> Result<Service> {
    Service::start(binary, &["serve", "--store", store], log)
}

/// Runs the command `verb` of the binary on a data folder, and returns its output. A failure is an error.
pub(crate) fn command(binary: &Path, verb: &str, data: &Path) -> Result<String> {
    let output = finish(Command::new(binary).args([verb, "--data"]).arg(data))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Runs a command line to its end, and returns its output. A failure is an error.
pub(crate) fn finish(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, printed.trim());
    Ok(output)
}

/// The size of all files in a folder, in bytes.
pub(crate) fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
