//! The data file becomes shorter: its last zones are emptied, and then cut off.
//!
//! The zones behind the wanted end get no more images ([`slots`](super::slots)). The keeper moves the images in them
//! ([`zones`](super::zones)). Once they are free, the file is cut.
//!
//! SPACE-2  The number of each page that the log may name is below the slots in the data file, or has a map page within
//!          the map file, as both files are after a crash. The first holds while the data file does not become shorter.
//!          So before it is cut, the map file's length is durable, and all numbers given out have their map pages in
//!          it.
//!
//! Without a sync a crash may leave the longer file. An open takes the slots behind for free ones.

use std::sync::atomic::Ordering;

use super::page_store::{PageStore, State};
use super::space::Room;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::SlotId;
use crate::pace::zone_cleaning::ZoneFill;

/// Least number of zones that the keeper cuts off by itself.
const LEAST_ZONES: usize = 16;

/// Most zones cut off together. A thread that waits for growth meanwhile waits for no more than these.
pub(crate) const CUT_ZONES: usize = 64;

/// The room that stays in a file that becomes shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// As much as the file grows to ahead of need.
    Usual,
    /// A little, as a caller has asked.
    Lean,
}

/// How far the file is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The file became shorter by this number of zones.
    Zones(usize),
    /// There is nothing to cut off, or a backup has pinned slots.
    Nothing,
    /// Numbers were given out whose map pages are in no durable length of the map file: a checkpoint first (SPACE-2).
    AfterCheckpoint,
}

impl State {
    fn room_with(&self, spare: Spare) -> Room {
        match spare {
            Spare::Usual => self.usual_room(),
            Spare::Lean => self.lean_room(),
        }
    }

    /// The least number of zones with this room.
    fn zones_with(&self, spare: Spare) -> usize {
        let slots = self.room_with(spare).slots + self.slots_without_room();
        to_usize(slots.div_ceil(self.slots.per_zone()))
    }

    /// Whether so many slots are free that the file should become shorter by itself: more than are used, and a good
    /// deal more than growth ahead of need would add.
    pub(super) fn has_too_many_slots(&self) -> bool {
        let most = self.zones_with(Spare::Usual) + LEAST_ZONES;
        // In an idle database no page is written, so replaced slots wait: they count as free.
        let free = self.slots.free() + to_u64(self.replaced.len());
        free > self.slots.total() / 2 && self.slots.zones() >= most && !self.pins.is_there
    }
}

