//! Stores in directories of the test's own.

use std::{path::Path, time::Duration};

/// In which a dump of some megabytes is half imported.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(1);

/// One process alone has a store: what it needs no more it deletes at once.
pub(crate) const ALONE: bool = true;

/// What `archive erase --status` says of what was erased.
pub(crate) const ERASED: &str = "gone";

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

    /// Whoever has the store alone says with the command how it is archived, and when.
    #[allow(clippy::unused_self, reason = "elsewhere there is something to be changed")]
    pub(crate) fn archive(&mut self, _: &Path) {}

    /// What has `archive seal` take all that was superseded.
    #[allow(clippy::unused_self, reason = "elsewhere it has to be waited for")]
    pub(crate) fn sealing(&self) -> &'static [&'static str] {
        &["--after", "0s"]
    }

    /// Nothing has to be waited for.
    #[allow(clippy::unused_self, reason = "elsewhere there is a clock")]
    pub(crate) fn pass_a_day(&self) {}

    /// Nothing is waited for.
    #[allow(clippy::unused_self, reason = "elsewhere too")]
    pub(crate) fn pass_late_writes(&self) {}

    /// What commands have in their environment.
    #[allow(clippy::unused_self, reason = "elsewhere there is a clock")]
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
