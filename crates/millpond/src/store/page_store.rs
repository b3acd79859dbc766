//! Reading and writing images.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::counters::StoreCounters;
use super::doublewrite::CopyFile;
use super::image::{SlotContent, content_of};
use super::lot::WriteOp;
use super::map::{MapEntry, PageMap, Space};
use super::pins::Pins;
use super::placement::Placement;
use super::slots::Slots;
use super::superblock::{SLOTS_START, Superblock};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::{Error, MEND_TREE};
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId};
use crate::base::page::layout::{TREE_PAGE, find_damage, page_lsn, seal};
use crate::base::sync::{Mutex, Turn};
use crate::io::device::{Device, ReadPiece};
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::group::GROUP_FRAME_LEN;
use crate::redo::log::MAP_RECORD_MAX;

/// Tries to write an image, each in other slots.
const WRITE_TRIES: u32 = 3;

/// An image that is readable and not durable.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) entry: MapEntry,
    pub(super) op: WriteOp,
    /// The slot differs from that of the previous image.
    fresh: bool,
    /// Number of the write call, which covers a lot.
    turn: u64,
}

/// A map group's entry for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct MapRecord {
    pub(crate) page_id: U64,
    pub(crate) entry: U64,
    pub(crate) image_lsn: U64,
}

/// A dropped space whose slots are given back step by step.
pub(super) struct DroppedSpace {
    /// End of the group that dropped it: its slots are free once the log is durable to here.
    pub(super) lsn: Lsn,
    pub(super) space: Space,
}

pub(super) struct State {
    pub(super) map: PageMap,
    /// STORE-7: larger than the number of each space that ever existed.
    pub(super) next_space: u32,
    pub(super) slots: Slots,
    /// The data file does not grow ahead of need while at most so many pages are charged.
    pub(super) lean_upto: u64,
    /// Slots of the map file, which are called places.
    pub(super) places: Slots,
    /// Number of places by which the map file's length is durable (SPACE-2).
    pub(super) places_synced: u64,
    pub(super) directory_len: u64,
    /// Images written, which no map record names yet.
    pub(super) unsynced: BTreeMap<PageId, Written>,
    /// Number of loaded or moved images among them: no frame waits for them.
    pub(super) loaded: usize,
    /// Pages given back whose ids must not be given out yet (STORE-9).
    pub(super) freed: BTreeSet<PageId>,
    pub(super) turn: u64,
    /// Slots that are free once the log is durable to the LSN.
    pub(super) replaced: VecDeque<(Lsn, SlotId)>,
    /// Slots whose write failed: their contents are unknown, and they stay unused until the next open.
    pub(super) bad_slots: BTreeSet<SlotId>,
    /// In place: slots being overwritten, and those of them to free afterwards (IN-PLACE-1).
    pub(super) overwriting: BTreeSet<SlotId>,
    pub(super) late: BTreeSet<SlotId>,
    /// Places of the map file that are free once the next superblock is durable.
    pub(super) replaced_places: Vec<SlotId>,
    pub(super) dropped: VecDeque<DroppedSpace>,
    /// In place: slots whose image this process has written, one bit each.
    pub(super) written: Vec<u64>,
    /// End of the last group that dropped a space.
    pub(super) dropped_upto: Lsn,
    /// Number of directories taken so far: none names a place written since the last one.
    pub(super) directories: u64,
    /// Pages that the replayed log formats: their ids are in use.
    pub(super) formatted: HashSet<PageId, FixedState>,
    pub(super) superblock: Superblock,
    pub(super) pins: Pins,
}

/// Page images on the data file.
pub(crate) struct PageStore {
    pub(super) data: Arc<dyn Device>,
    pub(super) map_file: Arc<dyn Device>,
    pub(super) directory_files: [Arc<dyn Device>; 2],
    pub(super) page_size: u64,
    pub(super) uuid: [u64; 2],
    /// The next transaction id to give out.
    pub(super) next_txn: AtomicU64,
    pub(super) placement: Box<dyn Placement>,
    /// In place, with doublewrite: the file of copies.
    pub(super) copies: Option<CopyFile>,
    pub(super) state: Mutex<State>,
    /// Held while the files grow, unlike `state`.
    pub(super) growth: Turn<()>,
    /// In place: LSN of the log's end when the store was opened.
    pub(super) log_end: AtomicU64,
    /// Serialises the data file's syncs; true: one has failed.
    pub(super) syncing: Turn<bool>,
    /// The last write turn up to which all images are durable.
    pub(super) synced: AtomicU64,
    pub(super) counts: Arc<DirtyCounts>,
    pub(crate) counters: StoreCounters,
}

