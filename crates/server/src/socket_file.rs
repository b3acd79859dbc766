//! The socket's file, which is removed when the database is closed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of a socket, removed on drop.
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    /// Device and inode of the file: another process may have put its own file in this place.
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
