//! In place: a page keeps the slot of its first image.
//!
//! The classic design: half the data file, and no map records but for new pages. A write that a crash tears is put back
//! from the doublewrite file, or, without one, found by its checksum and reported. A lost write is
//! found only where the log knows the page. An image that is ahead of where the log ended at open shows that the
//! log's end is gone: until the database is closed, for then the log may have come further.

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
    fn is_written(&self, slot: SlotId) -> bool {
        self.written.get(to_usize(slot.0 / 64)).is_some_and(|bits| bits >> (slot.0 % 64) & 1 == 1)
    }

    /// This process has written the slot's image.
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
    /// Whether each image is named by a map group once it is durable.
    pub(crate) fn names_images(&self) -> bool {
        self.superblock().features & FEATURE_IN_PLACE == 0
    }

    /// The log ends here, as the store is opened.
    pub(crate) fn note_log_end(&self, end: Lsn) {
        if !self.names_images() {
            self.log_end.store(end.0, Ordering::Relaxed);
        }
    }

    /// What an image of `lsn` tells of the log, which must have been durable so far when it was written.
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
