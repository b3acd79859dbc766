//! In place: a page keeps the slot of its first image.
//!
//! The classic design: half the size of the data file, and no map records except for new pages. Recovery restores a
//! page torn by a crash from the doublewrite file; without one, the page's checksum reveals the damage. A lost write is
//! found only where the log knows the page. An image ahead of the log's end at open reveals that the end of the log is
//! missing. That check works only until the database is closed: by the next open the log may have grown beyond the
//! image.

use std::sync::atomic::Ordering;

use super::map::MapEntry;
use super::page_store::{PageStore, State};
use super::placement::Placement;
use super::slots::Slots;
use super::superblock::FEATURE_IN_PLACE;
use crate::base::aligned::to_usize;
use crate::base::ids::{Lsn, SlotId};

/// The classic page store.
pub(crate) struct InPlace;

impl Placement for InPlace {
    fn slots(&self, free: &mut Slots, current: &[Option<SlotId>]) -> Option<Vec<SlotId>> {
        let mut fresh = free.take_many(current.iter().filter(|slot| slot.is_none()).count())?.into_iter();
        current.iter().map(|slot| slot.or_else(|| fresh.next())).collect()
    }

    fn tag(&self, _page_lsn: Lsn) -> u64 {
        0
    }
}

impl State {
    /// IN-PLACE-1: a slot is not given out while its page's image in it is being overwritten, even if the page's space
    /// is dropped meanwhile. `current` are the slots of the previous images, `slots` those of the new ones. Returns the
    /// slots in both, for [`end_overwriting`](Self::end_overwriting); none where each image has a new slot.
    pub(super) fn begin_overwriting(&mut self, slots: &[SlotId], current: &[Option<SlotId>]) -> Vec<SlotId> {
        let over = slots.iter().zip(current).filter(|(slot, before)| **before == Some(**slot));
        let over: Vec<SlotId> = over.map(|(slot, _)| *slot).collect();
        if !planted!("overwritten_given_away") {
            self.overwriting.extend(&over);
        }
        over
    }

    /// Ends these writes, successful or not.
    pub(super) fn end_overwriting(&mut self, over: &[SlotId]) {
        for slot in over {
            self.overwriting.remove(slot);
            if self.late.remove(slot) {
                self.give_if_sound(*slot);
            }
        }
    }

    fn is_written(&self, slot: SlotId) -> bool {
        self.written.get(to_usize(slot.0 / 64)).is_some_and(|bits| bits >> (slot.0 % 64) & 1 == 1)
    }

    /// Notes that this process has written the slot's image.
    pub(super) fn note_written(&mut self, slot: SlotId) {
        if self.superblock.features & FEATURE_IN_PLACE == 0 {
            return;
        }
        let index = to_usize(slot.0 / 64);
        if self.written.len() <= index {
            self.written.resize(index + 1, 0);
        }
        self.written[index] |= 1 << (slot.0 % 64);
    }
}

impl PageStore {
    /// Whether map groups name each durable image.
    pub(crate) fn names_images(&self) -> bool {
        self.superblock().features & FEATURE_IN_PLACE == 0
    }

    /// Notes the log's end at open.
    pub(crate) fn note_log_end(&self, end: Lsn) {
        if !self.names_images() {
            self.log_end.store(end.0, Ordering::Relaxed);
        }
    }

