//! Whether files bypass the system's page cache.
//!
//! Direct I/O keeps pages from being in memory twice, and a sync then finds little to write. Some file systems have
//! none, and refuse to open a file for it (`EINVAL`). Then files go through the page cache.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The use of the system's page cache.
pub(super) struct PageCache {
    is_wanted: bool,
    /// Set when the file system refused direct I/O. Relaxed: nothing else is published with it.
    is_needed: AtomicBool,
}

impl PageCache {
    pub(super) fn new(is_wanted: bool) -> PageCache {
        PageCache { is_wanted, is_needed: AtomicBool::new(false) }
    }

    /// Opens a file with `open`: past the page cache, or through it where the file system has no direct I/O.
    pub(super) fn open<T>(
        &self,
        flags: OFlags,
        open: impl Fn(OFlags) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let open = |flags| rustix::io::retry_on_intr(|| open(flags));
        if self.is_wanted || self.is_needed.load(Relaxed) {
            return open(flags);
        }
        match open(flags | OFlags::DIRECT) {
            Err(Errno::INVAL) => {
                let file = open(flags)?;
                self.is_needed.store(true, Relaxed);
                Ok(file)
            }
            opened => opened,
        }
    }

    /// The use, in words.
    pub(super) fn text(&self) -> &'static str {
        match (self.is_wanted, self.is_needed.load(Relaxed)) {
            (true, _) => "used, as the option `cached` says",
            (false, true) => "used: this file system has no direct I/O",
            (false, false) => "not used: direct I/O",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_without_direct_io_is_used_through_the_cache() {
        let cache = PageCache::new(false);
        let without = |flags: OFlags| if flags.contains(OFlags::DIRECT) { Err(Errno::INVAL) } else { Ok(flags) };
        assert_eq!(cache.text(), "not used: direct I/O");
        assert_eq!(cache.open(OFlags::RDWR, without), Ok(OFlags::RDWR));
        assert_eq!(cache.text(), "used: this file system has no direct I/O");
        // The next file is opened at the first attempt.
        assert_eq!(cache.open(OFlags::RDWR, Ok), Ok(OFlags::RDWR));
    }

    #[test]
    fn other_errors_are_not_taken_for_missing_direct_io() {
        let cache = PageCache::new(false);
        assert_eq!(cache.open(OFlags::RDWR, Ok), Ok(OFlags::RDWR | OFlags::DIRECT));
        assert_eq!(cache.open::<()>(OFlags::RDWR, |_| Err(Errno::NOENT)), Err(Errno::NOENT));
        assert_eq!(cache.open::<()>(OFlags::RDWR, |_| Err(Errno::INVAL)), Err(Errno::INVAL));
        assert_eq!(cache.text(), "not used: direct I/O");
        assert_eq!(PageCache::new(true).open(OFlags::RDWR, Ok), Ok(OFlags::RDWR));
    }
}
