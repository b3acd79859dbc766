//! Trees built from sorted rows, from the bottom up: pages are made once, in key order, and written as they are. No
//! pointer leads to them before the root's, so no page is latched, logged, or in a frame.
//!
//! A page is cut when the next entry makes it too full: the entry after the cut decides the page's high fence, and so
//! its prefix. The last page of a level has neither, and may have to be cut once more.

use std::ops::Range;

use crate::base::error::Error;
use crate::base::ids::PageId;
use crate::base::page::apply::apply;
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::view::{common_len, entry_len, prefix_len};

/// The destination of all pages except the root.
pub(crate) trait Pages {
    /// The id of the next page, and the memory to make it in, where the page LSN is set already.
    fn next(&mut self) -> Result<(PageId, &mut [u8]), Error>;
}

/// How full pages are made: to 15/16. The rest is room for a stamp in each row of a leaf, if rows have 180 bytes or
/// more. Without it the first updates would split every leaf.
fn full(page_size: usize) -> usize {
    page_size / 16 * 15
}

/// A tree under construction.
pub(crate) struct Builder {
    /// From the leaves up.
    levels: Vec<Level>,
    full: usize,
}

/// The entries of one level that are in no page yet: the level's last page, as far as it is known.
struct Level {
    level: u8,
    /// The page's low fence.
    low: Vec<u8>,
    /// Keys and values.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes that the entries take in a page without a prefix.
    len: usize,
}

struct Entry {
    key: Range<usize>,
    value: Range<usize>,
    /// The number of key bytes that tell it from the key before: the fence between the two.
    fence: usize,
}

/// A page that was made, as its parent names it.
struct Child {
    low: Vec<u8>,
    id: PageId,
}

/// The contents of the root.
pub(crate) struct RootPage(Level);

impl RootPage {
    /// The operation that formats the root.
    pub(crate) fn op(&self) -> PageOp<'_> {
        self.0.page(self.0.entries.len(), None)
    }

    /// Whether the tree is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }
}

impl Builder {
    /// Makes a builder for a tree with pages of `page_size` bytes.
    pub(crate) fn new(page_size: usize) -> Builder {
        Builder::filled_to(full(page_size))
    }

    /// Makes a builder for a tree whose pages have `full` bytes when they are full.
    pub(crate) fn filled_to(full: usize) -> Builder {
        Builder { levels: vec![Level::new(0)], full }
    }

    /// The key of the last row.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        let leaves = self.levels.first()?;
        leaves.entries.last().map(|entry| &leaves.bytes[entry.key.clone()])
    }

    /// Adds a row, of two parts. Its key is above the last one's; key and payload are within the limits.
    pub(crate) fn push(&mut self, key: &[u8], row: [&[u8]; 2], pages: &mut impl Pages) -> Result<(), Error> {
        let full = self.full;
        let Some(leaves) = self.levels.first_mut() else { return Ok(()) };
        match leaves.push(key, row, full, pages)? {
            Some(leaf) => self.adopt(1, leaf, pages),
            None => Ok(()),
        }
    }

    /// Adds an entry for a page of the level below to `level`.
    fn adopt(&mut self, mut level: usize, mut child: Child, pages: &mut impl Pages) -> Result<(), Error> {
        loop {
            if level == self.levels.len() {
                let height = u8::try_from(level).map_err(|_| Error::Bug("BTREE: a tree has 255 levels".into()))?;
                self.levels.push(Level::new(height));
            }
            let number = child.id.number().to_le_bytes();
            match self.levels[level].push(&child.low, [&number, b""], self.full, pages)? {
                Some(page) => child = page,
                None => return Ok(()),
            }
            level += 1;
        }
    }

    /// Makes the last page of each level below the root. Returns the root's contents, for which no page is made.
    pub(crate) fn finish(mut self, pages: &mut impl Pages) -> Result<RootPage, Error> {
        for level in 0.. {
            loop {
                let last = &mut self.levels[level];
                let fits = last.page_len(None) <= self.full || last.entries.len() == 1;
                // Only the first page of a level has an empty low fence.
                if fits && last.low.is_empty() {
                    return Ok(RootPage(self.levels.swap_remove(level)));
                }
                let child = if fits { last.make(None, pages)? } else { last.make(Some(last.half()), pages)? };
                self.adopt(level + 1, child, pages)?;
                if fits {
                    break;
                }
            }
        }
        Err(Error::Bug("BTREE: a tree that is built has no root".into()))
    }
}

