//! The free slots of a file. Never stored: an open rebuilds them from the map.
//!
//! Slots are taken from the emptiest zone until it is full, then from the next one. So a lot (batch of images) leaves
//! in few long writes, and freed slots collect where the next lot will go.
//!
//! BACKUP-1  A slot that a backup pins is not given out, whatever becomes of its page. Slots given back meanwhile are
//!           held back, and free once they are unpinned.
//! SPACE-1   The file is cut only behind zones that lose nothing: each slot of a zone that goes is free, so no durable
//!           state of the map names an image in it (STORE-1), and no thread writes to it. A slot in use, replaced and
//!           not yet free, pinned, held back, or bad is not free, so its zone stays.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::ops::Range;

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::SlotId;

/// Most slots of a zone: those of 4 KiB.
const ZONE_SLOTS_MAX: usize = 256;

#[derive(Clone, Default)]
struct Zone {
    /// One bit for each slot, set if it is free.
    words: Bits,
    free: u32,
    /// Slots that a backup has yet to copy.
    pinned: Bits,
    /// Slots among them that were given back.
    held_back: Bits,
}

/// One bit for each slot of a zone.
type Bits = [u64; ZONE_SLOTS_MAX / 64];

/// Free slots by zone.
pub(crate) struct Slots {
    per_zone: u64,
    zones: Vec<Zone>,
    /// Zones with free slots, except the current one and those set aside: (free slots, zone).
    by_free: BTreeSet<(u32, Reverse<usize>)>,
    current: Option<usize>,
    /// Zones that are being emptied: no slot of them is taken while others have free slots.
    set_aside: BTreeSet<usize>,
    /// The end, in zones, that the file shall have: no slot at or behind it is taken while others are free.
    /// `usize::MAX`: no zone shall go.
    end: usize,
    /// Free slots behind the end.
    free_behind: u64,
    free: u64,
    held_back: u64,
}

impl Slots {
    /// Memory in bytes: each zone, and its entry in `by_free`.
    pub(super) fn memory(&self) -> u64 {
        to_u64(self.zones.len() * (size_of::<Zone>() + 2 * size_of::<(u32, usize)>()))
    }

    /// A file with room for `total` slots, all free, in zones of `per_zone`, at most 256.
    pub(super) fn all_free(per_zone: u64, total: u64) -> Self {
        let mut slots = Slots {
            per_zone,
            zones: Vec::new(),
            by_free: BTreeSet::new(),
            current: None,
            set_aside: BTreeSet::new(),
            end: usize::MAX,
            free_behind: 0,
            free: 0,
            held_back: 0,
        };
        slots.grow(total);
        slots
    }

    /// Adds free slots up to `total`, rounded down to whole zones.
    pub(crate) fn grow(&mut self, total: u64) {
        let free = u32::try_from(self.per_zone).expect("STORE: a zone has 256 slots at most");
        while (to_u64(self.zones.len()) + 1) * self.per_zone <= total {
            let mut zone = Zone { free, ..Zone::default() };
            for slot in 0..to_usize(self.per_zone) {
                zone.words[slot / 64] |= 1 << (slot % 64);
            }
            if self.zones.len() < self.end {
                self.by_free.insert((free, Reverse(self.zones.len())));
            } else {
                self.free_behind += self.per_zone;
            }
            self.zones.push(zone);
            self.free += self.per_zone;
        }
    }

