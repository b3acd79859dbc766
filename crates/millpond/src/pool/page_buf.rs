//! The memory of one page: a part of the mapping that its frame's chunk has made.

#![allow(unsafe_code, reason = "pages are parts of one mapping, so that the kernel can back them with huge pages")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The memory of one page.
pub(crate) struct PageBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `PageBuf` is the only way to its bytes, like a `Box<[u8]>`.
unsafe impl Send for PageBuf {}
// SAFETY: as above.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// # Safety
    ///
    /// `start` points to `len` initialised bytes that outlive the result and are reached through it alone.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> PageBuf {
        PageBuf { start, len }
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the caller of `new` has promised `len` initialised bytes that no other `PageBuf` reaches.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