impl Level {
    fn new(level: u8) -> Level {
        Level { level, low: Vec::new(), bytes: Vec::new(), entries: Vec::new(), len: 0 }
    }

    /// Bytes of a page with all entries and this high fence.
    fn page_len(&self, high: Option<&[u8]>) -> usize {
        let fences = self.low.len() + high.map_or(0, <[u8]>::len);
        HEADER_LEN + fences + self.len - self.entries.len() * prefix_len(&self.low, high)
    }

    /// Adds an entry, whose value is of two parts. If it makes the page too full, makes the page without the last entry
    /// before it: that entry's key gives the page its high fence.
    fn push(
        &mut self,
        key: &[u8],
        value: [&[u8]; 2],
        full: usize,
        pages: &mut impl Pages,
    ) -> Result<Option<Child>, Error> {
        let fence = match self.entries.last() {
            // Between leaves the fence is as short as possible; between inner pages it is the key of an entry.
            Some(last) if self.level == 0 => common_len(&self.bytes[last.key.clone()], key) + 1,
            _ => key.len(),
        };
        let mut made = None;
        if self.entries.len() > 1 && self.page_len(Some(&key[..fence])) > full {
            made = Some(self.make(Some(self.entries.len() - 1), pages)?);
        }
        let at = self.bytes.len();
        for part in [key, value[0], value[1]] {
            self.bytes.extend_from_slice(part);
        }
        let (value_at, end) = (at + key.len(), self.bytes.len());
        self.len += entry_len(key.len(), end - value_at);
        self.entries.push(Entry { key: at..value_at, value: value_at..end, fence });
        Ok(made)
    }

    /// The operation that formats a page with the first `count` entries.
    fn page<'a>(&'a self, count: usize, high: Option<&'a [u8]>) -> PageOp<'a> {
        let prefix = prefix_len(&self.low, high);
        let entry =
            |entry: &Entry| (&self.bytes[entry.key.start + prefix..entry.key.end], &self.bytes[entry.value.clone()]);
        let entries = self.entries[..count].iter().map(entry).collect();
        PageOp::Init { level: self.level, low: &self.low, high, entries }
    }

    /// Makes a page of the first `count` entries, or of all, which are then the level's last.
    fn make(&mut self, count: Option<usize>, pages: &mut impl Pages) -> Result<Child, Error> {
        let high = count.map(|count| {
            let next = &self.entries[count];
            self.bytes[next.key.clone()][..next.fence].to_vec()
        });
        let count = count.unwrap_or(self.entries.len());
        let (id, bytes) = pages.next()?;
        apply(bytes, id, &self.page(count, high.as_deref())).map_err(|misfit| {
            Error::Bug(format!("BTREE: {count} entries do not fit the page that is built of them: {misfit:?}").into())
        })?;
        let low = std::mem::replace(&mut self.low, high.unwrap_or_default());
        self.forget(count);
        Ok(Child { low, id })
    }

    /// Drops the first `count` entries.
    fn forget(&mut self, count: usize) {
        let gone = self.entries.drain(..count);
        self.len -= gone.map(|entry| entry_len(entry.key.len(), entry.value.len())).sum::<usize>();
        let from = self.entries.first().map_or(self.bytes.len(), |entry| entry.key.start);
        self.bytes.drain(..from);
        for entry in &mut self.entries {
            entry.key = entry.key.start - from..entry.key.end - from;
            entry.value = entry.value.start - from..entry.value.end - from;
        }
    }

