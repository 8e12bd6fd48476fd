//! How a command ends.

use std::process::ExitCode;

/// The exit codes, for `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done
  1    an error, described on standard error; or `verify`, `stats`, `archive seal` or `migrate` found damage or differences
  2    the command line or the configuration is wrong; nothing was done
  3    `import` or `export` finished with exceptions, which are named on standard error
  130  ended by Ctrl-C (`import`, `export`, `verify`, or a server at the second signal)
  143  ended by SIGTERM (`import`, `export`, `verify`, or a server at the second signal)";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done,
    /// It failed, and said why.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// It finished, but not everything went in or out.
    Partly,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl Exit {
    /// The number that the process ends with.
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
