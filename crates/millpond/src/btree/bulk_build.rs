//! Trees built from sorted rows, from the bottom up: pages are made once, in key order, and written as they are. No
//! pointer leads to them before the root's, so no page is latched, logged, or in a frame.
//!
//! A page is cut when the next entry makes it too full: the entry after the cut decides the page's high fence, and so
//! its prefix. The last page of a level has neither, and may have to be cut once more.

use crate::base::error::Error;
use crate::base::ids::PageId;
use crate::base::page::apply::apply;
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::view::{common_len, entry_len, prefix_len};

/// The destination of all pages except the root.
pub(crate) trait Pages {
    /// Takes the contents of the next page. Returns the page's id, and empty contents for another page.
    fn take(&mut self, page: Contents) -> Result<(PageId, Contents), Error>;
}

/// The contents of a page, from which it is made by [`make`](Self::make): by another thread, if that pays.
#[derive(Default)]
pub(crate) struct Contents {
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// Keys and values.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Places of a key, and of the value behind it, in the bytes of the contents.
#[derive(Clone, Copy)]
struct Entry {
    at: u32,
    key: u16,
    value: u16,
    /// The number of key bytes that tell it from the key before: the fence between the two.
    fence: u16,
}

impl Contents {
    fn key(&self, entry: Entry) -> &[u8] {
        &self.bytes[entry.at as usize..][..usize::from(entry.key)]
    }

    fn value(&self, entry: Entry) -> &[u8] {
        &self.bytes[entry.at as usize + usize::from(entry.key)..][..usize::from(entry.value)]
    }

    /// Bytes of the keys and values.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The operation that formats the page.
    fn op(&self) -> PageOp<'_> {
        let prefix = prefix_len(&self.low, self.high.as_deref());
        let entries = self.entries.iter().map(|entry| (&self.key(*entry)[prefix..], self.value(*entry))).collect();
        PageOp::Init { level: self.level, low: &self.low, high: self.high.as_deref(), entries }
    }

    /// Makes the page in `bytes`, where the page LSN is set already.
    pub(crate) fn make(&self, id: PageId, bytes: &mut [u8]) -> Result<(), Error> {
        apply(bytes, id, &self.op()).map_err(|misfit| {
            let count = self.entries.len();
            Error::Bug(format!("BTREE: {count} entries do not fit the page that is built of them: {misfit:?}").into())
        })
    }

    /// Forgets everything but the memory, of which it keeps at most `most` bytes.
    pub(crate) fn clear(&mut self, most: usize) {
        self.high = None;
        self.low.clear();
        self.bytes.clear();
        self.entries.clear();
        self.bytes.shrink_to(most);
    }
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
    /// Without a high fence.
    page: Contents,
    /// Bytes that the entries take in a page without a prefix.
    len: usize,
}

/// A page that has ended, as its parent names it.
struct Child {
    low: Vec<u8>,
    id: PageId,
}

/// The contents of the root.
pub(crate) struct RootPage(Level);

