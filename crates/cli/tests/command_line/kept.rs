//! Stores in directories of the test's own.

use std::{path::Path, time::Duration};

/// In which a dump of some megabytes is half imported.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Kept;

impl Kept {
    #[allow(clippy::unnecessary_wraps, reason = "elsewhere there may be no place")]
    pub(crate) fn new(_: &Path) -> Option<Self> {
        Some(Self)
    }

    /// What names a store on the command line.
    pub(crate) fn arguments(&self, store: &str) -> Vec<String> {
        ["--data", store].map(str::to_owned).to_vec()
    }
}