    pub(super) fn total(&self) -> u64 {
        to_u64(self.zones.len()) * self.per_zone
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Slots in a zone.
    pub(super) fn per_zone(&self) -> u64 {
        self.per_zone
    }

    /// Number of zones without used slots, counted up to `at_most`.
    pub(super) fn empty_zones(&self, at_most: usize) -> usize {
        self.by_free.range(self.first_empty()..).take(at_most).count()
    }

    /// Zones with free and used slots, the emptiest first, and the number of free slots of each; without the current
    /// zone and those set aside.
    pub(super) fn partly_free(&self) -> impl Iterator<Item = (usize, u64)> {
        self.by_free.range(..self.first_empty()).rev().map(|&(free, Reverse(zone))| (zone, u64::from(free)))
    }

    /// The least key of empty zones in [`by_free`](Self::by_free), above all others.
    fn first_empty(&self) -> (u32, Reverse<usize>) {
        (u32::try_from(self.per_zone).expect("STORE: a zone has 256 slots at most"), Reverse(usize::MAX))
    }

    /// The slots of a zone.
    pub(super) fn of_zone(&self, zone: usize) -> Range<u64> {
        to_u64(zone) * self.per_zone..(to_u64(zone) + 1) * self.per_zone
    }

    fn place(&self, slot: SlotId) -> (usize, usize, u64) {
        let in_zone = to_usize(slot.0 % self.per_zone);
        (to_usize(slot.0 / self.per_zone), in_zone / 64, 1 << (in_zone % 64))
    }

    pub(super) fn is_free(&self, slot: SlotId) -> bool {
        let (zone, word, bit) = self.place(slot);
        self.zones.get(zone).is_some_and(|zone| zone.words[word] & bit != 0)
    }

    fn set_free_count(&mut self, zone: usize, free: u32) {
        let old = std::mem::replace(&mut self.zones[zone].free, free);
        if zone >= self.end {
            self.free_behind = self.free_behind + u64::from(free) - u64::from(old);
        }
        if self.set_aside.contains(&zone) {
            if u64::from(free) == self.per_zone {
                self.end_aside(zone);
            }
        } else if self.current != Some(zone) && zone < self.end {
            self.by_free.remove(&(old, Reverse(zone)));
            if free > 0 {
                self.by_free.insert((free, Reverse(zone)));
            }
        }
    }

    /// Takes the given slot. False: it is not free.
    pub(crate) fn take(&mut self, slot: SlotId) -> bool {
        if !self.is_free(slot) {
            return false;
        }
        let (zone, word, bit) = self.place(slot);
        self.zones[zone].words[word] &= !bit;
        self.free -= 1;
        self.set_free_count(zone, self.zones[zone].free - 1);
        true
    }

    /// Takes `count` slots. `None`: fewer are free.
    pub(super) fn take_many(&mut self, count: usize) -> Option<Vec<SlotId>> {
        if self.free < to_u64(count) {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let zone = self.current_zone()?;
            let entry = &mut self.zones[zone];
            let word = entry.words.iter().position(|word| *word != 0)?;
            let bit = entry.words[word].trailing_zeros();
            entry.words[word] &= entry.words[word] - 1;
            entry.free -= 1;
            self.free -= 1;
            let in_zone = to_u64(word) * 64 + u64::from(bit);
            taken.push(SlotId(to_u64(zone) * self.per_zone + in_zone));
        }
        Some(taken)
    }

    /// The current zone, which is filled first; when it is full, the emptiest one.
    fn current_zone(&mut self) -> Option<usize> {
        if let Some(zone) = self.current.filter(|zone| self.zones[*zone].free > 0) {
            return Some(zone);
        }
        if self.by_free.is_empty() {
            std::mem::take(&mut self.set_aside).into_iter().for_each(|zone| _ = self.end_aside(zone));
        }
        while self.by_free.is_empty() && self.end < self.zones.len() {
            self.raise_end();
        }
        let (_, Reverse(zone)) = self.by_free.pop_last()?;
        self.current = Some(zone);
        Some(zone)
    }

    /// Takes no more slots from a zone until it is empty, unless no other slot is free.
    pub(super) fn set_aside(&mut self, zone: usize) {
        let free = self.zones.get(zone).map_or(0, |zone| zone.free);
        if self.by_free.remove(&(free, Reverse(zone))) {
            self.set_aside.insert(zone);
        }
    }

    /// Makes a zone's slots available again, empty or not. Returns whether it was set aside.
    pub(super) fn end_aside(&mut self, zone: usize) -> bool {
        let was_aside = self.set_aside.remove(&zone);
        // The zone may be cut off by now.
        let free = self.zones.get(zone).map_or(0, |zone| zone.free);
        if free > 0 && self.current != Some(zone) && zone < self.end {
            self.by_free.insert((free, Reverse(zone)));
        }
        was_aside
    }

    /// Gives a slot back.
    pub(super) fn give(&mut self, slot: SlotId) {
        debug_assert!(!self.is_free(slot), "STORE-1: slot {} is free already", slot.0);
        let (zone, word, bit) = self.place(slot);
        if self.zones[zone].pinned[word] & bit != 0 && !planted!("pinned_slot_given_out") {
            self.zones[zone].held_back[word] |= bit;
            self.held_back += 1;
            return;
        }
        self.zones[zone].words[word] |= bit;
        self.free += 1;
        self.set_free_count(zone, self.zones[zone].free + 1);
    }
}

/// The end that the file shall have.
impl Slots {
    /// Moves the end toward `goal`, past `at_most` zones. Returns whether it is there.
    pub(super) fn move_end(&mut self, goal: usize, at_most: usize) -> bool {
        let goal = goal.min(self.zones.len());
        for _ in 0..at_most {
            match self.end().cmp(&goal) {
                Ordering::Less => self.raise_end(),
                Ordering::Greater => {
                    self.end = self.end() - 1;
                    let free = self.zones[self.end].free;
                    self.current = self.current.filter(|current| *current != self.end);
                    self.by_free.remove(&(free, Reverse(self.end)));
                    self.free_behind += u64::from(free);
                }
                Ordering::Equal => break,
            }
        }
        self.end() == goal
    }