impl State {
    /// Location of the page's newest image, durable or not.
    pub(super) fn newest(&self, id: PageId) -> MapEntry {
        self.unsynced.get(&id).map_or_else(|| self.map.get(id), |written| written.entry)
    }

    /// STORE-1: frees the slots whose replacement is durable.
    pub(super) fn release_slots(&mut self, durable: Lsn) {
        while let Some((lsn, slot)) = self.replaced.front().copied()
            && lsn <= durable
        {
            self.replaced.pop_front();
            if self.overwriting.contains(&slot) {
                self.late.insert(slot);
            } else {
                self.give_if_sound(slot);
            }
        }
    }

    pub(super) fn give_if_sound(&mut self, slot: SlotId) {
        if !self.bad_slots.contains(&slot) {
            self.slots.give(slot);
        }
    }

    /// Ends the flight of the page's image.
    pub(super) fn landed(&mut self, id: PageId) -> Option<Written> {
        let written = self.unsynced.remove(&id)?;
        self.loaded -= usize::from(written.op.rec_lsn.is_none());
        Some(written)
    }

    pub(super) fn replace_slot(&mut self, lsn: Lsn, slot: SlotId) {
        if planted!("slot_freed_early") {
            self.slots.give(slot);
        } else {
            self.replaced.push_back((lsn, slot));
        }
    }
}

impl PageStore {
    pub(crate) fn page_size(&self) -> usize {
        to_usize(self.page_size)
    }

    /// The newest durable superblock.
    pub(crate) fn superblock(&self) -> Superblock {
        self.state.lock().superblock
    }

    /// All spaces.
    pub(crate) fn spaces(&self) -> BTreeSet<SpaceId> {
        self.state.lock().map.spaces()
    }

    pub(crate) fn has_space(&self, space: SpaceId) -> bool {
        self.state.lock().map.has_space(space)
    }

    /// Page ids of a space in use.
    pub(crate) fn used(&self, space: SpaceId) -> Vec<PageId> {
        self.state.lock().map.used(space)
    }

    /// Number of page ids of a space in use.
    pub(crate) fn used_count(&self, space: SpaceId) -> u64 {
        self.state.lock().map.used_count(space)
    }

    /// Number of page ids in use.
    pub(crate) fn used_in_all(&self) -> u64 {
        self.state.lock().map.charged()
    }

    /// Sorts pages by the locations of their images.
    pub(crate) fn sort_by_place(&self, pages: &mut [PageId]) {
        let state = self.state.lock();
        pages.sort_unstable_by_key(|id| (state.newest(*id).offset(), *id));
    }

    /// All pages that the map names.
    pub(crate) fn pages(&self) -> Vec<PageId> {
        self.state.lock().map.pages().map(|(id, _)| id).collect()
    }

    pub(super) fn slot_of(&self, entry: MapEntry) -> Option<SlotId> {
        entry.slot(SLOTS_START, self.page_size)
    }

    pub(super) fn offset(&self, slot: SlotId) -> u64 {
        SLOTS_START + slot.0 * self.page_size
    }

    /// Reads and checks the newest images of several pages, all at the same time.
    pub(crate) fn read_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Vec<Result<(), Error>> {
        let entries: Vec<MapEntry> = {
            let state = self.state.lock();
            pages.iter().map(|(id, _)| state.newest(*id)).collect()
        };
        let named = pages.iter_mut().zip(&entries);
        let mut reads: Vec<ReadPiece<'_>> =
            named.filter_map(|((_, buf), entry)| Some((&mut **buf, self.offset(self.slot_of(*entry)?)))).collect();
        let count = to_u64(reads.len());
        self.counters.page_reads.fetch_add(count, Ordering::Relaxed);
        let mut ends = self.counters.pending_reads.during(count, || self.data.read_many(&mut reads)).into_iter();
        let check = |((id, buf), entry): (&mut (PageId, &mut [u8]), MapEntry)| {
            let read = self.slot_of(entry).and_then(|_| ends.next()).is_some_and(|end| end.is_ok());
            if read && self.problem_of(*id, entry, buf).is_none() {
                return Ok(());
            }
            // Reads it separately: that finds the image that is current by now, or reports the problem.
            self.read(*id, buf)
        };
        pages.iter_mut().zip(entries).map(check).collect()
    }

