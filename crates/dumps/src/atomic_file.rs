//! Files that are there whole, or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// A file that is written under another name in the same folder, and gets its own when it is whole and synced.
/// Dropped before that, it leaves nothing behind.
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
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".part");
        #[cfg(unix)]
        {
            // What the user's mask leaves of it, as for any other file.
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        }
        let file = builder.tempfile_in(&folder)?;
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
