//! Who may read the files of a store.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::file;

const READ_BY_OTHERS: u32 = 0o004;
const ENTER_BY_OTHERS: u32 = 0o001;

/// Whether every local user may read the store in a directory: others may enter the directory and read the file.
/// `false` if there is no store.
#[must_use]
pub fn is_readable_by_others(directory: &Path) -> bool {
    let has = |path: &Path, bit| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bit != 0);
    has(directory, ENTER_BY_OTHERS) && has(&file::path(directory), READ_BY_OTHERS)
}
