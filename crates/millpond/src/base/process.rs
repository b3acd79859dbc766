//! Tells the process that opened a database from processes that were forked from it.
//!
//! A forked child has the opener's memory, mutexes and files, and none of its threads. The opener would undo or repeat
//! any change that the child made to the database. So every call first checks that it runs in the opener's process. The
//! check is one load of a byte in a page that the kernel gives to a child filled with zeroes (`MADV_WIPEONFORK`, Linux
//! 4.14, madvise(2)). Where the kernel refuses that, the check compares process ids: one system call for each
//! operation.

#![allow(unsafe_code, reason = "a page of its own, which the kernel wipes in a child")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use super::error::Error;

/// Bytes of the mark's mapping; the kernel rounds them up to whole pages.
const MARK_LEN: usize = 4096;

/// The process in which a database was opened.
pub(crate) struct Home {
    /// Not zero in the opener's process, zero in its descendants. `None`: the kernel does not support this.
    mark: Option<NonNull<AtomicU8>>,
    pid: u32,
}

// SAFETY: the mark is an atomic that lives as long as the `Home`, and is never written after `new`.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// The current process.
    pub(crate) fn new() -> Home {
        Home { mark: Self::map_mark(), pid: std::process::id() }
    }

    #[cfg(not(miri))]
    fn map_mark() -> Option<NonNull<AtomicU8>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, overlaps no other memory.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), MARK_LEN, protection, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: this is the whole mapping made above.
        if unsafe { madvise(page, MARK_LEN, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: as above, and no reference to the mapping exists.
            let _ = unsafe { munmap(page, MARK_LEN) };
            return None;
        }
        let mark = NonNull::new(page.cast::<AtomicU8>())?;
        // SAFETY: the mapping is readable, writable, aligned to a page, and zero bytes are an `AtomicU8`.
        unsafe { mark.as_ref() }.store(1, Ordering::Relaxed);
        Some(mark)
    }

    #[cfg(miri)]
    fn map_mark() -> Option<NonNull<AtomicU8>> {
        None
    }

    /// Whether the caller is in the opener's process. Costs a load.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        match self.mark {
            // SAFETY: the mapping exists until the drop. Relaxed: the mark never changes within a process.
            Some(mark) => unsafe { mark.as_ref() }.load(Ordering::Relaxed) != 0,
            None => std::process::id() == self.pid,
        }
    }

    /// An error in any process but the opener's.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_here() { Ok(()) } else { Err(self.elsewhere()) }
    }

    #[cold]
    fn elsewhere(&self) -> Error {
        let message = format!(
            "this database was opened by process {}, and is used in process {}, which was forked from it: \
             open the database behind the fork, in the process that uses it",
            self.pid,
            std::process::id()
        );
        Error::OtherProcess(message.into())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(mark) = self.mark {
            // SAFETY: the mapping was made by `map_mark`, and no reference to it outlives `self`.
            let _ = unsafe { rustix::mm::munmap(mark.as_ptr().cast(), MARK_LEN) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opener_is_told_from_another_process() {
        let home = Home::new();
        assert!(home.is_here() && home.check().is_ok());
        // A child's view of the page (wiped), and a `Home` without a page.
        let wiped = Home { mark: Home::map_mark(), pid: 1 };
        if let Some(mark) = wiped.mark {
            // SAFETY: mapped above.
            unsafe { mark.as_ref() }.store(0, Ordering::Relaxed);
        }
        let text = wiped.check().expect_err("refused").to_string();
        assert!(text.contains("opened by process 1,"), "{text}");
        assert!(!Home { mark: None, pid: 1 }.is_here());
        assert!(Home { mark: None, pid: std::process::id() }.is_here());
    }
}
