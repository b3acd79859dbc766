//! Emptying zones of the data file, so that lots leave in long writes: where that is worth it
//! ([`zone_cleaning`](crate::pace::zone_cleaning)), as much as is written, and never at once. Who loads in bulk may
//! have to wait for one such lot.
//!
//! ZONES-1  A moved image is one of those of bulk loads (LOAD-3): written in their turn, which is only tried, within
//!          [`LOADED_MAX`], after the log had room for its map record, which is only tried, too.
//! ZONES-2  It is looked at once more in all writers' turns (WRITER-1) that it is its page's newest. A page that is
//!          dirty in the pool is written from there instead.
//! ZONES-3  What is moved was checked as if it had been read: a damaged image stays where it is, and damaged.

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
use crate::pace::zone_cleaning::{WriteCost, ZoneDebt};
use crate::store::page_store::{LOADED_MAX, LOT_PAGES};
use crate::store::zones::ZONE_BYTES;

/// Zones emptied together, at most: as many as have the pages of a lot.
pub(crate) const ZONES_TOGETHER: usize = 4;

/// Empty zones are counted up to here.
const EMPTY_MAX: usize = 64;

/// Pages written, of a zone that is never looked at again.
const FOR_EVER: u64 = u64::MAX;

/// The keeper's memory of zones.
#[derive(Default)]
pub(crate) struct Zones {
    cost: WriteCost,
    debt: ZoneDebt,
    /// Pages written that the debt knows of.
    written: u64,
    buf: Option<AlignedBuf>,
    /// Zones whose images are on their way elsewhere: the turn after which all of them are, and, once these are named,
    /// where the log has to be durable until the zone's slots are free.
    emptying: VecDeque<(usize, u64, Option<Lsn>)>,
    /// Zones that are not worth another look until so many pages were written: [`FOR_EVER`], that is until the next
    /// open, where something cannot be read, or is not what the map says.
    left_alone: BTreeMap<usize, u64>,
}

impl Zones {
    /// A lot was written.
    pub(crate) fn lot(&mut self, writes: usize, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.cost.lot(to_u64(writes), to_u64(pages), seconds(took_ns));
        }
    }
}

impl Keeper {
    /// Empties zones, if there is need.
    pub(crate) fn empty_zones(&mut self) -> Result<(), Error> {
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

    /// Zones that have been emptied are used again.
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
                // Something in it could not be moved: gone by the time that as much as the file holds was written.
                let slots = self.engine.core.store.slot_counts().0;
                self.zones.left_alone.insert(zone, self.zones.written.saturating_add(slots));
            }
            self.zones.emptying.pop_front();
        }
    }

    /// Has the pages in some zones written elsewhere, together. False: not now.
    fn empty_some(&mut self) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let (core, store) = (&engine.core, &engine.core.store);
        // ZONES-1
        let Some(_turn) = engine.load_writer.try_lock() else { return Ok(false) };
        if store.wants_slots() {
            self.begin_publishing();
            return Ok(false);
        }
        let (mut zones, mut free_in, mut credits, mut pages) = (Vec::new(), Vec::new(), Vec::new(), 0);
        while zones.len() < ZONES_TOGETHER {
            let is_under_way = |zone: usize| self.zones.emptying.iter().any(|(other, ..)| *other == zone);
            let is_taken =
                |zone: usize| self.zones.left_alone.contains_key(&zone) || zones.contains(&zone) || is_under_way(zone);
            let Some((zone, fill)) = store.emptiest_zone(is_taken) else { break };
            let used = to_usize(fill.slots - fill.free);
            if pages > 0 && pages + used > LOT_PAGES {
                break;
            }
            if store.loaded() + pages + used > LOADED_MAX {
                self.begin_publishing();
                break;
            }
            let Some(credit) = core.log.try_reserve(0, used)? else { break };
            credits.push(credit);
            pages += used;
            zones.push(zone);
            free_in.push(fill.free);
        }
        if zones.is_empty() {
            return Ok(false);
        }
        let mut buf = self.zones.buf.take().unwrap_or_else(|| aligned(ZONES_TOGETHER * ZONE_BYTES));
        let (mut clean, mut dirty) = (Vec::new(), Vec::new());
        let began_ns = clock::now_ns();
        let mut found = store.read_zones(&zones, &mut buf).into_iter();
        self.zones.cost.zones_read(to_u64(zones.len()), seconds(clock::now_ns() - began_ns));
        let (mut free_in, mut free) = (free_in.into_iter(), 0);
        zones.retain(|zone| {
            let in_zone = free_in.next().unwrap_or(0);
            // What cannot be read, or is not what the map says, is left alone: whoever reads the page is told.
            let Some(live) = found.next().flatten() else {
                self.zones.left_alone.insert(*zone, FOR_EVER);
                return false;
            };
            store.begin_emptying(*zone);
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
            return Ok(false);
        };
        if written > 0 {
            engine.pacing.written(For::Log, written, false, clock::now_ns());
        }
        self.zones.debt.emptied(free);
        let turn = store.turns().0;
        self.zones.emptying.extend(zones.iter().map(|zone| (*zone, turn, None)));
        if store.loaded() >= LOADED_MAX / 2 {
            self.begin_publishing();
        }
        Ok(!zones.is_empty())
    }
}
