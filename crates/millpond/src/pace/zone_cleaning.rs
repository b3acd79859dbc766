//! Whether zones of the data file are worth emptying, and how many zones are due.
//!
//! Images go to free slots, and these are scattered: in a full file a lot (batch of pages) leaves in many short writes.
//! To empty a zone, its live pages are moved in one long write; one more write then fills the whole zone. That costs
//! bytes and spares writes. So it pays only on a device that is bound by the number of writes, as cloud volumes are.
//! The costs of a write and of a page are measured ([`WriteCost`]). In log-structured file systems this is the cleaner
//! (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", 1992).

use super::envelope::float;

/// The number of recent lots that the measurements represent, approximately.
const LOTS: f64 = 256.0;

/// How much lots must differ in their pages per write before the two costs can be told apart: the smallest part of
/// their squares that one cost alone does not explain.
const DIFFER: f64 = 0.02;

/// Writes for each emptied zone: one for the moved pages, one that later fills the zone.
const WRITES_A_ZONE: f64 = 2.0;

/// Before any measurement, reading a zone is assumed to take this part of the time of writing its pages.
const READ_PART: f64 = 0.5;

/// The number of recent reads that the measured read time represents...
const READS: f64 = 16.0;

/// ...which also fades over this many lots, so that a device that was slow once is tried again.
const READ_FADES_LOTS: f64 = 1024.0;

/// Cleaning must spare at least this part of the cost of pages without it...
const GAIN: f64 = 0.3;

/// ...but, once started, may cost this much more: few writes, far below the device's capacity, look cheap.
const STILL_GAIN: f64 = -0.25;

/// While the lots are too similar to tell the cost of a write, a zone is emptied after this many pages: lots written
/// into it then differ.
const TRY_EACH: f64 = 512.0;

/// The largest part of the file's zones kept empty, as a divisor, plus two zones: empty zones make the others fuller.
const EMPTY_PART: u64 = 16;

/// Seconds until the slots of an emptied zone are free: the moved pages must first be durable elsewhere.
const FREE_AFTER_S: f64 = 0.1;

/// The cost of a write, and of each page in it: `time = write_s * writes + page_s * pages`, fitted to lots by least
/// squares. Old lots fade.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteCost {
    writes_writes: f64,
    writes_pages: f64,
    pages_pages: f64,
    writes_time: f64,
    pages_time: f64,
    /// Seconds to read a zone.
    zone_read_s: Option<f64>,
}

/// Seconds for each write, for each page, and for reading a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    pub(crate) write_s: f64,
    pub(crate) page_s: f64,
    /// `None`: no zone has been read yet.
    zone_read_s: Option<f64>,
}

impl WriteCost {
    /// Records that `zones` zones were read in `seconds`.
    pub(crate) fn zones_read(&mut self, zones: u64, seconds: f64) {
        if zones > 0 {
            let each = seconds / float(zones);
            self.zone_read_s = Some(self.zone_read_s.map_or(each, |known| known + (each - known) / READS));
        }
    }

    /// Records that a lot of `pages` pages in `writes` writes took `seconds`.
    pub(crate) fn lot(&mut self, writes: u64, pages: u64, seconds: f64) {
        self.zone_read_s = self.zone_read_s.map(|known| known * (1.0 - 1.0 / READ_FADES_LOTS));
        let (writes, pages, keep) = (float(writes), float(pages), 1.0 - 1.0 / LOTS);
        self.writes_writes = self.writes_writes * keep + writes * writes;
        self.writes_pages = self.writes_pages * keep + writes * pages;
        self.pages_pages = self.pages_pages * keep + pages * pages;
        self.writes_time = self.writes_time * keep + writes * seconds;
        self.pages_time = self.pages_time * keep + pages * seconds;
    }