impl PageStore {
    /// The length of the data file in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        Self::data_len(self.state.lock().slots.total(), self.page_size)
    }

    /// Bytes of the data file when all zones behind the wanted end are gone.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        let state = self.state.lock();
        Self::data_len(to_u64(state.slots.end()) * state.slots.per_zone(), self.page_size)
    }

    /// Number of zones of the data file, and of those that would do.
    pub(crate) fn zones_now_and_with(&self, spare: Spare) -> (usize, usize) {
        let state = self.state.lock();
        (state.slots.zones(), state.zones_with(spare))
    }

    /// Has the file not grow ahead of need until some pages have come.
    pub(crate) fn stay_lean(&self) {
        self.state.lock().stay_lean();
    }

    /// Moves the end that the file shall have toward `goal` zones, past `at_most` zones. Returns whether it is there.
    /// Only the keeper calls this.
    pub(crate) fn move_end(&self, goal: usize, at_most: usize) -> bool {
        self.state.lock().slots.move_end(goal, at_most)
    }

    /// The end, in zones, that the file shall have. Threads that find no other slot raise it.
    pub(crate) fn wanted_end(&self) -> usize {
        self.state.lock().slots.end()
    }

    /// Free slots that are before the wanted end.
    pub(crate) fn free_before_end(&self) -> u64 {
        self.state.lock().slots.free_before_end()
    }

    /// Whether a backup or a check has pinned slots.
    pub(crate) fn has_pins(&self) -> bool {
        self.state.lock().pins.is_there
    }

    /// The number of the last zone behind the wanted end that is not all free.
    pub(crate) fn last_used_zone(&self) -> Option<usize> {
        self.state.lock().slots.used_behind().next().map(|(zone, _)| zone)
    }

    /// The last zone behind the wanted end with images to move, and not to be skipped. In place, a write over an image
    /// in it that began earlier has ended.
    pub(crate) fn zone_to_leave(&self, skip: impl Fn(usize) -> bool) -> Option<(usize, ZoneFill)> {
        let state = self.state.lock();
        let is_written = |zone: usize| {
            let slots = state.slots.of_zone(zone);
            state.overwriting.range(SlotId(slots.start)..SlotId(slots.end)).next().is_some()
        };
        let (zone, free) = state.slots.used_behind().find(|(zone, _)| !skip(*zone) && !is_written(*zone))?;
        Some((zone, ZoneFill { slots: state.slots.per_zone(), free }))
    }

    /// Cuts free zones off the file's end: at most [`CUT_ZONES`], and only if there are `at_least` or all behind the
    /// wanted end are free. The room of `spare` stays. Durable after the next data sync.
    ///
    /// A thread that has the file grow meanwhile waits for this call. There seldom is one, because the file has room.
    /// The device cuts the file outside of the state's mutex, so reads and writes of pages go on.
    pub(crate) fn cut(&self, spare: Spare, at_least: usize) -> Result<Cut, Error> {
        // No growth of the file overtakes the cut, or is overtaken.
        let _growth = self.growth.lock();
        let (zones, len) = {
            let mut state = self.state.lock();
            let now = state.slots.zones();
            if state.pins.is_there || state.slots.end() == now {
                return Ok(Cut::Nothing);
            }
            let mut least = state.zones_with(spare);
            if planted!("cut_under_an_image") {
                least = least.max(state.slots.end()).max(now.saturating_sub(CUT_ZONES));
            } else {
                least = state.slots.zones_to_stay(least, CUT_ZONES);
            }
            if now <= least || (now - least < at_least && least > state.slots.end()) {
                return Ok(Cut::Nothing);
            }
            if state.places_synced != state.places.total() && !planted!("cut_before_map_is_synced") {
                return Ok(Cut::AfterCheckpoint);
            }
            state.slots.shrink(least);
            (now - least, Self::data_len(state.slots.total(), self.page_size))
        };
        if let Err(error) = self.data.cut(len) {
            // The slots that are still in the file are free ones. Without its length they are not used.
            if let Ok(slots) = self.slots_in_file() {
                self.state.lock().slots.grow(slots);
            }
            return Err(Error::io(&format!("cut '{}' to {len} bytes", self.data.name()), error));
        }
        self.counters.cuts.fetch_add(1, Ordering::Relaxed);
        self.counters.zones_cut.fetch_add(to_u64(zones), Ordering::Relaxed);
        Ok(Cut::Zones(zones))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::page_store_tests::{new_pages, new_store, opened, read, write_durably};
    use super::super::space::{Fit, Share};
    use super::*;
    use crate::base::ids::{Lsn, PageId};
    use crate::base::waits::Waits;
    use crate::io::simulated::{ServiceTime, SimulatedDisk};
    use crate::store::checkpoint::CheckpointFacts;
    use crate::store::superblock::Superblock;

    fn publish(store: &PageStore) {
        let facts = CheckpointFacts {
            checkpoint_lsn: Lsn(4096),
            durable_lsn: Lsn(9000),
            nonce: 7,
            redo: Superblock::of_tests().redo,
            switch: None,
            write_capacity: 0,
            apply_rate: 0,
        };
        store.publish(store.snapshot(), facts).expect("published");
    }

    /// A store with 20,000 page ids given out and back, and images of three pages; of one the number is above all.
    fn large(disk: &SimulatedDisk) -> (PageStore, Vec<PageId>) {
        let store = new_store(disk, 0);
        let waits = Waits::new(Duration::from_secs(1));
        let first: [PageId; 2] = new_pages(&store);
        let ids: Vec<PageId> =
            (0..20_000).map(|_| store.allocate(first[0].space(), Share::Common, &waits).expect("room")).collect();
        let kept = vec![first[0], first[1], ids[19_999]];
        write_durably(&store, &kept, 5000);
        ids[..19_999].iter().for_each(|id| store.give_back(*id));
        (store, kept)
    }

    /// SPACE-2: the cut comes after a checkpoint that makes the map file's length durable. A group of the log names the
    /// page of the high number then, and recovery believes it.
    #[test]
    fn numbers_beyond_the_file_are_believed_after_a_cut() {
        let disk = SimulatedDisk::new();
        let (store, kept) = large(&disk);
        let records = {
            let state = store.state.lock();
            let record = |id: &PageId| super::super::page_store::MapRecord {
                page_id: id.0.into(),
                entry: state.map.get(*id).0.into(),
                image_lsn: 5000.into(),
            };
            kept.iter().map(record).collect::<Vec<_>>()
        };
        let (before, wanted) = store.zones_now_and_with(Spare::Lean);
        assert!(before > 80 && wanted < 4 && store.fit().is_too_long);
        assert!(!store.move_end(wanted, 1) && store.move_end(wanted, before));
        assert_eq!(store.wanted_bytes(), PageStore::data_len(to_u64(wanted) * 256, 4096));
        assert_eq!(store.cut(Spare::Lean, 1).expect("looked at"), Cut::AfterCheckpoint);
        publish(&store);
        let mut cuts = 0;
        while let Cut::Zones(zones) = store.cut(Spare::Lean, 1).expect("cut") {
            assert!(zones <= CUT_ZONES);
            cuts += zones;
        }
        assert_eq!((cuts, store.data_bytes()), (before - wanted, disk.image()["data.mpd"].len() as u64));
        assert_eq!(store.counters.cuts.load(Ordering::Relaxed), to_u64(cuts.div_ceil(CUT_ZONES)));
        store.sync().expect("synced");
        let crashed = disk.crash_now(crate::io::simulated::Unsynced::None);
        let store = opened(&SimulatedDisk::with_image(crashed, ServiceTime::default()));
        store.replay_records(&records, Lsn(6000), Lsn(6100)).expect("a number that was given out");
        store.finish_replay(&std::collections::BTreeSet::new()).expect("replayed");
        assert_eq!(kept.iter().map(|id| read(&store, *id).ok()).collect::<Vec<_>>(), [Some(Lsn(5000)); 3]);
    }

    #[test]
    fn a_refused_cut_leaves_all_slots_free() {
        let disk = SimulatedDisk::new();
        let (store, kept) = large(&disk);
        publish(&store);
        let (before, wanted) = store.zones_now_and_with(Spare::Lean);
        store.move_end(wanted, before);
        let counts = store.slot_counts();
        disk.refuse_cuts(true);
        assert!(store.cut(Spare::Lean, 1).is_err());
        assert_eq!((store.slot_counts(), store.zones_now_and_with(Spare::Lean)), (counts, (before, wanted)));
        disk.refuse_cuts(false);
        assert_eq!(store.cut(Spare::Lean, 1).expect("cut"), Cut::Zones(CUT_ZONES));
        assert_eq!(store.data_bytes(), to_u64(disk.image()["data.mpd"].len()));
        assert_eq!(kept.iter().map(|id| read(&store, *id).ok()).collect::<Vec<_>>(), [Some(Lsn(5000)); 3]);
    }

    /// SPACE-1: a zone with an image stays, and so does all before it.
    #[test]
    fn zones_with_images_stay_and_growth_brings_others_back() {
        let disk = SimulatedDisk::new();
        let (store, kept) = large(&disk);
        publish(&store);
        let (before, wanted) = store.zones_now_and_with(Spare::Lean);
        assert_eq!(store.cut(Spare::Lean, 1).expect("looked at"), Cut::Nothing, "no end is wanted");
        store.move_end(wanted, before);
        assert_eq!(store.last_used_zone(), None, "images are in the first zone");
        let frozen = store.freeze();
        assert_eq!(store.cut(Spare::Lean, 1).expect("looked at"), Cut::Nothing, "pinned");
        store.thaw();
        drop(frozen);
        while store.cut(Spare::Lean, 1).expect("cut") != Cut::Nothing {}
        assert_eq!(kept.iter().map(|id| read(&store, *id).ok()).collect::<Vec<_>>(), [Some(Lsn(5000)); 3]);
        assert_eq!(store.fit(), Fit { is_too_short: false, is_too_long: false }, "short on purpose");
        let waits = Waits::new(Duration::from_secs(1));
        (0..2000).for_each(|_| _ = store.allocate(kept[0].space(), Share::Common, &waits).expect("room"));
        assert!(store.slot_counts().0 > 2000 && store.data_bytes() == disk.image()["data.mpd"].len() as u64);
    }
}
