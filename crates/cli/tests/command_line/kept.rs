//! Stores in directories of the test's own.

use std::{path::Path, time::Duration};

/// The time in which about half of a dump of some megabytes is imported.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(1);

/// Whether the store has only one process. It deletes unreferenced blocks at once.
pub(crate) const ALONE: bool = true;

/// The text of `archive erase --status` for an erased revision.
pub(crate) const ERASED: &str = "gone";

#[derive(Debug)]
pub(crate) struct Kept;

impl Kept {
    #[allow(clippy::unnecessary_wraps, reason = "elsewhere there may be no place")]
    pub(crate) fn new(_: &Path) -> Option<Self> {
        Some(Self)
    }

    /// The arguments that name a store.
    pub(crate) fn arguments(&self, store: &str) -> Vec<String> {
        ["--data", store].map(str::to_owned).to_vec()
    }

    /// Nothing to configure: a command that alone uses the store gets its archive settings as flags.
    #[allow(clippy::unused_self, reason = "elsewhere there is something to be changed")]
    pub(crate) fn archive(&mut self, _: &Path) {}

    /// Arguments of `archive seal` for sealing everything superseded.
    #[allow(clippy::unused_self, reason = "elsewhere it has to be waited for")]
    pub(crate) fn sealing(&self) -> &'static [&'static str] {
        &["--after", "0s"]
    }

    /// Nothing has to be waited for.
    #[allow(clippy::unused_self, reason = "elsewhere there is a clock")]
    pub(crate) fn pass_a_day(&self) {}

    /// Nothing has to be waited for.
    #[allow(clippy::unused_self, reason = "elsewhere too")]
    pub(crate) fn pass_late_writes(&self) {}

    /// The environment variables of commands.
    #[allow(clippy::unused_self, reason = "elsewhere there is a clock")]
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