    /// The costs; `None`: the lots were too similar to tell.
    pub(crate) fn costs(&self) -> Option<Costs> {
        let squares = self.writes_writes * self.pages_pages;
        let rest = squares - self.writes_pages * self.writes_pages;
        if squares == 0.0 || rest < DIFFER * squares {
            return None;
        }
        let write_s = (self.writes_time * self.pages_pages - self.pages_time * self.writes_pages) / rest;
        let page_s = (self.pages_time * self.writes_writes - self.writes_time * self.writes_pages) / rest;
        // No cost is negative: in that case the other one accounts for all.
        let (write_s, page_s) = if write_s < 0.0 {
            (0.0, self.pages_time / self.pages_pages)
        } else if page_s < 0.0 {
            (self.writes_time / self.writes_writes, 0.0)
        } else {
            (write_s, page_s)
        };
        Some(Costs { write_s, page_s, zone_read_s: self.zone_read_s })
    }
}

/// The debt: slots in zones that are due to be emptied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZoneDebt {
    slots: f64,
    worth: bool,
    /// Pages written since a zone was last emptied, while the costs are unknown.
    tried_pages: f64,
}

/// A zone that could be emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneFill {
    /// Slots of a zone.
    pub(crate) slots: u64,
    /// Free slots among them.
    pub(crate) free: u64,
}

impl ZoneFill {
    /// Pages in each write into such a zone, whose free slots lie at random.
    fn pages_a_write(self) -> f64 {
        float(self.slots) / float(self.slots - self.free + 1)
    }

    /// The part of a page's cost that emptying such zones first spares; negative: it costs more.
    pub(super) fn gain(self, costs: Costs) -> f64 {
        let without = costs.write_s / self.pages_a_write() + costs.page_s;
        let pages_s = costs.page_s * float(self.slots);
        let zone_s = costs.write_s * WRITES_A_ZONE + pages_s + costs.zone_read_s.unwrap_or(pages_s * READ_PART);
        1.0 - zone_s / float(self.free.max(1)) / without.max(1e-12)
    }
}

impl ZoneDebt {
    /// Records that `pages` were written. `fill` is the emptiest zone that is not empty. No `costs`: they are unknown.
    pub(crate) fn written(&mut self, pages: u64, fill: ZoneFill, costs: Option<Costs>) {
        let least = if self.worth { STILL_GAIN } else { GAIN };
        self.worth = costs.is_some_and(|costs| fill.gain(costs) > least);
        self.tried_pages = if costs.is_some() { 0.0 } else { self.tried_pages + float(pages) };
        // Zones not needed while there were empty ones are not emptied later in a burst.
        self.slots = if self.worth { (self.slots + float(pages)).min(2.0 * float(fill.slots)) } else { 0.0 };
    }

    /// Whether to empty a zone now: enough pages were written, and the `empty` zones among `zones` do not suffice for
    /// writes at `pages_per_s` until another one is free. While frames are short, the debt may grow by one more zone:
    /// after a burst there is time to empty it, and in an endless one the debt keeps growing.
    pub(crate) fn is_due(&self, fill: ZoneFill, empty: u64, zones: u64, pages_per_s: f64, frames_short: bool) -> bool {
        let ahead = (pages_per_s * FREE_AFTER_S / float(fill.slots)).min(float(zones / EMPTY_PART)) + 2.0;
        let least = if frames_short { fill.free + fill.slots } else { fill.free };
        let is_owed = self.worth && self.slots >= float(least);
        float(empty) < ahead && (is_owed || (self.tried_pages >= TRY_EACH && !frames_short))
    }

