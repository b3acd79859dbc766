//! Pages compared with `BTreeMap`, over keys, fences and sizes that stress truncated keys and heads.

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::apply::{Misfit, apply};
use super::op::PageOp;
use super::patch::{Patch, PatchBuf, find_patch};
use super::reader::Reader;
use super::verify::structure_problem;
use super::view::PageView;
use crate::base::aligned::to_usize;
use crate::base::ids::PageId;

const ID: PageId = PageId(5);
const PAGE_SIZES: [usize; 5] = [4096, 8192, 16_384, 32_768, 65_536];

/// Keys that all begin with `prefix`; few enough that draws repeat.
struct Keys {
    prefix: Vec<u8>,
    /// Tails draw from these bytes, up to `longest` of them.
    bytes: &'static [u8],
    longest: u64,
    /// If set, tails are eight-byte numbers far below 2^64 instead.
    numbers: bool,
}

impl Keys {
    fn all() -> Vec<Keys> {
        let tails: [(&[u8], u64); 4] = [(b"\0", 12), (b"\0a\xff", 6), (b"ab", 9), (b"\xff", 12)];
        let mut all = Vec::new();
        for len in [0, 1, 3, 4, 5, 8, 100, 3000] {
            for (bytes, longest) in tails {
                all.push(Keys { prefix: vec![b'p'; len], bytes, longest, numbers: false });
            }
        }
        for prefix in [vec![], vec![0xff; 3], vec![0; 5]] {
            all.push(Keys { prefix, bytes: b"", longest: 0, numbers: true });
        }
        all
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let mut key = self.prefix.clone();
        if self.numbers {
            key.extend_from_slice(&(rng.next_u64() % 300 * 7).to_be_bytes());
        } else {
            let tail = rng.next_u64() % (self.longest + 1);
            let draw = |rng: &mut Xoshiro256PlusPlus| self.bytes[to_usize(rng.next_u64()) % self.bytes.len()];
            key.extend((0..tail).map(|_| draw(rng)));
        }
        key
    }

    /// A low fence and a higher one, each an end of the tree or a key.
    fn fences(&self, rng: &mut Xoshiro256PlusPlus) -> (Vec<u8>, Option<Vec<u8>>) {
        loop {
            let low = if rng.next_u64().is_multiple_of(4) { Vec::new() } else { self.draw(rng) };
            let high = (!rng.next_u64().is_multiple_of(4)).then(|| {
                let end = rng.next_u64().is_multiple_of(2).then_some(0xff);
                self.draw(rng).into_iter().chain(end).collect::<Vec<u8>>()
            });
            if high.as_ref().is_none_or(|high| *high > low) {
                return (low, high);
            }
        }
    }
}

/// A page, and a map with the expected contents.
struct Modelled {
    page: Vec<u8>,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl Modelled {
    fn new(size: usize, low: &[u8], high: Option<Vec<u8>>) -> Modelled {
        let mut page = vec![0u8; size];
        let level = 0;
        apply(&mut page, ID, &PageOp::Init { level, low, high: high.as_deref(), entries: vec![] }).expect("fits");
        Modelled { page, map: BTreeMap::new(), high }
    }

    fn view(&self) -> PageView<'_> {
        PageView::new(&self.page)
    }

    /// Applies `op` to the page, and the expected effect to the map.
    fn apply(&mut self, op: &PageOp<'_>) -> Result<(), Misfit> {
        let before = self.page.clone();
        let view = PageView::new(&before);
        let expected = match op {
            PageOp::Insert { key, .. } if self.map.contains_key(*key) => Err(Misfit::KeyThere),
            PageOp::Insert { key, .. } if !view.covers(key) => Err(Misfit::KeyOutside),
            PageOp::Insert { key, value } if view.entry_len_of(key.len(), value.len()) > view.free_bytes() => {
                Err(Misfit::NoRoom)
            }
            PageOp::Replace { key, value } => match self.map.get(*key) {
                None => Err(Misfit::KeyMissing),
                Some(old) if value.len() > old.len() + view.free_bytes() => Err(Misfit::NoRoom),
                Some(_) => Ok(()),
            },
            PageOp::Patch { key, patch } => match self.map.get(*key).map(|old| (old.len(), patch.len_of(old.len()))) {
                None => Err(Misfit::KeyMissing),
                Some((_, None)) => Err(Misfit::BadPatch),
                Some((old, Some(new))) if new > old + view.free_bytes() => Err(Misfit::NoRoom),
                Some(_) => Ok(()),
            },
            PageOp::Remove { key } if !self.map.contains_key(*key) => Err(Misfit::KeyMissing),
            _ => Ok(()),
        };
        assert_eq!(apply(&mut self.page, ID, op), expected, "{op:?}");
        if expected.is_err() {
            assert!(self.page == before, "{op:?} was refused and changed the page");
            return expected;
        }
        match op {
            PageOp::Insert { key, value } | PageOp::Replace { key, value } => {
                self.map.insert(key.to_vec(), value.to_vec());
            }
            PageOp::Patch { key, patch } => {
                let new = self.map.get(*key).and_then(|old| patch.apply(old)).expect("looked at before");
                self.map.insert(key.to_vec(), new.to_vec());
            }
            PageOp::Remove { key } => {
                self.map.remove(*key);
            }
            PageOp::Truncate { keep, high } => {
                self.map = std::mem::take(&mut self.map).into_iter().take(usize::from(*keep)).collect();
                self.high = Some(high.to_vec());
                let (now, then) = (self.view(), view);
                assert!(now.prefix_len() >= then.prefix_len(), "PAGE-4");
                assert!(now.free_bytes() + now.directory() >= then.free_bytes() + then.directory(), "PAGE-4");
            }
            PageOp::Init { .. } | PageOp::Compact { .. } | PageOp::Free => {}
        }
        Ok(())
    }