    /// Makes the first zone behind the end available.
    fn raise_end(&mut self) {
        let (zone, free) = (self.end, self.zones[self.end].free);
        self.free_behind -= u64::from(free);
        self.end = if zone + 1 < self.zones.len() { zone + 1 } else { usize::MAX };
        if free > 0 && !self.set_aside.contains(&zone) {
            self.by_free.insert((free, Reverse(zone)));
        }
    }

    /// The end, in zones, that the file shall have: at most the number of zones.
    pub(super) fn end(&self) -> usize {
        self.end.min(self.zones.len())
    }

    /// Whether the slot is behind the end.
    pub(super) fn is_behind(&self, slot: SlotId) -> bool {
        self.place(slot).0 >= self.end
    }

    /// Free slots of the zones before the end.
    pub(super) fn free_before_end(&self) -> u64 {
        self.free - self.free_behind
    }

    /// Zones behind the end with slots that are not free, the last one first, and the number of free slots of each.
    pub(super) fn used_behind(&self) -> impl Iterator<Item = (usize, u64)> {
        let behind = (self.end()..self.zones.len()).rev().map(|zone| (zone, u64::from(self.zones[zone].free)));
        behind.filter(|(_, free)| *free < self.per_zone)
    }

    /// The number of zones that stay if the free ones at the file's end go: down to `least`, and to the end that the
    /// file shall have, and `most` zones at most.
    pub(super) fn zones_to_stay(&self, least: usize, most: usize) -> usize {
        let least = least.max(self.end());
        let is_free = |zone: &&Zone| u64::from(zone.free) == self.per_zone;
        let free = self.zones.iter().rev().take(most).take_while(is_free).count();
        (self.zones.len() - free).max(least).min(self.zones.len())
    }

    /// Forgets all zones but the first `zones`: the file is about to be cut (SPACE-1).
    pub(super) fn shrink(&mut self, zones: usize) {
        for (number, zone) in self.zones.drain(zones..).enumerate() {
            let all_free = u64::from(zone.free) == self.per_zone;
            assert!(all_free || planted!("cut_under_an_image"), "SPACE-1: zone {} is in use", zones + number);
            self.free -= u64::from(zone.free);
            self.held_back -= zone.held_back.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            self.by_free.remove(&(zone.free, Reverse(zones + number)));
            if zones + number >= self.end {
                self.free_behind -= u64::from(zone.free);
            }
        }
        if self.end >= zones {
            self.end = usize::MAX;
        }
        self.set_aside.split_off(&zones);
        self.current = self.current.filter(|current| *current < zones);
    }
}

/// Pins of a backup.
impl Slots {
    /// Pins all slots that are not free.
    pub(super) fn pin_used(&mut self) {
        let mut all = Bits::default();
        for slot in 0..to_usize(self.per_zone) {
            all[slot / 64] |= 1 << (slot % 64);
        }
        for zone in &mut self.zones {
            zone.pinned = std::array::from_fn(|word| all[word] & !zone.words[word]);
        }
    }

    pub(super) fn is_pinned(&self, slot: SlotId) -> bool {
        let (zone, word, bit) = self.place(slot);
        self.zones.get(zone).is_some_and(|zone| zone.pinned[word] & bit != 0)
    }

