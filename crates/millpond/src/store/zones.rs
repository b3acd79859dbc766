//! Zones that are emptied, for long writes or for a shorter file: their images, and whether these are still current.
//!
//! A moved image is written like any other, but without a change of the page. It is its page's one image in flight
//! (STORE-6). Its old slot is free when the log is durable past the map group that names the new one (STORE-1).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::map::MapEntry;
use super::page_store::PageStore;
use super::superblock::FEATURE_IN_PLACE;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::{Lsn, PageId, SlotId};
use crate::base::page::layout::{header, page_lsn};
use crate::io::device::ReadPiece;
use crate::pace::zone_cleaning::ZoneFill;

/// Bytes of a zone.
pub(crate) const ZONE_BYTES: usize = 1 << 20;

/// Used slots at most this far apart are read together, with the slots between them.
const NEAR_SLOTS: u64 = 3;

/// An image that may be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveImage {
    pub(crate) id: PageId,
    pub(crate) lsn: Lsn,
    entry: MapEntry,
    /// Its position in the buffer, in pages.
    pub(crate) index: usize,
}

impl PageStore {
    /// The emptiest zone that is not empty, not being filled or emptied, and not to be skipped.
    pub(crate) fn emptiest_zone(&self, skip: impl Fn(usize) -> bool) -> Option<(usize, ZoneFill)> {
        let state = self.state.lock();
        // A zone with pinned slots does not become empty.
        let mut zones = state.slots.partly_free().filter(|(zone, _)| !state.slots.has_pins(*zone));
        let (zone, free) = zones.find(|(zone, _)| !skip(*zone))?;
        Some((zone, ZoneFill { slots: state.slots.per_zone(), free }))
    }

    /// Number of zones without used slots, counted up to `at_most`.
    pub(crate) fn empty_zones(&self, at_most: usize) -> usize {
        self.state.lock().slots.empty_zones(at_most)
    }

    /// Takes no more slots from `zone` until it is empty, or [`end_emptying`](Self::end_emptying) is called.
    pub(crate) fn begin_emptying(&self, zone: usize) {
        self.state.lock().slots.set_aside(zone);
    }

    /// Makes the zone's slots available again. Returns whether they were already: the zone became empty, or no other
    /// slot was free.
    pub(crate) fn end_emptying(&self, zone: usize) -> bool {
        !self.state.lock().slots.end_aside(zone)
    }

    /// Reads `zones`, each into its [`ZONE_BYTES`] of `buf`, all at the same time. Returns for each zone the images
    /// that are their pages' newest. `None`: an image in the zone is damaged or unreadable.
    pub(crate) fn read_zones(&self, zones: &[usize], buf: &mut [u8]) -> Vec<Option<Vec<LiveImage>>> {
        let per_zone = Self::zone_slots(self.page_size);
        let used: Vec<Vec<SlotId>> = {
            let state = self.state.lock();
            let used = |zone: &usize| {
                let slots = state.slots.of_zone(*zone).map(SlotId);
                slots.filter(|slot| !state.slots.is_free(*slot)).collect()
            };
            zones.iter().map(used).collect()
        };
        let mut reads: Vec<ReadPiece<'_>> = Vec::new();
        let mut of_zone = Vec::new();
        for (at, (slots, mut part)) in used.iter().zip(buf.chunks_mut(ZONE_BYTES)).enumerate() {
            let mut cut = 0;
            // Slots between near used ones are read, too.
            for run in slots.chunk_by(|one, next| next.0 - one.0 <= NEAR_SLOTS) {
                let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
                let from = to_usize(first.0 % per_zone) * self.page_size();
                let len = to_usize(last.0 - first.0 + 1) * self.page_size();
                let piece;
                (piece, part) = part[from - cut..].split_at_mut(len);
                cut = from + len;
                reads.push((piece, self.offset(*first)));
                of_zone.push(at);
            }
        }
        let pages = to_u64(used.iter().map(Vec::len).sum());
        let ends = self.counters.pending_reads.during(pages, || self.data.read_many(&mut reads));
        let failed: BTreeSet<usize> =
            ends.iter().zip(of_zone).filter(|(end, _)| end.is_err()).map(|(_, zone)| zone).collect();
        self.counters.page_reads.fetch_add(pages, Ordering::Relaxed);
        let of = |(at, slots): (usize, &Vec<SlotId>)| {
            if failed.contains(&at) { None } else { self.live_images(slots, at * to_usize(per_zone), buf) }
        };
        used.iter().enumerate().map(of).collect()
    }

