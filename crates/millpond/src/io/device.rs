//! What the engine asks of storage: files of fixed names in one directory, read and written in whole blocks, and
//! synced.
//!
//! IO-1  Offset and length of every transfer are multiples of [`BLOCK`](crate::base::aligned::BLOCK), the memory is
//! aligned to it. IO-2  A write is durable once a [`Device::sync`] that began after the write's return has returned.
//! IO-3  A name is durable once a [`Files::sync_names`] that began after its creation, renaming or removal has
//!       returned.

use std::io;
use std::sync::Arc;

/// A piece to be read: where to, and from which offset.
pub type ReadPiece<'a> = (&'a mut [u8], u64);

/// A piece to be written, and at which offset.
pub type WritePiece<'a> = (&'a [u8], u64);

/// One file.
pub trait Device: Send + Sync {
    /// Reads `buf.len()` bytes at `offset`, in the caller's thread. Short files are an error.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Not durable before the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the operating system says; any part of the bytes may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Reads several pieces, all under way together where the device can do that; returns when all have come to their
    /// end, with what became of each. Otherwise as [`read_at`](Self::read_at).
    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        reads.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    /// Writes several pieces that do not overlap, as [`read_many`](Self::read_many) reads them. Otherwise as
    /// [`write_at`](Self::write_at).
    fn write_many(&self, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        writes.iter().map(|(buf, offset)| self.write_at(buf, *offset)).collect()
    }

    /// Makes all writes that returned before durable. After an error nothing is known about them.
    ///
    /// # Errors
    /// What the operating system says. Never retried: the kernel may have dropped the dirty bytes.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file `len` bytes long, with space on the device for all of them.
    ///
    /// # Errors
    /// No space, above all; the file is then as long as before.
    fn grow(&self, len: u64) -> io::Result<()>;

    /// What the file is called in messages.
    fn name(&self) -> &str;
}

/// The files of one database.
pub trait Files: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, or what the operating system says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>>;

    /// Creates an empty file, or empties the one that is there.
    ///
    /// # Errors
    /// What the operating system says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>>;

    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All names, in order.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes creations, renamings and removals durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes that are free for this user on the device; `None`: it cannot tell.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// What the directory is called in messages.
    fn place(&self) -> String;

    /// Lets go of what keeps other processes out of the directory, though other handles of it may still be there, in
    /// forked children as well. Nothing is written after this.
    fn release(&self) {}

    /// How several transfers are under way together, in a word.
    fn io_engine(&self) -> &'static str {
        "one by one"
    }
}