    /// The problem of an image of page `id` that was read from the location in `entry`.
    pub(super) fn problem_of(&self, id: PageId, entry: MapEntry, image: &[u8]) -> Option<String> {
        match find_damage(image, self.uuid, id, TREE_PAGE) {
            None if planted!("tag_not_compared") || self.placement.tag(page_lsn(image)) == entry.tag() => None,
            None => Some("the image is an older one (a lost write)".to_owned()),
            damage => damage,
        }
        .or_else(|| self.problem_of_lsn(entry, page_lsn(image)))
    }

    /// Reads and checks a page's newest image.
    pub(crate) fn read(&self, id: PageId, buf: &mut [u8]) -> Result<(), Error> {
        loop {
            let entry = self.state.lock().newest(id);
            let damage = |what: &str| {
                let message = format!(
                    "page {id} in '{}': {what}; only what it leads to is affected: {MEND_TREE}",
                    self.data.name()
                );
                Error::Corruption(message.into())
            };
            let Some(slot) = self.slot_of(entry) else {
                return Err(damage("it is named by a tree and has no image"));
            };
            let offset = self.offset(slot);
            let read = self.counters.pending_reads.during(1, || self.data.read_at(buf, offset));
            self.counters.page_reads.fetch_add(1, Ordering::Relaxed);
            let read = read.map_err(|e| Error::io(&format!("read page {id} at {offset} of '{}'", self.data.name()), e));
            let problem = read.map(|()| self.problem_of(id, entry, buf));
            if matches!(problem, Ok(None)) {
                return Ok(());
            }
            if self.state.lock().newest(id) == entry {
                return Err(problem
                    .map_or_else(|e| e, |what| damage(&format!("at offset {offset}, {}", what.unwrap_or_default()))));
            }
            // The map changed meanwhile: the slot no longer held this page's image, or was cut off. Try again.
        }
    }

    /// Whether the page has an image that is not durable yet: it must not be written again before it is.
    pub(crate) fn in_flight(&self, id: PageId) -> bool {
        self.state.lock().unsynced.contains_key(&id)
    }

    /// Whether the page has an image.
    pub(crate) fn has_image(&self, id: PageId) -> bool {
        self.state.lock().newest(id).is_some()
    }

    /// Number of images of frames that are not durable.
    pub(crate) fn unsynced(&self) -> usize {
        let state = self.state.lock();
        state.unsynced.len() - state.loaded
    }

    /// Number of images of loaded or moved pages that are not durable.
    pub(crate) fn loaded(&self) -> usize {
        self.state.lock().loaded
    }

    /// The last write turn, and the last one up to which all images are durable and named.
    pub(crate) fn turns(&self) -> (u64, u64) {
        let state = self.state.lock();
        let oldest = state.unsynced.values().map(|written| written.turn).min();
        (state.turn, oldest.map_or(state.turn, |oldest| oldest - 1))
    }

    /// Whether a change before `cut` waits for the data sync of its image.
    pub(crate) fn holds_before(&self, cut: Lsn) -> bool {
        self.state.lock().unsynced.values().any(|written| written.op.rec_lsn.is_some_and(|lsn| lsn < cut))
    }

