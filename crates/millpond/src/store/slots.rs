//! Which slots of the data file are free. Never stored: rebuilt from the map when a database is opened.

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::SlotId;

/// A bitmap of free slots, searched from where the last search ended, so that a lot of images leaves in few runs.
pub(crate) struct Slots {
    /// One bit a slot, set: free.
    words: Vec<u64>,
    total: u64,
    free: u64,
    cursor: u64,
}

impl Slots {
    /// `total` slots, all free.
    pub(crate) fn all_free(total: u64) -> Self {
        let mut slots = Slots { words: Vec::new(), total: 0, free: 0, cursor: 0 };
        slots.grow(total);
        slots
    }

    /// Adds free slots up to `total`.
    pub(crate) fn grow(&mut self, total: u64) {
        self.words.resize(to_usize(total.div_ceil(64)), 0);
        for slot in self.total..total {
            self.words[to_usize(slot / 64)] |= 1 << (slot % 64);
        }
        self.free += total.saturating_sub(self.total);
        self.total = self.total.max(total);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    pub(crate) fn is_free(&self, slot: SlotId) -> bool {
        slot.0 < self.total && self.words[to_usize(slot.0 / 64)] & (1 << (slot.0 % 64)) != 0
    }

    /// Takes one given slot. False: it is not free.
    pub(crate) fn take(&mut self, slot: SlotId) -> bool {
        let was_free = self.is_free(slot);
        if was_free {
            self.words[to_usize(slot.0 / 64)] &= !(1 << (slot.0 % 64));
            self.free -= 1;
        }
        was_free
    }

    /// Takes `count` slots, ascending but for one wrap, in as long runs as the cursor meets. `None`: not so many are
    /// free.
    pub(crate) fn take_many(&mut self, count: usize) -> Option<Vec<SlotId>> {
        if self.free < to_u64(count) {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        let mut at = self.cursor;
        while taken.len() < count {
            if at >= self.total {
                at = 0;
            }
            let word = self.words[to_usize(at / 64)] >> (at % 64);
            if word == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            at += u64::from(word.trailing_zeros());
            let slot = SlotId(at);
            let took = self.take(slot);
            debug_assert!(took, "STORE-1: a set bit is a free slot");
            taken.push(slot);
            at += 1;
        }
        self.cursor = at;
        Some(taken)
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, slot: SlotId) {
        debug_assert!(!self.is_free(slot), "STORE-1: slot {} is free already", slot.0);
        self.words[to_usize(slot.0 / 64)] |= 1 << (slot.0 % 64);
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_once_and_come_in_runs() {
        let mut slots = Slots::all_free(200);
        let first = slots.take_many(130).expect("free");
        assert_eq!(first, (0..130).map(SlotId).collect::<Vec<_>>());
        for slot in first.iter().filter(|s| s.0 % 2 == 0) {
            slots.give(*slot);
        }
        assert_eq!(slots.free(), 135);
        let second = slots.take_many(100).expect("free");
        assert_eq!(&second[..70], (130..200).map(SlotId).collect::<Vec<_>>());
        assert_eq!(second[70], SlotId(0));
        assert_eq!(slots.take_many(36), None);
        slots.grow(300);
        assert_eq!((slots.free(), slots.total()), (135, 300));
        assert!(!slots.take(SlotId(1)) && slots.take(SlotId(299)));
    }
}
