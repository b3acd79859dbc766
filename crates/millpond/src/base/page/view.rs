//! Reading a page: entries, fences, search.
//!
//! The offsets of a verified page are trusted no further than slices are: damage that a checksum missed panics no
//! decoder, it yields `None` or an empty slice, which `check` reports.

use std::cmp::Ordering;

use super::layout::{DIRECTORY_ENTRY, ENTRY_HEADER, HEADER_LEN, NO_FENCE, PageHeader, header};

/// A page, to read.
#[derive(Clone, Copy)]
pub(crate) struct PageView<'a> {
    bytes: &'a [u8],
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..at + 2) {
        Some(pair) => usize::from(u16::from_le_bytes([pair[0], pair[1]])),
        None => 0,
    }
}

impl<'a> PageView<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        PageView { bytes }
    }

    pub(crate) fn header(self) -> &'a PageHeader {
        header(self.bytes)
    }

    pub(crate) fn level(self) -> u8 {
        self.header().level
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.level() == 0
    }

    pub(crate) fn len(self) -> usize {
        usize::from(self.header().entry_count.get())
    }

    fn low_len(self) -> usize {
        usize::from(self.header().low_len.get())
    }

    fn high_len(self) -> usize {
        match self.header().high_len.get() {
            NO_FENCE => 0,
            len => usize::from(len),
        }
    }

    /// The smallest key that may be in the page; empty for the first page of a level.
    pub(crate) fn low_fence(self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..HEADER_LEN + self.low_len()).unwrap_or_default()
    }

    /// The smallest key that is too large for the page; `None` for the last page of a level.
    pub(crate) fn high_fence(self) -> Option<&'a [u8]> {
        if self.header().high_len.get() == NO_FENCE {
            return None;
        }
        let start = HEADER_LEN + self.low_len();
        Some(self.bytes.get(start..start + self.high_len()).unwrap_or_default())
    }

    /// Whether `key` belongs into this page.
    pub(crate) fn covers(self, key: &[u8]) -> bool {
        key >= self.low_fence() && self.high_fence().is_none_or(|high| key < high)
    }

    /// Where the slot directory begins.
    pub(crate) fn directory(self) -> usize {
        HEADER_LEN + self.low_len() + self.high_len()
    }

    fn entry_at(self, index: usize) -> usize {
        u16_at(self.bytes, self.directory() + index * DIRECTORY_ENTRY)
    }

    /// The key of entry `index`.
    pub(crate) fn key(self, index: usize) -> &'a [u8] {
        let at = self.entry_at(index);
        let start = at + ENTRY_HEADER;
        self.bytes.get(start..start + u16_at(self.bytes, at)).unwrap_or_default()
    }

    /// The value of entry `index`.
    pub(crate) fn value(self, index: usize) -> &'a [u8] {
        let at = self.entry_at(index);
        let start = at + ENTRY_HEADER + u16_at(self.bytes, at);
        self.bytes.get(start..start + u16_at(self.bytes, at + 2)).unwrap_or_default()
    }

    /// Bytes that entry `index` takes, directory included.
    pub(crate) fn entry_len(self, index: usize) -> usize {
        entry_len(self.key(index).len(), self.value(index).len())
    }

    /// Bytes that an insert may use, after a compaction if need be.
    pub(crate) fn free_bytes(self) -> usize {
        let used = self.directory() + self.len() * DIRECTORY_ENTRY;
        let heap = usize::try_from(self.header().heap_start.get()).unwrap_or(0);
        let dead = usize::try_from(self.header().dead_bytes.get()).unwrap_or(0);
        (heap + dead).saturating_sub(used)
    }

    /// The index of `key`, or where it would be inserted.
    pub(crate) fn search(self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The entry of an inner page whose child covers `key`.
    pub(crate) fn child_index(self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// The entry of an inner page whose child covers the largest key below `bound`; `None` as bound: the last one.
    pub(crate) fn child_index_below(self, bound: Option<&[u8]>) -> usize {
        match bound {
            None => self.len().saturating_sub(1),
            Some(bound) => match self.search(bound) {
                Ok(index) | Err(index) => index.saturating_sub(1),
            },
        }
    }

    /// The page number of child `index` of an inner page; `None` if the entry is damaged.
    pub(crate) fn child(self, index: usize) -> Option<u32> {
        self.value(index).try_into().ok().map(u32::from_le_bytes)
    }
}

/// Bytes that an entry takes in a page, directory included.
pub(crate) fn entry_len(key: usize, value: usize) -> usize {
    DIRECTORY_ENTRY + ENTRY_HEADER + key + value
}