    /// The problem of an image of page LSN `lsn`, if it is ahead of the log, which must have been durable to there.
    pub(super) fn problem_of_lsn(&self, entry: MapEntry, lsn: Lsn) -> Option<String> {
        let end = Lsn(self.log_end.load(Ordering::Relaxed));
        if lsn <= end || planted!("image_ahead_not_looked_at") {
            return None;
        }
        let slot = self.slot_of(entry)?;
        let is_own = self.state.lock().is_written(slot);
        (!is_own).then(|| format!("the image is of LSN {lsn}, and the log ended at {end}: the log is damaged"))
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::super::doublewrite::{CopyFile, DOUBLEWRITE_FILE};
    use super::super::page_store_tests::{new_pages, new_store, opened, read, write, write_durably};
    use super::*;
    use crate::base::aligned::aligned;
    use crate::base::ids::PageId;
    use crate::base::scheduler::{current, run};
    use crate::base::sync::spawn;
    use crate::io::simulated::SimulatedDisk;

    fn store_on(disk: &SimulatedDisk, keeps_copies: bool) -> PageStore {
        let mut store = new_store(disk, FEATURE_IN_PLACE);
        store.keep_copies_in(CopyFile::open(disk, 4096, keeps_copies).expect("made"));
        store
    }

    /// IN-PLACE-1: a page is overwritten in place while its space is dropped, which would free the slot for another.
    #[test]
    fn slot_that_is_written_to_is_given_to_no_other_page() {
        let mut met = 0;
        for seed in 0..400 {
            let is_late = run(seed, || {
                let disk = SimulatedDisk::new();
                let store = Arc::new(store_on(&disk, seed % 2 == 0));
                let write = |store: &PageStore, id, lsn| {
                    assert_eq!(write(store, &[id], lsn).expect("written"), Some(1));
                };
                let [dropped] = new_pages(&store);
                let (_, free) = store.slot_counts();
                write(&store, dropped, 5000);
                let records = store.map_records(store.sync().expect("synced"));
                store.apply_records(&records, Lsn(5000), Lsn(5100));
                let writer = {
                    let store = Arc::clone(&store);
                    spawn("writer", move || write(&store, dropped, 6000)).expect("a thread")
                };
                current().expect("a simulation").sleep_ns(1 + seed % 7 * 100);
                store.drop_space(dropped.space(), Lsn(5200));
                while store.give_back_step() {}
                let [next] = new_pages(&store);
                write(&store, next, 7000);
                let is_late = !store.state.lock().late.is_empty();
                writer.join().expect("no panic");
                store.sync().expect("synced");
                let mut image = aligned(4096);
                let read = store.read_many(&mut [(next, &mut image)]).remove(0);
                assert_eq!(read.map_err(|error| error.to_string()), Ok(()), "seed {seed}");
                assert_eq!(store.slot_counts().1, free - 1, "all other slots are free again");
                is_late
            });
            met += usize::from(is_late.0);
        }
        assert!(met > 40, "only {met} seeds write while the slot could be given out");
    }

    /// DBLWR-2: a write over two images fails, and leaves half of it. Only the copies are whole. The next writer, which
    /// waited for its turn meanwhile, must not overwrite them.
    #[test]
    fn copies_of_what_a_failed_write_has_torn_are_not_written_over() {
        let disk = SimulatedDisk::new();
        let store = store_on(&disk, true);
        let ids: [PageId; 2] = new_pages(&store);
        let write = |id, lsn| write(&store, &[id], lsn);
        for id in ids {
            assert_eq!(write(id, 5000).expect("written"), Some(1));
        }
        let records = store.map_records(store.sync().expect("synced"));
        store.apply_records(&records, Lsn(5000), Lsn(5100));
        let copies = || disk.image()[DOUBLEWRITE_FILE].clone();
        assert_eq!(write(ids[0], 6000).expect("written"), Some(1));
        assert_eq!(store.map_records(store.sync().expect("synced")).len(), 0, "the map names the slot already");
        // The calls of the second page: its copies, their sync, and then the write over its image, which fails.
        disk.fail_at(disk.calls() + 2, std::io::ErrorKind::Other);
        assert!(write(ids[1], 7000).is_err());
        let kept = copies();
        let refused = write(ids[0], 8000).expect_err("the copies are needed");
        assert!(refused.to_string().contains("reopen the database"), "{refused}");
        assert!(kept == copies());
    }

    /// An image ahead of the log shows that the log has lost its end, unless this process wrote it.
    #[test]
    fn image_ahead_of_the_log_is_a_problem_unless_written_since() {
        let disk = SimulatedDisk::new();
        let (ids, records) = {
            let store = new_store(&disk, FEATURE_IN_PLACE);
            let ids: [PageId; 2] = new_pages(&store);
            (ids, write_durably(&store, &ids, 6000))
        };
        let store = opened(&disk);
        ids.iter().for_each(|id| store.replay_format(*id));
        store.replay_records(&records, Lsn(6000), Lsn(6100)).expect("possible");
        store.finish_replay(&BTreeSet::new()).expect("replayed");
        store.note_log_end(Lsn(6000));
        assert_eq!(ids.map(|id| read(&store, id).ok()), [Some(Lsn(6000)); 2]);
        store.note_log_end(Lsn(5999));
        write(&store, &ids[1..], 7000).expect("written");
        let problem = read(&store, ids[0]).expect_err("ahead of the log").to_string();
        assert!(problem.contains("the log ended at 5999: the log is damaged"), "{problem}");
        assert_eq!(read(&store, ids[1]).ok(), Some(Lsn(7000)));
    }
}
