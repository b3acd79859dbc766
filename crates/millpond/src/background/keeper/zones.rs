//! Empties zones of the data file, so that lots leave in long writes: only where that is worth it
//! ([`zone_cleaning`](crate::pace::zone_cleaning)), in proportion to the pages written, and never all at once. A bulk
//! load may have to wait for one such lot.
//!
//! ZONES-1  A moved image counts as one of a bulk load (LOAD-3). The keeper writes it in the loads' turn, within
//!          [`LOADED_MAX`], and after it has reserved log space for the map record. It tries both, and waits for
//!          neither.
//! ZONES-2  In all writers' turns (WRITER-1) the keeper checks again that a moved image is its page's newest. A page
//!          that is dirty in the pool is written from there instead.
//! ZONES-3  A moved image is checked as in a read: a damaged image stays where it is, and damaged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::{FlushReason, Keeper, seconds};
use crate::base::aligned::{AlignedBuf, aligned, to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::engine::page_writer::Moved;
use crate::pace::shares::For;
use crate::pace::zone_cleaning::{WriteCost, ZoneDebt, ZoneFill};
use crate::store::lot::{LOADED_MAX, LOT_PAGES};
use crate::store::zones::ZONE_BYTES;

/// Most zones emptied together. Their pages fit into a lot.
pub(crate) const ZONES_TOGETHER: usize = 4;

/// Empty zones are counted up to this number.
const EMPTY_MAX: usize = 64;

/// The entry in `left_alone` of a zone that is skipped until zones are tried again, or until the next open.
const FOR_EVER: u64 = u64::MAX;

/// The keeper's memory of zones.
#[derive(Default)]
pub(crate) struct Zones {
    cost: WriteCost,
    debt: ZoneDebt,
    /// Total of pages written at the last update of `debt`.
    written: u64,
    buf: Option<AlignedBuf>,
    /// Zones whose images are on their way elsewhere. For each: the zone; the turn of writing by which all its images
    /// have moved; and, once these are named, the LSN up to which the log must be durable before the slots are free.
    emptying: VecDeque<(usize, u64, Option<Lsn>)>,
    /// Zones to skip until this many pages were written in all. [`FOR_EVER`], if something in the zone cannot be read,
    /// or differs from the map.
    left_alone: BTreeMap<usize, u64>,
}

impl Zones {
    /// Notes that a lot was written.
    pub(super) fn lot(&mut self, writes: usize, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.cost.lot(to_u64(writes), to_u64(pages), seconds(took_ns));
        }
    }
}

impl Keeper {
    /// Empties zones, if that is due.
    pub(super) fn empty_zones(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        if !engine.core.store.names_images() || engine.redoing.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.take_emptied();
        let written = engine.page_writes.all();
        if written == self.zones.written {
            return Ok(());
        }
        let new = written - std::mem::replace(&mut self.zones.written, written);
        self.zones.left_alone.retain(|_, until| *until > written);
        let is_left_alone = |zone: usize| self.zones.left_alone.contains_key(&zone);
        let Some((_, fill)) = engine.core.store.emptiest_zone(is_left_alone) else { return Ok(()) };
        let costs = self.zones.cost.costs();
        engine.pacing.note_costs(costs);
        self.zones.debt.written(new, fill, costs);
        let ready = engine.core.store.empty_zones(EMPTY_MAX) + self.zones.emptying.len();
        let zones = engine.core.store.slot_counts().0 / fill.slots;
        let pages_per_s = engine.pacing.rates().capacity_pages_per_s;
        let frames_short = engine.core.pool.frames_short() > 0;
        if self.zones.debt.is_due(fill, to_u64(ready), zones, pages_per_s, frames_short) && self.empty_some()? {
            engine.bell.ring();
        }
        Ok(())
    }

    /// Has emptied zones used again.
    fn take_emptied(&mut self) {
        if self.zones.emptying.is_empty() {
            return;
        }
        let (_, named) = self.engine.core.store.turns();
        let positions = self.engine.core.log.positions();
        for (_, turn, free_at) in &mut self.zones.emptying {
            if free_at.is_none() && *turn <= named {
                *free_at = Some(positions.next);
            }
        }
        while let Some(&(zone, _, Some(free_at))) = self.zones.emptying.front()
            && free_at <= positions.durable
        {
            self.engine.core.store.release_slots(positions.durable);
            if self.engine.core.store.end_emptying(zone) {
                self.engine.core.store.counters.zones_emptied.fetch_add(1, Ordering::Relaxed);
            } else {
                // Some image could not be moved. The zone is skipped until as many pages were written as the file has
                // slots: by then the image is gone.
                let slots = self.engine.core.store.slot_counts().0;
                self.zones.left_alone.insert(zone, self.zones.written.saturating_add(slots));
            }
            self.zones.emptying.pop_front();
        }
    }