    /// Records that a zone with `free` free slots is being emptied: so many more pages can be written in long writes.
    /// Where several are emptied together, the last ones are ahead of need.
    pub(crate) fn emptied(&mut self, free: u64) {
        self.slots -= float(free);
        self.tried_pages = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: ZoneFill = ZoneFill { slots: 64, free: 32 };

    fn fitted(write_s: f64, page_s: f64, lots: &[(u64, u64)]) -> Option<Costs> {
        let mut cost = WriteCost::default();
        for turn in 0..100 {
            for &(writes, pages) in lots {
                // Noise, independent of the lot.
                let noise = if turn % 2 == 0 { 0.8 } else { 1.2 };
                cost.lot(writes, pages, (float(writes) * write_s + float(pages) * page_s) * noise);
            }
        }
        cost.costs()
    }

    #[test]
    fn writes_and_pages_are_told_apart_if_lots_differ() {
        let costs = fitted(1e-3, 1e-5, &[(20, 64), (2, 64), (5, 30)]).expect("they differ");
        assert!((costs.write_s - 1e-3).abs() < 1e-4 && (costs.page_s - 1e-5).abs() < 3e-5, "{costs:?}");
        let costs = fitted(0.0, 1e-5, &[(20, 64), (2, 64), (5, 30)]).expect("they differ");
        assert!(costs.write_s < 1e-6 && (costs.page_s - 1e-5).abs() < 1e-6, "{costs:?}");
        assert_eq!(fitted(1e-3, 1e-5, &[(20, 64), (10, 32)]), None, "all alike");
        assert_eq!(WriteCost::default().costs(), None);
        let mut cost = WriteCost::default();
        cost.lot(20, 64, 1.0);
        cost.lot(1, 64, 0.5);
        (0..100).for_each(|_| cost.zones_read(2, 0.02));
        let read_s = cost.costs().and_then(|costs| costs.zone_read_s).expect("known");
        assert!((read_s - 0.01).abs() < 1e-6, "{read_s}");
        (0..100).for_each(|_| cost.zones_read(1, 10.0));
        (0..20_000).for_each(|_| cost.lot(20, 64, 1.0));
        cost.lot(1, 64, 0.5);
        let read_s = cost.zone_read_s.expect("known");
        assert!(read_s < 0.01, "old reads fade: {read_s}");
    }

    #[test]
    fn cleaning_is_worth_it_where_writes_cost_and_bytes_do_not() {
        let cloud = Costs { write_s: 1.0 / 1500.0, page_s: 1e-5, zone_read_s: None };
        assert!(HALF.gain(cloud) > 0.7, "{}", HALF.gain(cloud));
        assert!(ZoneFill { free: 10, ..HALF }.gain(cloud) > 0.5);
        let local = Costs { write_s: 1e-5, page_s: 1e-5, zone_read_s: None };
        assert!(HALF.gain(local) < 0.0, "{}", HALF.gain(local));
        let slow_reads = Costs { zone_read_s: Some(0.02), ..cloud };
        assert!(HALF.gain(slow_reads) < 0.0, "{}", HALF.gain(slow_reads));
    }

    #[test]
    fn as_much_is_emptied_as_is_written() {
        let cloud = Some(Costs { write_s: 1.0 / 1500.0, page_s: 1e-5, zone_read_s: None });
        let mut debt = ZoneDebt::default();
        let mut zones = 0_u64;
        for _ in 0..1000 {
            debt.written(20, HALF, cloud);
            while debt.is_due(HALF, 0, 100, 1000.0, false) {
                debt.emptied(HALF.free);
                zones += 1;
            }
        }
        assert!((20_000 / 32 - 2..=20_000 / 32).contains(&zones), "{zones}");
        debt.written(1000, HALF, cloud);
        assert!(!debt.is_due(HALF, 10, 100, 1000.0, false), "enough zones are empty");
        assert!(debt.is_due(HALF, 0, 100, 1000.0, true), "the debt is at its maximum");
        debt.emptied(HALF.slots);
        assert!(debt.is_due(HALF, 0, 100, 1000.0, false) && !debt.is_due(HALF, 0, 100, 1000.0, true));
        debt.written(300, HALF, None);
        assert!(!debt.is_due(HALF, 0, 100, 1000.0, false));
        debt.written(300, HALF, None);
        assert!(debt.is_due(HALF, 0, 100, 1000.0, false), "to measure the costs");
        debt.emptied(HALF.free);
        assert!(!debt.is_due(HALF, 0, 100, 1000.0, false));
    }
}