impl RootPage {
    /// The operation that formats the root.
    pub(crate) fn op(&self) -> PageOp<'_> {
        self.0.page.op()
    }

    /// Whether the tree is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.page.entries.is_empty()
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
        let leaves = &self.levels.first()?.page;
        leaves.entries.last().map(|entry| leaves.key(*entry))
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

    /// Ends the last page of each level below the root. Returns the root's contents, for which no page is made.
    pub(crate) fn finish(mut self, pages: &mut impl Pages) -> Result<RootPage, Error> {
        for level in 0.. {
            loop {
                let last = &mut self.levels[level];
                let fits = last.page_len(None) <= self.full || last.page.entries.len() == 1;
                // Only the first page of a level has an empty low fence.
                if fits && last.page.low.is_empty() {
                    return Ok(RootPage(self.levels.swap_remove(level)));
                }
                let child = if fits { last.end(None, pages)? } else { last.end(Some(last.half()), pages)? };
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
        Level { page: Contents { level, ..Contents::default() }, len: 0 }
    }

    /// Bytes of a page with all entries and this high fence.
    fn page_len(&self, high: Option<&[u8]>) -> usize {
        let low = &self.page.low;
        let fences = low.len() + high.map_or(0, <[u8]>::len);
        HEADER_LEN + fences + self.len - self.page.entries.len() * prefix_len(low, high)
    }

    /// Adds an entry, whose value is of two parts. If it makes the page too full, ends the page without the last entry
    /// before it: that entry's key gives the page its high fence.
    fn push(
        &mut self,
        key: &[u8],
        value: [&[u8]; 2],
        full: usize,
        pages: &mut impl Pages,
    ) -> Result<Option<Child>, Error> {
        let fence = match self.page.entries.last() {
            // Between leaves the fence is as short as possible; between inner pages it is the key of an entry.
            Some(last) if self.page.level == 0 => common_len(self.page.key(*last), key) + 1,
            _ => key.len(),
        };
        let mut ended = None;
        if self.page.entries.len() > 1 && self.page_len(Some(&key[..fence])) > full {
            ended = Some(self.end(Some(self.page.entries.len() - 1), pages)?);
        }
        self.append(key, value, fence);
        Ok(ended)
    }

    fn append(&mut self, key: &[u8], value: [&[u8]; 2], fence: usize) {
        let short = |len: usize| u16::try_from(len).expect("PAGE-3: keys and values are within the limits of pages");
        let (bytes, value_len) = (&mut self.page.bytes, value[0].len() + value[1].len());
        let at = u32::try_from(bytes.len()).expect("PAGE-3: a page has at most 64 KiB, of entries of 64 KiB each");
        for part in [key, value[0], value[1]] {
            bytes.extend_from_slice(part);
        }
        self.len += entry_len(key.len(), value_len);
        self.page.entries.push(Entry { at, key: short(key.len()), value: short(value_len), fence: short(fence) });
    }

    /// Ends a page of the first `count` entries, or of all, which are then the level's last.
    fn end(&mut self, count: Option<usize>, pages: &mut impl Pages) -> Result<Child, Error> {
        let page = &mut self.page;
        let rest = page.entries.split_off(count.unwrap_or(page.entries.len()));
        let high = rest.first().map(|next| page.key(*next)[..usize::from(next.fence)].to_vec());
        page.high.clone_from(&high);
        let (level, low) = (page.level, page.low.clone());
        // The bytes of the rest are copied below, and then those of the page are all that is left.
        let tail = rest.first().map_or(page.bytes.len(), |next| next.at as usize);
        let tail = page.bytes.split_off(tail);
        let (id, empty) = pages.take(std::mem::take(page))?;
        self.page = Contents { level, low: high.unwrap_or_default(), ..empty };
        self.len = 0;
        let mut from = 0;
        for entry in rest {
            let (key, value) =
                tail[from..][..usize::from(entry.key) + usize::from(entry.value)].split_at(entry.key.into());
            self.append(key, [value, b""], entry.fence.into());
            from += key.len() + value.len();
        }
        Ok(Child { low, id })
    }

    /// How many of the entries hold half of the bytes. There are at least two entries.
    fn half(&self) -> usize {
        let mut bytes = 0;
        let half = self.page.entries.iter().take_while(|entry| {
            bytes += entry_len(entry.key.into(), entry.value.into());
            bytes * 2 <= self.len
        });
        half.count().clamp(1, self.page.entries.len() - 1)
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
        fn take(&mut self, mut contents: Contents) -> Result<(PageId, Contents), Error> {
            let id = PageId::new(SpaceId(9), u32::try_from(self.made.len() + 1).expect("few"));
            let mut page = vec![0xEE; self.page_size];
            contents.make(id, &mut page)?;
            self.made.push(page);
            contents.clear(100);
            Ok((id, contents))
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
