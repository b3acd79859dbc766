//! The interface to storage: files of fixed names in one directory, read and written in whole blocks, and synced.
//!
//! IO-1  Offset and length of every transfer are multiples of [`BLOCK`](crate::base::aligned::BLOCK), and the memory is
//!       aligned to it.
//! IO-2  A write is durable once a [`Device::sync`] that began after the write's return has returned.
//! IO-3  A name is durable once a [`Files::sync_names`] that began after its creation, renaming or removal has
//!       returned.

use std::io;
use std::sync::Arc;

/// A piece to read: the buffer, and the offset in the file.
pub type ReadPiece<'a> = (&'a mut [u8], u64);

/// A piece to write: the bytes, and the offset in the file.
pub type WritePiece<'a> = (&'a [u8], u64);

/// One file.
pub trait Device: Send + Sync {
    /// Reads `buf.len()` bytes at `offset`, in the caller's thread. A file that ends before that is an error.
    ///
    /// # Errors
    /// An error of the operating system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. The bytes are durable after a [`sync`](Self::sync) that begins later.
    ///
    /// # Errors
    /// An error of the operating system; any part of the bytes may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Reads several pieces at the same time, where the device can do that. Returns the result of each piece when all
    /// have ended. Otherwise as [`read_at`](Self::read_at).
    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        reads.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    /// Writes several pieces, which do not overlap, at the same time, where the device can do that. Otherwise as
    /// [`write_at`](Self::write_at).
    fn write_many(&self, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        writes.iter().map(|(buf, offset)| self.write_at(buf, *offset)).collect()
    }

    /// Makes all writes that have returned before durable. After an error any of them may be lost.
    ///
    /// # Errors
    /// An error of the operating system. Callers never retry: the kernel may have dropped the dirty bytes.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// An error of the operating system.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Extends the file to `len` bytes, with space on the device for all of them.
    ///
    /// # Errors
    /// Mostly a full device; the file then keeps its length.
    fn grow(&self, len: u64) -> io::Result<()>;

    /// Shortens the file to `len` bytes, and gives the space behind them back to the device. The bytes there are gone:
    /// if the file grows again, they are zeroes. Durable after a [`sync`](Self::sync) that begins later; after a crash
    /// before that the file has either length, or that of a later growth. The caller makes no change behind `len`
    /// meanwhile.
    ///
    /// # Errors
    /// An error of the operating system; `Unsupported`, which is the default, from a device that cannot. The file then
    /// keeps its length.
    fn cut(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The file's name in messages.
    fn name(&self) -> &str;
}

/// The files of one database.
pub trait Files: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, or another error of the operating system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>>;

    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// An error of the operating system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>>;

    /// Renames a file, in one atomic step.
    ///
    /// # Errors
    /// An error of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// An error of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All file names, sorted.
    ///
    /// # Errors
    /// An error of the operating system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, renamings and removals durable.
    ///
    /// # Errors
    /// An error of the operating system.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes on the device that this user may still write; `None`: unknown.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The directory's name in messages.
    fn place(&self) -> String;

    /// Releases the lock that keeps other processes out of the directory, although handles of it may still exist, also
    /// in forked children. Nothing is written after this.
    fn release(&self) {}

    /// Whether transfers go through the system's page cache, in words. Unknown for files of a caller's own.
    fn page_cache(&self) -> &'static str {
        "unknown"
    }

    /// How the transfers of a batch run, in a word.
    fn io_engine(&self) -> &'static str {
        "one by one"
    }
}