    /// How many of the entries hold half of the bytes. There are at least two entries.
    fn half(&self) -> usize {
        let mut bytes = 0;
        let half = self.entries.iter().take_while(|entry| {
            bytes += entry_len(entry.key.len(), entry.value.len());
            bytes * 2 <= self.len
        });
        half.count().clamp(1, self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SpaceId;
    use crate::base::page::verify::structure_problem;
    use crate::base::page::view::PageView;
    use crate::base::row::COLD;
    use rand_core::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// Pages in memory, numbered from 1.
    struct InMemory {
        page_size: usize,
        made: Vec<Vec<u8>>,
    }

    impl Pages for InMemory {
        fn next(&mut self) -> Result<(PageId, &mut [u8]), Error> {
            self.made.push(vec![0xEE; self.page_size]);
            let number = u32::try_from(self.made.len()).expect("few");
            Ok((PageId::new(SpaceId(9), number), self.made.last_mut().expect("there")))
        }
    }

    /// Collects the rows below a page, and verifies all fences, levels and contents.
    fn rows(page: &[u8], made: &[Vec<u8>], low: &[u8], high: Option<&[u8]>, out: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        let view = PageView::new(page);
        assert_eq!(structure_problem(page), None);
        assert_eq!((view.low_fence(), view.high_fence()), (low, high));
        for index in 0..view.len() {
            let key = view.key(index);
            if view.is_leaf() {
                out.push((key, view.value(index).strip_prefix(&COLD).expect("cold").to_vec()));
                continue;
            }
            let number = usize::try_from(view.child(index).expect("a number")).expect("small");
            let child = &made[number - 1];
            assert_eq!(PageView::new(child).level() + 1, view.level());
            let next = (index + 1 < view.len()).then(|| view.key(index + 1));
            rows(child, made, &key, next.as_deref().or(high), out);
        }
    }

    fn build(page_size: usize, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> (u8, usize) {
        let mut pages = InMemory { page_size, made: Vec::new() };
        let mut builder = Builder::new(page_size);
        for (key, value) in model {
            builder.push(key, [&COLD, value], &mut pages).expect("fits");
            assert_eq!(builder.last_key(), Some(&key[..]));
        }
        let root = builder.finish(&mut pages).expect("fits");
        assert_eq!(root.is_empty(), model.is_empty());
        let mut page = vec![0; page_size];
        apply(&mut page, PageId::root(SpaceId(9)), &root.op()).expect("fits");
        let mut found = Vec::new();
        rows(&page, &pages.made, b"", None, &mut found);
        assert!(found.iter().map(|(key, value)| (key, value)).eq(model), "{} of {} rows", found.len(), model.len());
        (PageView::new(&page).level(), pages.made.len())
    }

    #[test]
    fn trees_hold_their_rows_whatever_these_are_like() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
        let mut below = |most: usize| usize::try_from(rng.next_u64()).expect("64 bits") % (most + 1);
        for page_size in [4096, 16384, 65536] {
            let (longest, value_max) = ((page_size / 16 * 3).min(3072), page_size / 4);
            for common in [0, 5, longest / 2, longest - 4] {
                for (key_max, value_max) in
                    [(longest, value_max), (common + 8, 8), (longest, 0), (common + 4, value_max)]
                {
                    let count = below(800);
                    let row = |number: u32| {
                        let mut key = vec![b'k'; common];
                        key.extend_from_slice(&number.to_be_bytes());
                        let fill = below(key_max.saturating_sub(key.len()));
                        key.resize(key.len() + fill, 0);
                        (key, vec![7; below(value_max)])
                    };
                    let model: BTreeMap<_, _> = (0..u32::try_from(count).expect("small")).map(row).collect();
                    build(page_size, &model);
                }
            }
        }
    }

    #[test]
    fn pages_are_full_to_fifteen_sixteenths_and_few_rows_are_a_leaf() {
        let rows = |count: u64| (0..count).map(|row| (row.to_be_bytes().to_vec(), vec![1; 184])).collect();
        assert_eq!(build(16384, &BTreeMap::new()), (0, 0));
        assert_eq!(build(16384, &rows(70)), (0, 0));
        // Of 15,360 bytes, header and fences take some 80. Each row takes at most 200, and 195 without its prefix.
        let (level, pages) = build(16384, &rows(10_000));
        assert!(level == 1 && (127..=132).contains(&pages), "{pages} pages under a root of level {level}");
    }

    /// Each number of rows up to the third level, also those that leave one entry for a level's last page.
    #[test]
    fn every_small_number_of_rows_makes_a_tree() {
        let mut model = BTreeMap::new();
        let mut highest = 0;
        for number in 0..700u32 {
            // Eight in a row differ only in their last byte: fences between them are long.
            let mut key = (number / 8).to_be_bytes().to_vec();
            key.resize(767, b'.');
            key.push(number.to_be_bytes()[3]);
            model.insert(key, vec![1; 300]);
            highest = highest.max(build(4096, &model).0);
        }
        assert!(highest >= 4, "{highest}");
    }
}
