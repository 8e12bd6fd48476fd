//! Creates folders, and makes the names in folders durable.

use std::{
    fs::{DirBuilder, File},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use crate::{BackupError, error::Result};

/// Creates a folder and the folders above it, with this mode, unless they exist. Makes the name of the folder durable,
/// but not the names of new folders above it.
pub(crate) fn create(folder: &Path, mode: u32) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(folder);
    created.map_err(BackupError::io(folder))?;
    sync(folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io(folder))
}