    /// Writes the images in `buf`, one for each of `ops`. On return readers see them. They are durable once a map group
    /// names them ([`map_records`](Self::map_records)).
    ///
    /// Returns the number of device writes. `None`: nothing was written, because too few slots are free. STORE-5: the
    /// log is durable to `durable`, and no image may be ahead of it.
    pub(crate) fn write(&self, ops: &[WriteOp], buf: &mut [u8], durable: Lsn) -> Result<Option<usize>, Error> {
        for op in ops {
            let behind = op.lsn <= durable || planted!("page_before_log");
            assert!(behind, "STORE-5: page {} at LSN {} leaves before the log, durable to {durable}", op.id, op.lsn);
        }
        let mut tries = [Self::GROW, Self::BREAK_PINS].into_iter();
        let (current, slots, over) = loop {
            let mut state = self.state.lock();
            let freed = ops.iter().find(|op| state.freed.contains(&op.id));
            assert!(freed.is_none() || planted!("freed_page_written"), "STORE-9: {freed:?} was given back");
            state.release_slots(durable);
            // BACKUP-1: an image that is to be copied is not overwritten.
            let current = |op: &WriteOp| {
                self.slot_of(state.map.get(op.id))
                    .filter(|slot| !state.slots.is_pinned(*slot) || planted!("pinned_image_overwritten"))
                    // In place, too, pages leave the zones that shall go.
                    .filter(|slot| !state.slots.is_behind(*slot))
            };
            let current: Vec<_> = ops.iter().map(current).collect();
            let slots = self.placement.slots(&mut state.slots, &current);
            // Slots that a backup holds back are missed here: the file grows, or else the backup gives way.
            if slots.is_none()
                && state.slots.held_back() > 0
                && let Some(help) = tries.next()
            {
                drop(state);
                help(self);
                continue;
            }
            let over = slots.as_ref().map(|slots| state.begin_overwriting(slots, &current));
            break (current, slots, over.unwrap_or_default());
        };
        let Some(mut slots) = slots else { return Ok(None) };
        for (op, image) in ops.iter().zip(buf.chunks_mut(self.page_size())) {
            seal(image, self.uuid, op.id);
        }
        let kept = match self.keep_copies(ops, |at| current[at].is_some(), buf) {
            Ok(kept) => kept,
            Err(error) => {
                self.give_back_slots(&slots, &current, &over);
                return Err(error);
            }
        };
        let writes = match self.write_images(&mut slots, buf, |at| kept.is_some() && current[at].is_some()) {
            Ok(writes) => writes,
            Err(error) => {
                self.give_back_slots(&slots, &current, &over);
                return Err(error);
            }
        };
        let of_undo = ops.iter().filter(|op| op.id.space() == SpaceId::UNDO).count();
        self.counters.page_writes.fetch_add(to_u64(ops.len()), Ordering::Relaxed);
        self.counters.undo_page_writes.fetch_add(to_u64(of_undo), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.end_overwriting(&over);
        state.turn += 1;
        let turn = state.turn;
        if let Some(mut kept) = kept {
            kept.written(turn);
        }
        for ((&op, &slot), before) in ops.iter().zip(&slots).zip(current) {
            let entry = MapEntry::new(self.offset(slot), self.page_size, self.placement.tag(op.lsn));
            let written = Written { entry, op, fresh: before != Some(slot), turn };
            state.note_written(slot);
            if state.map.has_space(op.id.space()) {
                state.loaded += usize::from(op.rec_lsn.is_none());
                let other = state.unsynced.insert(op.id, written);
                debug_assert!(other.is_none(), "STORE-6: two images of page {} are in flight", op.id);
            } else {
                self.forget(&mut state, &written);
            }
        }
        Ok(Some(writes))
    }

    /// The ways to slots beside a backup.
    const GROW: fn(&PageStore) = |store| _ = store.grow();
    const BREAK_PINS: fn(&PageStore) = |store| _ = store.state.lock().break_pins();

    /// Writes the unchanged image of a page to the slot that it was read from.
    pub(crate) fn write_again(&self, id: PageId, image: &[u8]) -> Result<(), Error> {
        let Some(slot) = self.slot_of(self.state.lock().newest(id)) else { return Ok(()) };
        let offset = self.offset(slot);
        let written = self.data.write_at(image, offset);
        written.map_err(|e| Error::device(&format!("write page {id} at {offset} of '{}'", self.data.name()), e))
    }

    /// Writes images to their slots, neighbours together; after a failure, to other slots. The contents of a slot whose
    /// write failed are unknown, so it is unused until the next open. Returns the number of device writes.
    ///
    /// An image with a copy (`is_kept`) never moves to another slot (DBLWR-4).
    fn write_images(&self, slots: &mut [SlotId], buf: &[u8], is_kept: impl Fn(usize) -> bool) -> Result<usize, Error> {
        let size = self.page_size();
        let mut runs = neighbours(slots, 0..slots.len());
        let writes = runs.len();
        for tries_left in (0..WRITE_TRIES).rev() {
            let write = |run: &Range<usize>| (&buf[run.start * size..run.end * size], self.offset(slots[run.start]));
            let writes: Vec<_> = runs.iter().map(write).collect();
            self.counters.write_calls.fetch_add(to_u64(runs.len()), Ordering::Relaxed);
            let ends = runs.into_iter().zip(self.data.write_many(&writes));
            let failed: Vec<_> = ends.filter_map(|(run, end)| Some((run, end.err()?))).collect();
            // Marks all bad slots first: if one run finds no other slots, the caller gives back the rest.
            let bad: Vec<SlotId> = failed.iter().flat_map(|(run, _)| &slots[run.clone()]).copied().collect();
            self.state.lock().bad_slots.extend(bad);
            let mut again = Vec::new();
            for (run, error) in failed {
                self.counters.write_failures.fetch_add(1, Ordering::Relaxed);
                let may_move = tries_left > 0 && !run.clone().any(&is_kept);
                let others = if may_move { self.state.lock().slots.take_many(run.len()) } else { None };
                let Some(others) = others else {
                    let offset = self.offset(slots[run.start]);
                    let doing = format!("write {} pages at {offset} of '{}'", run.len(), self.data.name());
                    return Err(Error::device(&doing, error));
                };
                slots[run.clone()].copy_from_slice(&others);
                again.extend(neighbours(slots, run));
            }
            if again.is_empty() {
                break;
            }
            runs = again;
        }
        Ok(writes)
    }

    /// Frees the slots of a failed write, except those with unknown contents.
    fn give_back_slots(&self, slots: &[SlotId], current: &[Option<SlotId>], over: &[SlotId]) {
        let mut state = self.state.lock();
        for (&slot, _) in slots.iter().zip(current).filter(|(slot, before)| **before != Some(**slot)) {
            state.give_if_sound(slot);
        }
        state.end_overwriting(over);
    }

    /// Makes all earlier writes durable; returns the write turn up to which [`map_records`](Self::map_records) may name
    /// them.
    pub(crate) fn sync(&self) -> Result<u64, Error> {
        // STORE-2: read before the sync starts, which does not cover later writes.
        let covered = self.state.lock().turn;
        if !planted!("map_before_data") {
            self.sync_data()?;
            self.synced.fetch_max(covered, Ordering::Relaxed);
        }
        Ok(if planted!("map_after_submission") { u64::MAX } else { covered })
    }

    /// Records for all images that a sync has covered, sorted by page id. For images that the map names already (in
    /// place), and those of dropped spaces, the flight ends here.
    pub(crate) fn map_records(&self, covered: u64) -> Vec<MapRecord> {
        let mut state = self.state.lock();
        let mut records = Vec::with_capacity(state.unsynced.len());
        let mut settled = Vec::new();
        for (&id, written) in state.unsynced.iter().filter(|(_, written)| written.turn <= covered) {
            if !state.map.has_space(id.space()) || state.map.get(id) == written.entry {
                settled.push(id);
                continue;
            }
            records.push(MapRecord {
                page_id: U64::new(id.0),
                entry: U64::new(written.entry.0),
                image_lsn: U64::new(written.op.lsn.0),
            });
        }
        for id in settled {
            let Some(written) = state.landed(id) else { continue };
            if state.map.has_space(id.space()) {
                self.give_count(&written);
            } else {
                self.forget(&mut state, &written);
            }
        }
        records
    }

    /// Drops an image of a dropped space, or of a page given back: its slot, unless it is also the previous image's, is
    /// free.
    pub(super) fn forget(&self, state: &mut State, written: &Written) {
        if let Some(slot) = self.slot_of(written.entry).filter(|_| written.fresh) {
            state.slots.give(slot);
        }
        self.give_count(written);
    }

    /// Ends the image's hold on the checkpoint.
    fn give_count(&self, written: &Written) {
        if let Some(rec_lsn) = written.op.rec_lsn {
            self.counts.remove(rec_lsn);
        }
    }

    /// Makes the map name the images in the map group from `start` to `end`. The caller holds a count at `start`.
    pub(crate) fn apply_records(&self, records: &[MapRecord], start: Lsn, end: Lsn) {
        let mut state = self.state.lock();
        for record in records {
            let id = PageId(record.page_id.get());
            let Some(written) = state.landed(id) else { continue };
            if !state.map.has_space(id.space()) {
                // Its space was dropped after the record was made. The group may precede the drop: then a crash that
                // loses the drop restores the space, and the page needs this image (STORE-1).
                let slot = self.slot_of(written.entry).filter(|_| written.fresh);
                let dropped_upto = state.dropped_upto;
                match slot {
                    Some(slot) if start < dropped_upto && !planted!("dropped_image_freed") => {
                        state.replace_slot(dropped_upto, slot);
                    }
                    Some(slot) => state.slots.give(slot),
                    None => {}
                }
                self.give_count(&written);
                continue;
            }
            debug_assert!(state.map.known_to(id) <= end, "STORE-9: page {id} is named at LSN {end}, out of order");
            if let Some(old) = state.map.apply(id, written.entry, start, end).and_then(|old| self.slot_of(old)) {
                state.replace_slot(end, old);
            }
            self.give_count(&written);
        }
        self.counters.map_groups.fetch_add(1, Ordering::Relaxed);
        self.counters.map_records.fetch_add(to_u64(records.len()), Ordering::Relaxed);
    }

    pub(super) fn sync_data(&self) -> Result<(), Error> {
        // STORE-8: the kernel reports a lost write only once.
        let mut failed = self.syncing.lock();
        if *failed {
            let message = format!("an earlier sync of '{}' failed: reopen the database", self.data.name());
            return Err(Error::ReadOnly(message.into()));
        }
        self.counters.data_syncs.fetch_add(1, Ordering::Relaxed);
        let synced = self.counters.pending_syncs.during(1, || self.data.sync());
        *failed = synced.is_err();
        synced.map_err(|e| Error::device(&format!("sync '{}'", self.data.name()), e))
    }

    /// The contents of a slot on the device.
    pub(crate) fn slot_content(&self, slot: SlotId, buf: &mut [u8]) -> Result<SlotContent, Error> {
        let offset = self.offset(slot);
        self.data
            .read_at(buf, offset)
            .map_err(|e| Error::io(&format!("read the slot at {offset} of '{}'", self.data.name()), e))?;
        Ok(content_of(buf, self.uuid))
    }

    /// The largest memory of the store, in bytes: the map, the state of slots, and entries for `unsynced` images that
    /// are not durable.
    pub(crate) fn memory_budget(&self, unsynced: u64) -> u64 {
        let state = self.state.lock();
        let image = to_u64(size_of::<PageId>() + size_of::<Written>());
        // B-trees of the standard library are half full at worst.
        let copies = self.copies.as_ref().map_or(0, CopyFile::memory);
        state.map.memory() + state.slots.memory() + state.places.memory() + 2 * unsynced * image + copies
    }
}

/// Splits `slots` into runs of consecutive slots.
fn neighbours(slots: &[SlotId], within: Range<usize>) -> Vec<Range<usize>> {
    let mut from = within.start;
    let runs = slots[within].chunk_by(|one, next| one.0 + 1 == next.0);
    runs.map(|run| {
        from += run.len();
        from - run.len()..from
    })
    .collect()
}

impl MapRecord {
    /// The records in a map group's payload; `None`: the payload holds something else.
    pub(crate) fn all(payload: &[u8]) -> Option<&[MapRecord]> {
        <[MapRecord]>::ref_from_bytes(payload).ok()
    }
}

const _: () = assert!(size_of::<MapRecord>() + GROUP_FRAME_LEN <= 48 && MAP_RECORD_MAX == 48);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::io::simulated::SimulatedDisk;
    use crate::redo::dirty_counts::DirtyCounts;
    use crate::store::lot::LOT_PAGES;

    #[test]
    fn memory_counts_each_image_without_a_sync_twice_and_the_copies() {
        let disk = SimulatedDisk::new();
        PageStore::create(&disk, Superblock::of_tests()).expect("created");
        let mut store = PageStore::open(&disk, Arc::new(DirtyCounts::default())).expect("opened").0;
        store.finish_replay(&BTreeSet::new()).expect("nothing to replay");
        let (parts, image) = {
            let state = store.state.lock();
            let parts = [state.map.memory(), state.slots.memory(), state.places.memory()];
            assert!(parts[1] > 0 && parts[2] > 0, "{parts:?}");
            (parts.iter().sum::<u64>(), to_u64(size_of::<PageId>() + size_of::<Written>()))
        };
        assert_eq!((store.memory_budget(0), store.memory_budget(100)), (parts, parts + 200 * image));
        store.keep_copies_in(CopyFile::open(&disk, store.page_size(), true).expect("made"));
        let copies = store.memory_budget(0) - parts;
        assert!(copies >= to_u64(LOT_PAGES * store.page_size()), "{copies}");
        assert!(store.copies().is_some());
    }
}