    /// Every reading function agrees with the map.
    fn check(&self, probes: &[Vec<u8>]) {
        let view = self.view();
        assert_eq!(structure_problem(&self.page), None);
        assert_eq!((view.len(), view.high_fence()), (self.map.len(), self.high.as_deref()));
        for (index, (key, value)) in self.map.iter().enumerate() {
            assert_eq!((&view.key(index), view.value(index)), (key, value.as_slice()));
            assert_eq!(view.search(key), Ok(index));
        }
        for key in probes {
            let below = self.map.range::<Vec<u8>, _>(..key).count();
            let found = if self.map.contains_key(key) { Ok(below) } else { Err(below) };
            assert_eq!(view.search(key), found, "{}", key.escape_ascii());
        }
        let used: usize = (0..view.len()).map(|i| view.entry_len(i)).sum();
        assert_eq!(view.free_bytes() + used + view.directory(), self.page.len());
    }

    /// The [`PageOp::Init`] of this page takes fewer bytes than the page, and makes one with the same contents.
    fn check_init(&self) {
        let view = self.view();
        let entries = (0..view.len()).map(|i| (view.suffix(i), view.value(i))).collect();
        let op = PageOp::Init { level: 0, low: view.low_fence(), high: view.high_fence(), entries };
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        assert!(bytes.len() <= self.page.len(), "an operation of {} bytes", bytes.len());
        let mut page = vec![1u8; self.page.len()];
        apply(&mut page, ID, &PageOp::decode(&mut Reader::new(&bytes)).expect("whole")).expect("fits");
        assert_eq!(structure_problem(&page), None);
        let (again, len) = (PageView::new(&page), view.len());
        assert_eq!((again.len(), again.free_bytes()), (len, view.free_bytes()));
        assert!((0..len).all(|i| again.suffix(i) == view.suffix(i) && again.value(i) == view.value(i)));
    }
}

fn number(rng: &mut Xoshiro256PlusPlus, below: usize) -> usize {
    to_usize(rng.next_u64()) % below
}

