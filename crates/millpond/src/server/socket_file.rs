//! The socket's file, which goes with the database.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of a socket, which goes with it.
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    /// Which file it is: another process may have put its own in this place.
    pub(crate) identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

pub(crate) fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}
