//! The errors of commands, with their texts and exit codes.

use crate::configuration::ConfigError;
use crate::sample_wiki::SampleError;
use rashomon_pages::migration::MigrationError;
use rashomon_tables_sqlite::backup::BackupError;

use crate::{exit::Exit, output};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The command cannot be carried out with these arguments.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused an operation.
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    /// The audit log cannot be opened.
    #[error(transparent)]
    AuditLog(#[from] rashomon_server::audit_log::OpenError),
    /// The reader of standard output has closed it.
    #[error("standard output was closed")]
    OutputClosed,
    /// The store cannot be opened.
    #[error("{}", reason(.0))]
    Open(rashomon_tables::Error),
    /// The store cannot be opened, perhaps because a server has it open. The text says what to do in that case.
    #[error("{}\nIf a server has the store open{}", reason(.0), .1)]
    Busy(rashomon_tables::Error, &'static str),
    /// The cluster does not answer.
    #[error(
        "{}\nCheck that Cassandra runs there and accepts CQL. To name other nodes, use --store \
         cassandra://HOST[:PORT][,HOST...]/KEYSPACE, or contact_points in the configuration",
        reason(.0)
    )]
    NoCluster(rashomon_tables::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] rashomon_pages::Error),
    /// A key-value bucket cannot be read or changed.
    #[error("{0}")]
    Bucket(String),
    /// An import failed.
    #[error("{0}")]
    Import(String),
    /// A server cannot be reached, refused a request, or did not answer as expected.
    #[error("{0}")]
    Refused(String),
    /// A revision cannot be erased.
    #[error("{0}")]
    Erase(String),
    /// An export failed.
    #[error("{0}")]
    Export(String),
    /// There is not enough disk space for a vacuum.
    #[error("{0}")]
    Vacuum(String),
    /// The file of a SQLite store cannot be converted: the disk has too little space, or has failed.
    #[error("{0}")]
    Upgrade(String),
    /// A rewrite of stored values ended early.
    #[error("{0}")]
    Rewrite(String),
    /// Not all eligible values could be culled.
    #[error("{0}")]
    Retention(String),
    /// A migration failed.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// A backup or a restore failed.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A background task panicked.
    #[error("a background task failed: {0}")]
    TaskFailed(String),
    /// The sample wiki cannot be built.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

/// Describes why a store cannot be opened. Leaves out prefixes such as "the store is unavailable".
fn reason(error: &rashomon_tables::Error) -> String {
    use rashomon_tables::Error::{Unavailable, Unsupported};
    match error {
        Unavailable(reason) => reason.to_string(),
        Unsupported(reason) => reason.clone(),
        error => error.to_string(),
    }
}

impl CommandError {
    /// Converts an error of a call on key-value buckets.
    pub(crate) fn of_bucket(error: rashomon_entries::Error) -> Self {
        match error {
            rashomon_entries::Error::Records(error) => Self::Store(error),
            error => Self::Bucket(error.to_string()),
        }
    }

    /// Adds advice to the error, for the case that a server has the store open.
    pub(crate) fn if_busy(self, advice: &'static str) -> Self {
        match self {
            Self::Open(error @ rashomon_tables::Error::Unavailable(_)) => Self::Busy(error, advice),
            error => error,
        }
    }

    /// Reports the error on standard error.
    pub(crate) fn print(&self) {
        if !matches!(self, Self::OutputClosed) {
            output::to_stderr(format_args!("error: {self}"));
        }
    }

    /// Whether the store was unavailable, so that a later attempt may succeed.
    pub(crate) fn is_unavailable(&self) -> bool {
        use rashomon_tables::Error::Unavailable;
        match self {
            Self::Open(error) | Self::NoCluster(error) => matches!(error, Unavailable(_)),
            Self::Store(error) => matches!(error, rashomon_pages::Error::Store(Unavailable(_))),
            _ => false,
        }
    }

    /// The exit code of the command.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::OutputClosed => Exit::Done,
            // In these cases the command has changed nothing.
            Self::Config(_)
            | Self::Usage(_)
            | Self::Backup(
                BackupError::NotABackup(_)
                | BackupError::NoState(_)
                | BackupError::NoSuchState { .. }
                | BackupError::NotEmpty(_)
                | BackupError::OtherRestore(_)
                | BackupError::OtherStore { .. }
                | BackupError::InUse(_),
            )
            | Self::Migration(MigrationError::NotEmpty { .. }) => Exit::Usage,
            Self::Io { .. }
            | Self::AuditLog(_)
            | Self::Open(_)
            | Self::Busy(..)
            | Self::Vacuum(_)
            | Self::Upgrade(_)
            | Self::NoCluster(_)
            | Self::Store(_)
            | Self::Bucket(_)
            | Self::Refused(_)
            | Self::Import(_)
            | Self::Export(_)
            | Self::Retention(_)
            | Self::Rewrite(_)
            | Self::Migration(_)
            | Self::TaskFailed(_)
            | Self::Backup(_)
            | Self::Erase(_)
            | Self::Sample(_) => Exit::Failed,
        }
    }
}
