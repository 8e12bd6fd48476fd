//! The password of a cluster, which is read from a file.

use std::{fs::File, io::Read as _, path::Path};

use super::super::errors::ConfigError;

/// The maximum size of a password file. A longer file is refused.
const MAX_BYTES: u64 = 4 << 10;

/// A password, and a warning about its file.
pub(super) struct Password {
    pub(super) text: String,
    pub(super) warning: Option<String>,
}

impl Password {
    /// Reads a password file. The password is the whole content, without a line break at the end.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::unreadable("password_file", path, source);
        let file = File::open(path).map_err(unreadable)?;
        let warning = is_open_to_all(&file).map_err(unreadable)?.then(|| {
            let path = path.display();
            format!("everybody on this machine can read the password in {path}: chmod o= {path}")
        });
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let unusable = |what: &str| {
            let message = format!("password_file {} {what}", path.display());
            Err(ConfigError::File(message))
        };
        if bytes.len() as u64 > MAX_BYTES {
            return unusable(&format!("has more than {MAX_BYTES} bytes, too many for a password"));
        }
        let Ok(text) = String::from_utf8(bytes) else { return unusable("is not UTF-8") };
        let text = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        if text.is_empty() {
            return unusable("is empty");
        }
        Ok(Self { text: text.to_owned(), warning })
    }
}

#[cfg(unix)]
fn is_open_to_all(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    const OTHERS_READ: u32 = 0o004;
    Ok(file.metadata()?.permissions().mode() & OTHERS_READ != 0)
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
fn is_open_to_all(_: &File) -> std::io::Result<bool> {
    Ok(false)
}