    /// Writes the pages in the emptiest zones elsewhere, together. False: not now.
    fn empty_some(&mut self) -> Result<bool, Error> {
        if self.engine.core.store.wants_slots() {
            self.begin_publishing();
            return Ok(false);
        }
        let engine = Arc::clone(&self.engine);
        let moved = self.move_zones(|skip| engine.core.store.emptiest_zone(skip), true)?;
        if moved.zones.is_empty() {
            return Ok(false);
        }
        self.zones.debt.emptied(moved.free);
        self.zones.emptying.extend(moved.zones.iter().map(|zone| (*zone, moved.turn, None)));
        Ok(true)
    }

    /// Has zones tried again that were left alone: their images were in flight, or a damaged one may be gone by now.
    pub(super) fn retry_zones(&mut self) {
        self.zones.left_alone.clear();
    }

    /// Forgets what it knew of zones that were cut off: others may get their numbers.
    pub(super) fn forget_zones_from(&mut self, end: usize) {
        self.zones.left_alone.split_off(&end);
    }

    /// Writes the pages in some zones elsewhere, together: `next` finds a zone that is not to be skipped. With `aside`,
    /// no slot of these zones is taken until they are empty.
    pub(super) fn move_zones(
        &mut self,
        next: impl Fn(&dyn Fn(usize) -> bool) -> Option<(usize, ZoneFill)>,
        aside: bool,
    ) -> Result<MovedZones, Error> {
        let engine = Arc::clone(&self.engine);
        let (core, store) = (&engine.core, &engine.core.store);
        // ZONES-1
        let Some(_turn) = engine.load_writer.try_lock() else { return Ok(MovedZones::default()) };
        let mut nothing = MovedZones { is_tried: true, ..MovedZones::default() };
        let (mut zones, mut free_in, mut credits, mut pages) = (Vec::new(), Vec::new(), Vec::new(), 0);
        while zones.len() < ZONES_TOGETHER {
            let is_under_way = |zone: usize| self.zones.emptying.iter().any(|(other, ..)| *other == zone);
            let is_taken =
                |zone: usize| self.zones.left_alone.contains_key(&zone) || zones.contains(&zone) || is_under_way(zone);
            let Some((zone, fill)) = next(&is_taken) else { break };
            let used = to_usize(fill.slots - fill.free);
            if pages > 0 && pages + used > LOT_PAGES {
                break;
            }
            if store.loaded() + pages + used > LOADED_MAX {
                self.begin_publishing();
                nothing.is_tried = false;
                break;
            }
            let Some(credit) = core.log.try_reserve(0, used)? else {
                nothing.is_tried = false;
                break;
            };
            credits.push(credit);
            pages += used;
            zones.push(zone);
            free_in.push(fill.free);
        }
        if zones.is_empty() {
            return Ok(nothing);
        }
        let mut buf = self.zones.buf.take().unwrap_or_else(|| aligned(ZONES_TOGETHER * ZONE_BYTES));
        let (mut clean, mut dirty) = (Vec::new(), Vec::new());
        let began_ns = clock::now_ns();
        let mut found = store.read_zones(&zones, &mut buf).into_iter();
        self.zones.cost.zones_read(to_u64(zones.len()), seconds(clock::now_ns() - began_ns));
        let (mut free_in, mut free) = (free_in.into_iter(), 0);
        zones.retain(|zone| {
            let in_zone = free_in.next().unwrap_or(0);
            // A zone that cannot be read, or differs from the map, is left alone: a reader of the page gets the error.
            let Some(live) = found.next().flatten() else {
                self.zones.left_alone.insert(*zone, FOR_EVER);
                return false;
            };
            if aside {
                store.begin_emptying(*zone);
            }
            free += in_zone;
            for image in live {
                match core.pool.pin_dirty_page(image.id) {
                    Some(pin) => dirty.push(pin),
                    None => clean.push(image),
                }
            }
            true
        });
        // ZONES-2
        let written = self.write_with(FlushReason::Pace, dirty, Moved { images: &clean, bytes: &buf });
        drop(credits);
        self.zones.buf = Some(buf);
        let Some(written) = written? else {
            // There is no room elsewhere.
            zones.iter().for_each(|zone| _ = store.end_emptying(*zone));
            return Ok(MovedZones { is_tried: true, ..MovedZones::default() });
        };
        if written > 0 {
            engine.pacing.written(For::Log, written, false, clock::now_ns());
        }
        if store.loaded() >= LOADED_MAX / 2 {
            self.begin_publishing();
        }
        Ok(MovedZones { zones, free, pages, turn: store.turns().0, is_tried: true })
    }
}

/// Zones whose images are on their way elsewhere.
#[derive(Default)]
pub(super) struct MovedZones {
    pub(super) zones: Vec<usize>,
    /// Free slots that they had, and the number of all others.
    free: u64,
    pub(super) pages: usize,
    /// The turn of writing by which all images have moved.
    pub(super) turn: u64,
    /// Whether what stayed could not be moved. False: a load had the turn, or the log or the map had no room just then.
    pub(super) is_tried: bool,
}