    /// Whether the zone has pinned slots.
    pub(super) fn has_pins(&self, zone: usize) -> bool {
        self.zones.get(zone).is_some_and(|zone| zone.pinned != Bits::default())
    }

    /// Unpins the slots of a zone.
    pub(super) fn unpin(&mut self, zone: usize) {
        let Some(of) = self.zones.get_mut(zone) else { return };
        of.pinned = Bits::default();
        let held_back = std::mem::take(&mut of.held_back);
        let count: u32 = held_back.iter().map(|word| word.count_ones()).sum();
        if count > 0 {
            of.words.iter_mut().zip(held_back).for_each(|(word, held)| *word |= held);
            let free = of.free + count;
            self.held_back -= u64::from(count);
            self.free += u64::from(count);
            self.set_free_count(zone, free);
        }
    }

    /// Unpins all slots.
    pub(super) fn unpin_all(&mut self) {
        (0..self.zones.len()).for_each(|zone| self.unpin(zone));
    }

    /// The number of slots that are held back.
    pub(super) fn held_back(&self) -> u64 {
        self.held_back
    }

    /// The number of zones.
    pub(super) fn zones(&self) -> usize {
        self.zones.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_slots_are_given_out_only_after_they_are_unpinned() {
        let mut slots = Slots::all_free(16, 48);
        let taken = slots.take_many(20).expect("free");
        slots.pin_used();
        assert!(slots.is_pinned(SlotId(19)) && !slots.is_pinned(SlotId(20)) && !slots.is_pinned(SlotId(99)));
        assert_eq!([0, 1, 2, 3].map(|zone| slots.has_pins(zone)), [true, true, false, false]);
        taken.iter().for_each(|slot| slots.give(*slot));
        assert_eq!((slots.free(), slots.held_back()), (28, 20));
        assert_eq!(slots.take_many(29), None);
        slots.unpin(0);
        assert_eq!((slots.free(), slots.held_back(), slots.is_pinned(SlotId(17))), (44, 4, true));
        slots.unpin_all();
        assert_eq!((slots.free(), slots.held_back()), (48, 0));
        assert_eq!(slots.take_many(48).map(|all| all.len()), Some(48));
        assert_eq!(slots.zones(), 3);
    }

    #[test]
    fn slots_are_taken_once_and_from_the_emptiest_zone() {
        // Zones of 16 slots.
        let mut slots = Slots::all_free(16, 50);
        assert_eq!((slots.total(), slots.free()), (48, 48));
        assert_eq!(slots.take_many(20).expect("free"), (0..20).map(SlotId).collect::<Vec<_>>());
        assert_eq!(slots.take_many(28).expect("free"), (20..48).map(SlotId).collect::<Vec<_>>());
        assert_eq!(slots.take_many(1), None);
        for slot in [3, 17, 18, 19, 40, 41] {
            slots.give(SlotId(slot));
        }
        assert_eq!(slots.partly_free().collect::<Vec<_>>(), [(1, 3), (0, 1)]);
        // Zone 2 was the current one; zone 1, next, has more free slots than zone 0.
        let taken: Vec<u64> = slots.take_many(6).expect("free").into_iter().map(|slot| slot.0).collect();
        assert_eq!(taken, [40, 41, 17, 18, 19, 3]);
        slots.grow(64);
        assert_eq!((slots.free(), slots.total(), slots.empty_zones(9)), (16, 64, 1));
        assert_eq!((slots.partly_free().count(), slots.of_zone(3)), (0, 48..64));
        assert!(!slots.take(SlotId(1)) && slots.take(SlotId(50)) && !slots.take(SlotId(64)));
        assert!(slots.is_free(SlotId(51)) && !slots.is_free(SlotId(50)));
    }

    #[test]
    fn zone_being_emptied_gets_images_only_if_there_is_no_other() {
        let mut slots = Slots::all_free(16, 48);
        let taken = slots.take_many(48).expect("free");
        taken[..10].iter().chain(&taken[16..20]).for_each(|slot| slots.give(*slot));
        slots.set_aside(0);
        assert_eq!(slots.take_many(2).expect("free"), [SlotId(16), SlotId(17)]);
        assert_eq!(slots.partly_free().count(), 0, "one zone is being filled, one emptied");
        taken[10..16].iter().for_each(|slot| slots.give(*slot));
        assert_eq!(slots.empty_zones(9), 1, "the emptied zone is available again");
        assert_eq!(slots.take_many(3).expect("free"), [SlotId(18), SlotId(19), SlotId(0)]);
        // The last free slots are taken from any zone.
        slots.give(SlotId(20));
        slots.set_aside(1);
        assert_eq!(slots.take_many(16).expect("free")[15], SlotId(20));
        assert_eq!((slots.free(), slots.take_many(1)), (0, None));
        slots.give(SlotId(40));
        slots.set_aside(2);
        slots.end_aside(2);
        assert_eq!(slots.take_many(1).expect("free"), [SlotId(40)]);
    }

    /// SPACE-1
    #[test]
    fn free_zones_at_the_end_go_and_none_with_a_used_slot() {
        let mut slots = Slots::all_free(16, 6 * 16);
        let taken = slots.take_many(70).expect("free");
        taken[..50].iter().chain(&taken[65..]).for_each(|slot| slots.give(*slot));
        assert_eq!((slots.zones_to_stay(0, 9), slots.end()), (6, 6), "no end is wanted");
        assert!(!slots.move_end(1, 3) && slots.end() == 3 && slots.move_end(1, 9));
        assert_eq!(slots.used_behind().collect::<Vec<_>>(), [(4, 15), (3, 2)]);
        assert_eq!((slots.zones_to_stay(0, 9), slots.free_before_end()), (5, 16));
        assert!(slots.is_behind(SlotId(16)) && !slots.is_behind(SlotId(15)));
        slots.shrink(5);
        assert_eq!((slots.zones(), slots.free()), (5, 65));
        taken[50..65].iter().for_each(|slot| slots.give(*slot));
        slots.pin_used();
        assert_eq!((slots.zones_to_stay(2, 9), slots.zones_to_stay(0, 9), slots.zones_to_stay(0, 1)), (2, 1, 4));
        slots.shrink(2);
        assert_eq!((slots.zones(), slots.free(), slots.total()), (2, 32, 32));
        assert_eq!(slots.take_many(32).map(|all| all.len()), Some(32));
        slots.grow(48);
        assert_eq!(slots.take_many(2), Some([SlotId(32), SlotId(33)].into()), "a file that grows is used");
    }

    #[test]
    fn zones_behind_the_end_get_images_only_if_there_is_no_other() {
        let mut slots = Slots::all_free(16, 64);
        let taken = slots.take_many(40).expect("free");
        assert!(slots.move_end(1, 9) && slots.free_before_end() == 0);
        taken[..10].iter().for_each(|slot| slots.give(*slot));
        slots.give(taken[20]);
        assert_eq!((slots.empty_zones(9), slots.partly_free().collect::<Vec<_>>()), (0, [(0, 10)].into()));
        assert_eq!(slots.take_many(10).expect("free"), taken[..10]);
        // The first zones behind the end, one after the other.
        assert_eq!(slots.take_many(2).expect("free"), [taken[20], SlotId(40)]);
        assert_eq!(slots.end(), 3);
        slots.set_aside(2);
        assert!(slots.move_end(9, 9) && slots.end() == 4, "as long as it is");
        assert_eq!(slots.free(), slots.free_before_end());
        assert_eq!(slots.take_many(23).map(|all| all.len()), Some(23), "all that is free");
        assert_eq!(slots.take_many(1), None);
    }

    #[test]
    fn a_zone_of_small_slots_has_four_words() {
        let mut slots = Slots::all_free(256, 512);
        let taken = slots.take_many(300).expect("free");
        assert_eq!(taken, (0..300).map(SlotId).collect::<Vec<_>>());
        taken.into_iter().for_each(|slot| slots.give(slot));
        assert_eq!(slots.free(), 512);
    }

    #[test]
    fn empty_zones_are_counted_and_memory_is_by_zone() {
        let mut slots = Slots::all_free(64, 5 * 64);
        assert_eq!((slots.empty_zones(9), slots.empty_zones(2)), (5, 2));
        assert_eq!(slots.memory(), 5 * to_u64(size_of::<Zone>() + 2 * size_of::<(u32, usize)>()));
        assert!(slots.take(SlotId(70)) && slots.take(SlotId(140)));
        assert_eq!((slots.empty_zones(9), slots.partly_free().count()), (3, 2));
    }
}
