//! Key heads, and the search over them.
//!
//! A head is the first four bytes of an entry's suffix, as a number that orders as the bytes do. Different heads decide
//! a comparison. Equal heads (zeroes pad shorter suffixes) leave it to the keys.
//!
//! Pages at a tree's edges, the root among them, lack a fence and so have no prefix. All their keys may begin with the
//! same four bytes, such as the zeroes of small numbers. In such a page the heads **skip** the bytes that the keys have
//! in common. The first key is left out of this rule: in the first page of a level it is empty.

use std::cmp::Ordering;
use std::ops::Range;

use zerocopy::little_endian::{U16, U32};

use super::view::{PageView, common_len};

/// Heads in a cache line.
const LINE: usize = 16;

/// Longer runs of heads are halved first, which bounds the cache lines that a search touches.
const LINEAR: usize = 64 * LINE;

/// The first four bytes; zeroes pad shorter ones.
fn head_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0)))
}

/// How many of `heads`, which ascend, are below `head`.
///
/// Probes the last head of each line, then all heads of one line. The loads do not wait for one another, and no branch
/// is unpredictable. In a cached page this takes half the time of a binary search of the heads.
fn count_below(mut heads: &[U32], head: u32) -> usize {
    let mut passed = 0;
    while heads.len() > LINEAR {
        let (left, right) = heads.split_at(heads.len() / 2);
        if right[0].get() < head {
            passed += left.len();
            heads = right;
        } else {
            heads = left;
        }
    }
    let (lines, tail) = heads.as_chunks::<LINE>();
    let full = lines.iter().filter(|line| line[LINE - 1].get() < head).count();
    let last = lines.get(full).map_or(tail, |line| &line[..]);
    passed + full * LINE + last.iter().filter(|other| other.get() < head).count()
}

impl<'a> PageView<'a> {
    /// Bytes of each suffix that its head skips.
    pub(super) fn head_skip(self) -> usize {
        usize::from(self.header().head_skip.get())
    }

    /// The right value of [`head_skip`](Self::head_skip): 0, unless all heads behind the first would then be equal.
    pub(super) fn wanted_skip(self) -> usize {
        if self.len() < 3 {
            return 0;
        }
        let (second, last) = (self.suffix(1), self.suffix(self.len() - 1));
        if head_of(second) == head_of(last) { common_len(second, last) } else { 0 }
    }

    /// The skipped bytes, which all entries behind the first have in common.
    fn skipped(self, skip: usize) -> &'a [u8] {
        self.suffix(self.len().saturating_sub(1)).get(..skip).unwrap_or_default()
    }

    /// The right head of entry `index`.
    pub(crate) fn wanted_head(self, index: usize) -> u32 {
        let (suffix, skip) = (self.suffix(index), self.head_skip());
        if skip > 0 && index == 0 && !suffix.starts_with(self.skipped(skip)) {
            // The first key lacks the skipped bytes: it is below all others.
            return 0;
        }
        head_of(suffix.get(skip..).unwrap_or_default())
    }

    /// The index of `key`, or where it would be inserted.
    pub(crate) fn search(self, key: &[u8]) -> Result<usize, usize> {
        let Some(suffix) = self.strip(key) else {
            return Err(if key < self.prefix() { 0 } else { self.len() });
        };
        let (heads, offsets) = self.slots();
        let tail = match self.head_skip() {
            0 => suffix,
            skip => match suffix.strip_prefix(self.skipped(skip)) {
                Some(tail) => tail,
                None if suffix < self.skipped(skip) => return self.search_keys(offsets, suffix, 0..1),
                None => return Err(self.len()),
            },
        };
        let head = head_of(tail);
        let first = count_below(heads, head);
        let is_equal = |index: usize| heads.get(index).is_some_and(|other| other.get() == head);
        if !is_equal(first) {
            return Err(first);
        }
        let end = if !is_equal(first + 1) {
            first + 1
        } else if let Some(above) = head.checked_add(1) {
            first + count_below(&heads[first..], above)
        } else {
            heads.len()
        };
        self.search_keys(offsets, suffix, first..end)
    }

    /// Binary search by key among the entries of `range`, whose heads are equal to that of `suffix` or say nothing of
    /// it.
    fn search_keys(self, offsets: &[U16], suffix: &[u8], range: Range<usize>) -> Result<usize, usize> {
        let (mut low, mut high) = (range.start, range.end.min(offsets.len()));
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix_at(usize::from(offsets[middle].get())).cmp(suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};

    #[test]
    fn heads_order_as_the_bytes_do() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0\0\x01", b"a", b"a\0b", b"ab", b"abcd", b"\xff"];
        assert!(keys.is_sorted_by(|a, b| head_of(a) <= head_of(b)));
        assert_eq!((head_of(b"ab"), head_of(b"abcdx")), (0x6162_0000, 0x6162_6364));
    }

    #[test]
    fn heads_below_are_counted_for_any_number_of_them() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let long = if cfg!(miri) { 300 } else { 6553 };
        for len in (0..if cfg!(miri) { 5 } else { 100 }).chain([LINEAR - 1, LINEAR, LINEAR + 1, 2 * LINEAR + 17, long])
        {
            for spread in [3, 1000, u64::from(u32::MAX) + 1] {
                let draw = |rng: &mut rand_xoshiro::Xoshiro256PlusPlus| {
                    u32::try_from(rng.next_u64() % spread).expect("below 2^32")
                };
                let mut heads: Vec<u32> = (0..len).map(|_| draw(&mut rng)).collect();
                heads.sort_unstable();
                let stored: Vec<U32> = heads.iter().map(|head| U32::new(*head)).collect();
                let probes: Vec<u32> =
                    (0..20).map(|_| draw(&mut rng)).chain([0, u32::MAX]).chain(heads.first().copied()).collect();
                for head in probes {
                    let below = heads.partition_point(|other| *other < head);
                    assert_eq!(count_below(&stored, head), below, "{head} in {len} heads below {spread}");
                }
            }
        }
    }
}
