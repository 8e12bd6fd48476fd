//! Files that appear complete or not at all.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// The suffix of the names of incomplete files.
const SUFFIX: &str = ".part";

/// The number of random characters in the name of an incomplete file.
const RANDOM_CHARACTERS: usize = 6;

/// A file that is written under a temporary name in the folder of its target. [`Self::commit`] syncs the file, and
/// renames it to the name of the target.
///
/// If an `AtomicFile` is dropped without `commit`, the temporary file is deleted. A killed process leaves its temporary
/// file. The next process that writes the same target deletes such a file, unless the file system has no locks.
///
/// A target that is not a regular file, such as a device or a named pipe, is written directly. A rename would replace
/// the device or the pipe by a regular file.
#[derive(Debug)]
pub struct AtomicFile {
    target: Target,
}

#[derive(Debug)]
enum Target {
    Temporary { file: NamedTempFile, path: PathBuf, folder: PathBuf },
    Direct(File),
}

impl AtomicFile {
    /// Creates a file to be written under this name. If the name is a symbolic link to a file, that file is replaced,
    /// and the link stays. A link without a target is itself replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => fs::canonicalize(path)?,
            Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(_) => {
                let file = File::options().write(true).open(path)?;
                return Ok(Self { target: Target::Direct(file) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut prefix = OsString::from(".");
        prefix.push(name);
        delete_abandoned(&folder, &prefix);
        let file = create_temporary(&folder, &prefix)?;
        Ok(Self { target: Target::Temporary { file, path, folder } })
    }

    /// Returns a handle to write to.
    pub fn handle(&self) -> io::Result<File> {
        match &self.target {
            Target::Temporary { file, .. } => file.as_file().try_clone(),
            Target::Direct(file) => file.try_clone(),
        }
    }

    /// Syncs the complete file, and renames it. Does nothing for a target that is written directly.
    pub fn commit(self) -> io::Result<()> {
        match self.target {
            Target::Temporary { file, path, folder } => {
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                // The new name is stored in the folder, which is synced separately.
                File::open(folder)?.sync_all()
            }
            Target::Direct(_) => Ok(()),
        }
    }
}

/// Creates a temporary file, and locks it. Other processes do not delete a locked file as abandoned.
fn create_temporary(folder: &Path, prefix: &OsStr) -> io::Result<NamedTempFile> {
    loop {
        let create = |path: &Path| File::options().write(true).create_new(true).open(path);
        let file = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(RANDOM_CHARACTERS)
            .suffix(SUFFIX)
            .make_in(folder, create)?;
        match file.as_file().try_lock() {
            // Before the file was locked, another process may have deleted it as abandoned.
            Ok(()) if !file.path().exists() => {}
            Err(TryLockError::WouldBlock) => {}
            // On a file system without locks, no process deletes files as abandoned.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Deletes temporary files that killed processes have left: those without a lock. A file that cannot be deleted stays.
fn delete_abandoned(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file
            && is_temporary(&entry.file_name(), prefix)
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            // A failure here must not prevent the new file.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_temporary(name: &OsStr, prefix: &OsStr) -> bool {
    let random = (name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes()))
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    random.is_some_and(|random| {
        random.len() == RANDOM_CHARACTERS && random.iter().all(u8::is_ascii_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.xml");
        let file = AtomicFile::create(&path).unwrap();
        file.handle().unwrap().write_all(b"whole").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["out.xml"]);
    }

    #[test]
    fn dropped_file_leaves_the_old_one_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.xml");
        fs::write(&path, "old").unwrap();
        let file = AtomicFile::create(&path).unwrap();
        file.handle().unwrap().write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["out.xml"]);
    }

    #[test]
    fn only_files_of_dead_processes_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.xml");
        let kept =
            [".other.xmlabcdef.part", ".out.xml.part", ".out.xmlabc.ef.part", ".out.xmlabcdef.zst.part"];
        for name in kept.iter().chain(&[".out.xmlabcdef.part", ".out.xmlABC123.part"]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let (first, second) = (AtomicFile::create(&path).unwrap(), AtomicFile::create(&path).unwrap());
        assert_eq!(names(folder.path()).len(), kept.len() + 2);
        assert!(kept.iter().all(|name| folder.path().join(name).exists()));
        first.handle().unwrap().write_all(b"first").unwrap();
        first.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        second.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.xml"), folder.path().join("link.xml"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = AtomicFile::create(&link).unwrap();
        file.handle().unwrap().write_all(b"new").unwrap();
        file.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");

        AtomicFile::create(Path::new("/dev/null")).unwrap().commit().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(unix)]
    #[test]
    fn file_has_the_usual_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, any) = (folder.path().join("ours"), folder.path().join("any"));
        AtomicFile::create(&ours).unwrap().commit().unwrap();
        fs::write(&any, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&any));
    }
}
