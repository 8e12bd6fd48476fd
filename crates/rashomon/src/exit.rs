//! The exit codes of commands.

use std::process::ExitCode;

/// The exit codes, for `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done
  1    an error ended the command, or its output names a fault in the data, such as damage or a difference
  2    the command line or the configuration is wrong, or there is no store; nothing was done
  3    `import`, `export`, `rewrite` or `upgrade` finished, but data was skipped or is damaged: see standard error
  130  ended by Ctrl-C (a server: at the second signal)
  143  ended by SIGTERM (a server: at the second signal)";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done,
    /// An error ended the command, or its output names a fault in the data, such as damage or a difference.
    Failed,
    /// The command line or the configuration is wrong, or there is no store. Nothing was done.
    Usage,
    /// The command finished, and some data was skipped, was not rewritten, or is damaged.
    Partly,
    /// Ctrl-C ended the command.
    Interrupted,
    /// SIGTERM ended the command.
    Terminated,
}

impl Exit {
    /// The exit code of the process.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Partly => 3,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