/// One page's life: filled, changed, and truncated now and then. Returns how many operations succeeded, and how many
/// the page had no room for.
fn live(rng: &mut Xoshiro256PlusPlus, keys: &Keys, size: usize) -> (usize, usize) {
    let (low, high) = keys.fences(rng);
    let mut modelled = Modelled::new(size, &low, high.clone());
    let edges: Vec<Vec<u8>> = [Some(low), high, Some(vec![]), Some(vec![0xff; 9])].into_iter().flatten().collect();
    let (mut done, mut full) = (0, 0);
    let longest = size / [40, 10, 4][number(rng, 3)];
    for step in 0..120 {
        let key = if number(rng, 10) == 0 { edges[number(rng, edges.len())].clone() } else { keys.draw(rng) };
        let value = vec![b'v'; number(rng, longest)];
        let there = modelled.map.contains_key(&key);
        let mut patch = PatchBuf::new();
        let old = modelled.map.get(&key).or(modelled.map.values().next()).cloned().unwrap_or_default();
        let has_patch = find_patch((0, b""), &old, &value, &mut patch);
        let op = match number(rng, 9) {
            0 | 1 => PageOp::Remove { key: &key },
            8 if has_patch => PageOp::Patch { key: &key, patch: Patch(&patch) },
            2 if !there => PageOp::Replace { key: &key, value: &value },
            _ if there => PageOp::Replace { key: &key, value: &value },
            _ => PageOp::Insert { key: &key, value: &value },
        };
        match modelled.apply(&op) {
            Ok(()) => done += 1,
            Err(misfit) => full += usize::from(misfit == Misfit::NoRoom),
        }
        if step % 40 == 39 && modelled.map.len() > 1 {
            // Like a split: the new fence is above the entries that stay, and is a key or the beginning of one.
            let keep = 1 + number(rng, modelled.map.len() - 1);
            let (below, fence) = (modelled.view().key(keep - 1), modelled.view().key(keep));
            let shortest = (1..=fence.len()).find(|len| fence[..*len] > below[..]).expect("keys ascend");
            let high = if number(rng, 2) == 0 { &fence[..] } else { &fence[..shortest] };
            let keep = u16::try_from(keep).expect("few");
            // The entry that leaves the page is at least as long as the fence grows.
            modelled.apply(&PageOp::Truncate { keep, high }).expect("PAGE-4: there is room");
        }
        if step % 8 == 7 {
            let probes: Vec<Vec<u8>> = (0..20).map(|_| keys.draw(rng)).chain(edges.clone()).collect();
            modelled.check(&probes);
        }
    }
    modelled.check_init();
    (done, full)
}

#[test]
#[cfg_attr(miri, ignore = "long")]
fn pages_agree_with_maps_whatever_the_keys() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(21);
    let (mut done, mut full) = (0, 0);
    for size in PAGE_SIZES {
        for keys in Keys::all().iter().filter(|keys| keys.prefix.len() + 200 < size / 16 * 3) {
            for _ in 0..if size > 16_384 { 2 } else { 6 } {
                let (more, fuller) = live(&mut rng, keys, size);
                done += more;
                full += fuller;
            }
        }
    }
    assert!(done > 15_000 && full > 1000, "{done} operations, {full} without room");
}

/// The root of a tree of numbers: no fences, the first key empty, the others equal in their first five bytes.
#[test]
fn heads_skip_what_all_keys_but_the_first_begin_with() {
    let mut modelled = Modelled::new(4096, b"", None);
    let heads = |modelled: &Modelled| modelled.view().heads().iter().map(|head| head.get()).collect::<Vec<_>>();
    let keys: Vec<_> = [0x01_0000u64, 0x02_0000, 0x03_0001].into_iter().map(u64::to_be_bytes).collect();
    for key in [&b""[..], &keys[0], &keys[1]] {
        modelled.apply(&PageOp::Insert { key, value: b"" }).expect("fits");
    }
    assert_eq!(heads(&modelled), [0, 0x0100_0000, 0x0200_0000]);
    modelled.apply(&PageOp::Insert { key: &keys[2], value: b"" }).expect("fits");
    assert_eq!(heads(&modelled), [0, 0x0100_0000, 0x0200_0000, 0x0300_0100]);
    // A non-empty key below the others: its head must not order behind theirs.
    modelled.apply(&PageOp::Remove { key: b"" }).expect("there");
    modelled.apply(&PageOp::Insert { key: b"\0\0\0\0\0\0\xff\xff", value: b"" }).expect("fits");
    modelled.apply(&PageOp::Insert { key: b"\0\0\0\0\0", value: b"" }).expect("fits");
    modelled.check(&[b"".to_vec(), vec![0; 4], vec![0; 6], vec![0; 9], vec![0, 1], vec![0, 0, 0, 0, 0, 1, 0, 0, 0]]);
    // A last key with another beginning ends the skip.
    modelled.apply(&PageOp::Insert { key: b"z", value: b"" }).expect("fits");
    assert_eq!(heads(&modelled), [0, 0, 0, 0, 0, 0x7a00_0000]);
}

/// The most entries, and the largest offset, that a page can have.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn the_largest_page_takes_as_many_entries_as_it_has_room_for() {
    let mut modelled = Modelled::new(65_536, b"", None);
    let keys: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_be_bytes).collect();
    modelled.apply(&PageOp::Insert { key: b"", value: b"" }).expect("fits");
    assert_eq!(modelled.view().offset(0), 65_532);
    let full = keys.iter().position(|key| modelled.apply(&PageOp::Insert { key, value: b"" }).is_err());
    assert_eq!(full, Some((65_536 - 64 - 10) / 12));
    modelled.check(&keys.iter().step_by(97).map(|key| key.to_vec()).collect::<Vec<_>>());
    modelled.check_init();
}
