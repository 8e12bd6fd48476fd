//! The size of a set's texts packed by git: the blobs alone, without commits and trees.

use std::{
    io::{BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::sets::Set;

/// The settings of `git gc --aggressive`.
const PACK: [&str; 3] = ["--window=250", "--depth=50", "--no-reuse-delta"];

/// The size in bytes of a pack with one blob for each text.
pub(super) fn pack(set: &Set) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "core.bigFileThreshold=1g", "-c", "pack.threads=1"]).args(arguments);
        command.current_dir(folder.path()).env("GIT_DIR", folder.path().join("git")).stderr(Stdio::null());
        command
    };
    run(git(&["init", "--bare", "--quiet"]), |_| Ok(()))?;
    let marks = folder.path().join("marks");
    let import = format!("--export-marks={}", marks.display());
    run(git(&["fast-import", "--quiet", &import]), |input| blobs(set, input))?;
    let names = names(set, &marks)?;
    let packed = run(git(&[&["pack-objects", "--stdout", "--quiet"][..], &PACK].concat()), |input| {
        Ok(input.write_all(names.as_bytes())?)
    })?;
    Ok(packed.len())
}

/// Runs a command with an input, and returns its output.
fn run(mut command: Command, input: impl FnOnce(&mut dyn Write) -> Result<()> + Send) -> Result<Vec<u8>> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start git")?;
    let stdin = child.stdin.take().context("git has no input")?;
    let (written, output) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stdin = BufWriter::new(stdin);
            input(&mut stdin)?;
            anyhow::Ok(stdin.flush()?)
        });
        let output = child.wait_with_output();
        (writer.join().expect("the writer does not panic"), output)
    });
    let output = output?;
    ensure!(output.status.success(), "git ended with {}", output.status);
    written?;
    Ok(output.stdout)
}

/// Writes each text as a blob with a mark.
fn blobs(set: &Set, out: &mut dyn Write) -> Result<()> {
    for (mark, text) in (1..).zip(set.texts()) {
        write!(out, "blob\nmark :{mark}\ndata {}\n", text.len())?;
        out.write_all(text)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Lists the name of each blob with the name of its page, newest first. Git finds similar blobs by the name of the
/// page.
fn names(set: &Set, marks: &Path) -> Result<String> {
    let pages = set.pages.iter().enumerate();
    let pages: Vec<usize> = pages.flat_map(|(page, of)| of.versions.iter().map(move |_| page)).collect();
    let marks = std::fs::read_to_string(marks)?;
    let mut blobs = Vec::new();
    for line in marks.lines() {
        let (mark, name) = line.split_once(' ').context("a line does not have a mark and a name")?;
        let mark: usize = mark.trim_start_matches(':').parse()?;
        blobs.push((mark, format!("{name} page-{}\n", pages[mark - 1])));
    }
    blobs.sort_unstable_by_key(|(mark, _)| std::cmp::Reverse(*mark));
    Ok(blobs.into_iter().map(|(_, line)| line).collect())
}
