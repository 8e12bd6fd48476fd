//! Creates folders, and makes the names in folders durable.

use std::{
    fs::{DirBuilder, File},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use crate::backup::{BackupError, error::Result};

/// Creates a folder and the folders above it, with this mode, unless they exist. Makes the names of the folder and of
/// all new folders above it durable.
pub(crate) fn create(folder: &Path, mode: u32) -> Result<()> {
    create_with(folder, mode, &mut sync)
}

/// Creates folders as [`create`] does. `sync` makes the names in a folder durable.
fn create_with(folder: &Path, mode: u32, sync: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let create = || DirBuilder::new().mode(mode).create(folder);
    let created = match (create(), parent) {
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            create_with(parent, mode, sync)?;
            create()
        }
        (created, _) => created,
    };
    if let Err(error) = created
        && !folder.is_dir()
    {
        return Err(BackupError::io(folder)(error));
    }
    sync(parent.unwrap_or(Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_new_folders_are_durable() {
        let directory = tempfile::tempdir().expect("a directory");
        let above = directory.path();
        let mut synced = Vec::new();
        let mut record = |folder: &Path| {
            synced.push(folder.to_owned());
            sync(folder)
        };
        create_with(&above.join("a/b/c"), 0o700, &mut record).expect("created");
        create_with(&above.join("a/b/c"), 0o700, &mut record).expect("it exists");
        let expected = ["", "a", "a/b", "a/b"].map(|folder| above.join(folder));
        assert_eq!(synced.iter().map(|folder| above.join(folder)).collect::<Vec<_>>(), expected);
        std::fs::write(above.join("file"), "").expect("written");
        assert!(create(&above.join("file"), 0o700).is_err());
        assert!(create(&above.join("file/a"), 0o700).is_err());
    }
}