    /// The images in `slots` of one zone that are their pages' newest. The zone was read to `buf`, from page `before`
    /// on.
    fn live_images(&self, slots: &[SlotId], before: usize, buf: &[u8]) -> Option<Vec<LiveImage>> {
        let mut live = Vec::with_capacity(slots.len());
        for &slot in slots {
            let index = before + to_usize(slot.0 % Self::zone_slots(self.page_size));
            let image = &buf[index * self.page_size()..(index + 1) * self.page_size()];
            let id = PageId(header(image).page_id.get());
            let entry = self.state.lock().newest(id);
            let found = LiveImage { id, lsn: page_lsn(image), entry, index };
            // Otherwise it is an older image, whose slot becomes free by itself; or one in flight; or unrecognisable.
            if self.slot_of(entry) == Some(slot) {
                if self.problem_of(found.id, entry, image).is_some() && !planted!("moved_unchecked") {
                    return None;
                }
                live.push(found);
            }
        }
        Some(live)
    }

    /// Whether an image that was read is still its page's newest, durable, and named by the map. Only the thread that
    /// writes images calls this.
    pub(crate) fn may_move(&self, image: &LiveImage) -> bool {
        let state = self.state.lock();
        let is_known = state.map.has_space(image.id.space()) && !state.freed.contains(&image.id);
        // In place the entry stays while the image changes; but not behind the wanted end, where nothing is written.
        let is_behind = || self.slot_of(image.entry).is_some_and(|slot| state.slots.is_behind(slot));
        let is_settled = state.superblock.features & FEATURE_IN_PLACE == 0 || is_behind();
        is_known && is_settled && !state.unsynced.contains_key(&image.id) && state.map.get(image.id) == image.entry
    }
}

#[cfg(test)]
mod tests {
    use super::super::page_store_tests::{new_pages, new_store, write, write_durably};
    use super::*;
    use crate::base::aligned::aligned;
    use crate::io::simulated::SimulatedDisk;

    /// A store whose first zone holds images of these pages, in slots 0, 1, 4 and 9, and of no others.
    fn store_with_gaps(disk: &SimulatedDisk) -> (PageStore, [PageId; 4]) {
        let store = new_store(disk, 0);
        let ids: [PageId; 10] = new_pages(&store);
        write_durably(&store, &ids, 5000);
        let kept = [0, 1, 4, 9].map(|slot| ids[slot]);
        for (lsn, id) in (5100..).zip(ids.iter().filter(|id| !kept.contains(id))) {
            store.free_page(*id, Lsn(lsn), Lsn(lsn + 1));
        }
        store.release_slots(Lsn(5200));
        (store, kept)
    }

    fn read_first_zone(store: &PageStore) -> Vec<LiveImage> {
        let mut buf = aligned(ZONE_BYTES);
        let live = store.read_zones(&[0], &mut buf).remove(0).expect("undamaged");
        for image in &live {
            let at = image.index * store.page_size();
            assert_eq!(header(&buf[at..]).page_id.get(), image.id.0, "the image is in the buffer");
        }
        live
    }

    #[test]
    fn zone_yields_all_images_near_ones_in_one_read() {
        let disk = SimulatedDisk::new();
        let (store, ids) = store_with_gaps(&disk);
        let calls = disk.calls();
        let live = read_first_zone(&store);
        assert_eq!(disk.calls() - calls, 2, "slots 0 to 4, and 9");
        assert_eq!(
            live.iter().map(|image| (image.id, image.index)).collect::<Vec<_>>(),
            [(ids[0], 0), (ids[1], 1), (ids[2], 4), (ids[3], 9)]
        );
        assert!(live.iter().all(|image| image.lsn == Lsn(5000)));
    }

    /// ZONES-2: after the zone was read, pages are written, given back, and dropped.
    #[test]
    fn image_may_move_only_while_it_is_durable_and_its_pages_newest() {
        let disk = SimulatedDisk::new();
        let (store, ids) = store_with_gaps(&disk);
        let live = read_first_zone(&store);
        let may_move = || live.iter().map(|image| store.may_move(image)).collect::<Vec<_>>();
        assert_eq!(may_move(), [true; 4]);
        write_durably(&store, &ids[..1], 6000);
        assert_eq!(may_move(), [false, true, true, true], "another image is named");
        store.free_page(ids[1], Lsn(6100), Lsn(6200));
        assert_eq!(may_move(), [false, false, true, true], "given back");
        write(&store, &ids[2..3], 7000).expect("written");
        assert_eq!(may_move(), [false, false, false, true], "another image is in flight");
        store.drop_space(ids[3].space(), Lsn(7100));
        assert_eq!(may_move(), [false; 4], "dropped");
    }
}
