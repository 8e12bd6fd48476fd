//! Files that are there whole, or not at all.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// The end of the names that files have until they are whole.
const SUFFIX: &str = ".part";

/// How much of such a name is chance.
const RANDOM_CHARACTERS: usize = 6;

/// A file that is written under another name in the same folder, and gets its own when it is whole and synced.
/// Dropped before that, it leaves nothing behind. A process that is killed has no time for that: what it left is
/// deleted by the next one that writes a file of this name.
///
/// What is no regular file, such as a device or a pipe that has a name, is written directly: nothing can take
/// its place.
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
    /// Begins to write a file of this name. Where the name is a link, the file that it leads to is written.
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
        let file = temporary(&folder, &prefix)?;
        Ok(Self { target: Target::Temporary { file, path, folder } })
    }

    /// The file, to be written to.
    pub fn handle(&self) -> io::Result<File> {
        match &self.target {
            Target::Temporary { file, .. } => file.as_file().try_clone(),
            Target::Direct(file) => file.try_clone(),
        }
    }

    /// All has been written: syncs it, and gives it its name.
    pub fn commit(self) -> io::Result<()> {
        match self.target {
            Target::Temporary { file, path, folder } => {
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                // The name is in the folder, which is synced on its own.
                File::open(folder)?.sync_all()
            }
            Target::Direct(_) => Ok(()),
        }
    }
}

/// A file of a new name, which is locked for as long as somebody writes to it.
fn temporary(folder: &Path, prefix: &OsStr) -> io::Result<NamedTempFile> {
    loop {
        let create = |path: &Path| File::options().write(true).create_new(true).open(path);
        let file = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(RANDOM_CHARACTERS)
            .suffix(SUFFIX)
            .make_in(folder, create)?;
        match file.as_file().try_lock() {
            // Before it was locked, another process may have taken it for abandoned.
            Ok(()) if !file.path().exists() => {}
            Err(TryLockError::WouldBlock) => {}
            // Where a file system knows no locks, none is ever taken for abandoned.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Deletes files that a killed process has left: nobody holds their locks. What cannot be deleted stays.
fn delete_abandoned(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file
            && is_temporary(&entry.file_name(), prefix)
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            // It is only tidiness, and no reason not to write.
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
    fn a_file_appears_when_it_is_whole() {
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
    fn what_is_given_up_leaves_the_old_file_and_nothing_else() {
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
    fn what_a_killed_process_left_is_deleted_and_what_others_write_is_not() {
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
    fn a_link_stays_a_link_and_a_device_a_device() {
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
    fn others_may_read_it_as_they_may_any_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, any) = (folder.path().join("ours"), folder.path().join("any"));
        AtomicFile::create(&ours).unwrap().commit().unwrap();
        fs::write(&any, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&any));
    }
}
