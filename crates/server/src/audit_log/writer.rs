//! The thread's end of an audit log: writes lines to the target, and opens it again if necessary.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use crate::audit_log::{
    LogState,
    target::{ends_within_line, is_deleted, open},
};

/// Writes lines to a target. A line that cannot be written is lost, and counted.
#[derive(Debug)]
pub(crate) struct LineWriter {
    output: Output,
    state: Arc<LogState>,
    /// Whether the target has to be opened again before the next line.
    is_stale: bool,
    /// Whether the target ends in the middle of a line.
    is_within_line: bool,
    /// How many lines had been lost before the first failure that was logged since the last success; `None` if no
    /// failure was logged.
    lost_before_failure: Option<u64>,
}

#[derive(Debug)]
enum Output {
    StandardError,
    File { path: PathBuf, file: File },
}

impl LineWriter {
    pub(crate) fn to_standard_error(state: Arc<LogState>) -> Self {
        Self::new(Output::StandardError, state, false)
    }

    pub(crate) fn to_file(path: &Path, state: Arc<LogState>) -> io::Result<Self> {
        let file = open(path)?;
        let is_within_line = ends_within_line(&file, path).unwrap_or(false);
        Ok(Self::new(Output::File { path: path.to_owned(), file }, state, is_within_line))
    }

    const fn new(output: Output, state: Arc<LogState>, is_within_line: bool) -> Self {
        Self { output, state, is_stale: false, is_within_line, lost_before_failure: None }
    }

    /// Opens the target again if this was requested, if the last write failed, or if the file was deleted. If the
    /// target cannot be opened, lines still go to the old file as long as the old file has a name.
    fn refresh(&mut self) -> io::Result<()> {
        let is_requested = self.state.reopen.swap(false, Ordering::Relaxed);
        self.is_stale |= is_requested;
        let Output::File { path, file } = &mut self.output else { return Ok(()) };
        if !self.is_stale && !is_deleted(file) {
            return Ok(());
        }
        match open(path) {
            Ok(new) => {
                if let Some(is_within_line) = ends_within_line(&new, path) {
                    self.is_within_line = is_within_line;
                }
                *file = new;
                self.is_stale = false;
                if is_requested {
                    tracing::info!(audit_log = %path.display(), "the audit log was opened again");
                }
                Ok(())
            }
            Err(error) if is_deleted(file) => Err(error),
            Err(error) => {
                if self.state.failure_pace.is_due(&*self.state.clock) {
                    tracing::warn!(
                        audit_log = %path.display(), %error,
                        "the audit log cannot be opened again; lines go to the file that was opened before: \
                         correct the permissions of the file and its directory"
                    );
                }
                Ok(())
            }
        }
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.refresh()?;
        let mut standard_error;
        let output: &mut dyn Write = match &mut self.output {
            Output::StandardError => {
                // With the lock, other lines of the process cannot come between the parts of this line.
                standard_error = io::stderr().lock();
                &mut standard_error
            }
            Output::File { file, .. } => file,
        };
        let line_after_newline = self.is_within_line.then(|| [b"\n", line].concat());
        let mut rest = line_after_newline.as_deref().unwrap_or(line);
        while !rest.is_empty() {
            match output.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (written, unwritten) = rest.split_at(count);
                    self.is_within_line = !written.ends_with(b"\n");
                    rest = unwritten;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn report_failure(&mut self, error: &io::Error) {
        let lost = self.state.lost_to_failures.fetch_add(1, Ordering::Relaxed);
        self.is_stale = true;
        if self.state.failure_pace.is_due(&*self.state.clock) {
            self.lost_before_failure.get_or_insert(lost);
            tracing::warn!(
                audit_log = %self.state.target, %error,
                "the audit log cannot be written, and its lines are lost: free disk space, or correct the file, its \
                 permissions and its directory; requests are answered as usual"
            );
        }
    }

    fn report_success(&mut self) {
        self.state.written.fetch_add(1, Ordering::Relaxed);
        if let Some(before) = self.lost_before_failure.take() {
            let lost = self.state.lost_to_failures.load(Ordering::Relaxed) - before;
            tracing::info!(audit_log = %self.state.target, lost, "the audit log is written again");
        }
    }
}

impl Write for LineWriter {
    /// Writes a line. Never fails: a failure is counted and logged here.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.write_line(line) {
            Ok(()) => self.report_success(),
            Err(error) => self.report_failure(&error),
        }
        Ok(line.len())
    }

    /// Opens the target again if this was requested and no line was written since the request.
    fn flush(&mut self) -> io::Result<()> {
        if self.state.reopen.load(Ordering::Relaxed)
            && let Err(error) = self.refresh()
            && self.state.failure_pace.is_due(&*self.state.clock)
        {
            tracing::warn!(
                audit_log = %self.state.target, %error,
                "the audit log was deleted and cannot be created again, and its lines are lost: create its \
                 directory, or correct the permissions"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Read as _, os::unix::fs::OpenOptionsExt as _};

    use rashomon_clock::SystemClock;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

    use super::*;
    use crate::audit_log::Target;

    /// A write to a pipe that does not wait writes a part of a long line, and then fails.
    #[test]
    fn line_after_a_partly_written_line_begins_on_a_new_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let without_waiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let file =
            OpenOptions::new().read(true).append(true).custom_flags(without_waiting).open(&path).unwrap();
        let mut reader = file.try_clone().unwrap();
        let state = Arc::new(LogState::new(Target::File(path.clone()), Arc::new(SystemClock::new())));
        let mut writer = LineWriter::new(Output::File { path, file }, Arc::clone(&state), false);
        let line = [vec![b'x'; 9_999], vec![b'\n']].concat();
        // A pipe has room for less than a megabyte.
        for _ in 0..100 {
            if state.lost_to_failures.load(Ordering::Relaxed) == 0 {
                writer.write_all(&line).unwrap();
            }
        }
        assert!(writer.is_within_line);
        let mut text = Vec::new();
        // The pipe is empty at the error.
        reader.read_to_end(&mut text).unwrap_err();
        writer.write_all(b"next\n").unwrap();
        writer.write_all(b"last\n").unwrap();
        reader.read_to_end(&mut text).unwrap_err();
        let lines: Vec<usize> = text.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        let complete = usize::try_from(state.written.load(Ordering::Relaxed)).unwrap() - 2;
        assert!(complete > 0);
        assert_eq!(lines[..complete], vec![9_999; complete]);
        assert!((1..9_999).contains(&lines[complete]), "{lines:?}");
        assert!(text.ends_with(b"x\nnext\nlast\n"), "{lines:?}");
    }
}
