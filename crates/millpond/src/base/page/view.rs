//! Reading a page: entries, fences. The search is in `key_heads.rs`.
//!
//! Even in a verified page every access is bounds-checked. Damage that a checksum missed panics no decoder: it yields
//! `None` or an empty slice, which `check` reports.

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use crate::base::ids::TxnId;
use crate::base::row::Row;

use super::layout::{DIRECTORY_ENTRY, ENTRY_HEADER, HEAD, HEADER_LEN, NO_FENCE, PageHeader, header};

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

/// Where the entry that begins at `offset` has its suffix and its value: the suffix from the first offset to the
/// second, the value from there to the third. 0 for an entry that is not in `bytes`.
#[inline]
pub(crate) fn entry_places(bytes: &[u8], offset: usize) -> [usize; 3] {
    let suffix = offset + ENTRY_HEADER;
    let value = suffix + u16_at(bytes, offset);
    let end = value + u16_at(bytes, offset + 2);
    if end <= bytes.len() { [suffix, value, end] } else { [0; 3] }
}

/// The length of the longest common beginning.
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    // Two versions of a row are mostly equal: compare by steps first, each of which is one comparison of the CPU.
    const STEP: usize = 32;
    let steps = a.as_chunks::<STEP>().0.iter().zip(b.as_chunks::<STEP>().0).take_while(|(a, b)| a == b).count();
    let equal = steps * STEP;
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

/// The length of the prefix of a page with these fences (PAGE-4).
pub(crate) fn prefix_len(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_len(low, high))
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

    /// The bytes that every key in the page begins with; entries do not keep them.
    pub(crate) fn prefix(self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..HEADER_LEN + self.prefix_len()).unwrap_or_default()
    }

    /// Bytes of the [`prefix`](Self::prefix).
    pub(crate) fn prefix_len(self) -> usize {
        usize::from(self.header().prefix_len.get())
    }

    /// `key` without the page's prefix. `None`: `key` does not belong into the page.
    pub(crate) fn strip(self, key: &[u8]) -> Option<&[u8]> {
        key.strip_prefix(self.prefix())
    }

    /// Offset of the slot directory: heads, then offsets.
    pub(crate) fn directory(self) -> usize {
        HEADER_LEN + self.low_len() + self.high_len()
    }

    /// The slot directory: the heads of all entries, and their offsets. Empty if the count is damaged.
    pub(super) fn slots(self) -> (&'a [U32], &'a [U16]) {
        let start = self.directory();
        let slots = self.bytes.get(start..start + self.len() * DIRECTORY_ENTRY).unwrap_or_default();
        let (heads, offsets) = slots.split_at(slots.len() / DIRECTORY_ENTRY * HEAD);
        (<[U32]>::ref_from_bytes(heads).unwrap_or_default(), <[U16]>::ref_from_bytes(offsets).unwrap_or_default())
    }

    /// The heads of all entries.
    pub(crate) fn heads(self) -> &'a [U32] {
        self.slots().0
    }

    /// Offset of entry `index`.
    pub(super) fn offset(self, index: usize) -> usize {
        self.slots().1.get(index).map_or(0, |offset| usize::from(offset.get()))
    }

    /// The part of key `index` that the entry keeps: the key without the page's prefix.
    pub(crate) fn suffix(self, index: usize) -> &'a [u8] {
        self.suffix_at(self.offset(index))
    }

    /// The suffix of the entry that begins at `offset`.
    pub(super) fn suffix_at(self, offset: usize) -> &'a [u8] {
        let start = offset + ENTRY_HEADER;
        self.bytes.get(start..start + u16_at(self.bytes, offset)).unwrap_or_default()
    }

    /// The whole key of entry `index`.
    pub(crate) fn key(self, index: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(index)].concat()
    }

    /// The value of entry `index`.
    pub(crate) fn value(self, index: usize) -> &'a [u8] {
        self.entry_at(self.offset(index)).1
    }

    /// The suffix and the value of the entry that begins at `offset`.
    fn entry_at(self, offset: usize) -> (&'a [u8], &'a [u8]) {
        let start = offset + ENTRY_HEADER;
        let middle = start + u16_at(self.bytes, offset);
        let end = middle + u16_at(self.bytes, offset + 2);
        (self.bytes.get(start..middle).unwrap_or_default(), self.bytes.get(middle..end).unwrap_or_default())
    }

    /// The offsets of the entries in `range`; none if the page does not have them all.
    pub(crate) fn offsets(self, range: Range<usize>) -> impl ExactSizeIterator<Item = usize> + Clone {
        let offsets = self.slots().1.get(range).unwrap_or_default();
        offsets.iter().map(|offset| usize::from(offset.get()))
    }

    /// The end of the entry that begins at `offset`.
    pub(crate) fn entry_end(self, offset: usize) -> usize {
        entry_places(self.bytes, offset)[2]
    }

    /// Bytes that an entry takes on average, without its place in the directory.
    pub(crate) fn mean_entry_len(self) -> usize {
        let heap = usize::try_from(self.header().heap_start.get()).unwrap_or(0);
        self.bytes.len().saturating_sub(heap) / self.len().max(1)
    }

    /// A part of the page; empty if the page does not have it.
    pub(crate) fn part(self, range: Range<usize>) -> &'a [u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Bytes that entry `index` takes, directory included.
    pub(crate) fn entry_len(self, index: usize) -> usize {
        entry_len(self.suffix(index).len(), self.value(index).len())
    }

    /// Bytes, directory included, that an entry takes in this page: `key` and `value` are its lengths, and the key
    /// belongs into the page.
    pub(crate) fn entry_len_of(self, key: usize, value: usize) -> usize {
        entry_len(key.saturating_sub(self.prefix_len()), value)
    }

    /// Bytes that an insert may use, if need be after a compaction.
    pub(crate) fn free_bytes(self) -> usize {
        let used = self.directory() + self.len() * DIRECTORY_ENTRY;
        let heap = usize::try_from(self.header().heap_start.get()).unwrap_or(0);
        let dead = usize::try_from(self.header().dead_bytes.get()).unwrap_or(0);
        (heap + dead).saturating_sub(used)
    }

    /// Bytes that [`PageOp::Compact`](super::op::PageOp::Compact) with this `oldest` would free in a leaf.
    pub(crate) fn compactable(self, oldest: TxnId) -> usize {
        let gained = |index| match Row::compacted(self.value(index), oldest) {
            Some(left) => self.value(index).len() - left.len(),
            None => self.entry_len(index),
        };
        (0..self.len()).map(gained).sum()
    }

    /// Index of the entry whose child covers `key`, in an inner page.
    pub(crate) fn child_index(self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// Index of the entry whose child covers the largest key below `bound`, in an inner page. Without a bound: the last
    /// entry.
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

/// Bytes, directory included, of an entry with a suffix and a value of these lengths.
pub(crate) fn entry_len(suffix: usize, value: usize) -> usize {
    DIRECTORY_ENTRY + ENTRY_HEADER + suffix + value
}
