//! Gives the free end of the data file back: moves what is in its last zones, and cuts them off.
//!
//! By itself the keeper does so when more slots are free than used, at a fourth of the device's rate, and not while
//! frames or the log need the device. What it leaves is the room that growth ahead of need makes, so the file does not
//! grow again before pages come. On request it leaves little room, and goes at the caller's rate.
//!
//! Writers go first. A thread that finds no other slot takes one behind the wanted end, and the end rises. While a
//! backup has pinned slots, nothing is moved and nothing is cut.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::{Keeper, seconds};
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::engine::compaction::Stage;
use crate::store::cut::{CUT_ZONES, Cut, Spare};
use crate::store::lot::LOT_PAGES;
use crate::store::zones::ZONE_BYTES;

/// The file has too many free slots for so long before the keeper acts by itself, and twice as long after each time in
/// vain, up to a factor of two to this power: over an hour.
const WAIT_NS: u64 = 5_000_000_000;
const VAIN_MAX: u32 = 10;

/// The part of the device's rate that the keeper takes by itself, as a divisor, and bytes a second before that rate was
/// measured.
const RATE_PART: u64 = 4;
const RATE_UNKNOWN: u64 = 8 << 20;

/// Seconds of the rate that are made up for after a pause: two ticks of the keeper.
const ALLOWED_S: f64 = 0.04;

/// Zones by which the wanted end moves in a step, under the store's mutex.
const END_STEP: usize = 512;

/// The last zone in use may stay so for this long, and so many tries. Then something in it cannot be moved, and the
/// file keeps the zone.
const STUCK_NS: u64 = 10_000_000_000;
const STUCK_TRIES: u32 = 8;

/// Slots that are left free before the wanted end: pages are written beside the work.
const SLOTS_LEFT: u64 = 2 * LOT_PAGES as u64;

/// The most rounds of one request: pages may be given back while it is served.
const ROUNDS_MAX: u32 = 8;

/// The keeper's memory of the end that the file shall have.
#[derive(Default)]
pub(crate) struct Shortening {
    goal: Option<Goal>,
    /// Zones whose images are on their way elsewhere, as in [`Zones`](super::zones::Zones).
    emptying: VecDeque<(usize, u64, Option<Lsn>)>,
    /// Since when (ns) the file has too many free slots.
    since_ns: Option<u64>,
    /// Bytes that may be moved now; negative: too many were.
    allowance: f64,
    last_ns: u64,
    /// A cut has failed: the keeper makes no more by itself.
    failed: bool,
    /// A goal has moved the wanted end, which is not back yet.
    is_end_moved: bool,
    /// Goals in a row, of the keeper's own, that cut nothing off.
    vain: u32,
}

/// What the keeper is working on.
#[derive(Clone, Copy)]
struct Goal {
    spare: Spare,
    /// The wanted end in zones.
    end: usize,
    /// The end has been moved there. From then on only others move it, and only up.
    is_set: bool,
    /// The last zone in use.
    last: Option<Last>,
    rounds: u32,
    /// Something was cut off.
    has_cut: bool,
}

/// The last zone in use, which keeps the file as long as it is.
#[derive(Clone, Copy)]
struct Last {
    zone: usize,
    /// Since when (ns) it is looked at, pauses left out, and how often it was tried to move what is in it.
    since_ns: u64,
    tries: u32,
}

impl Shortening {
    /// Notes whether the file has too many free slots.
    pub(super) fn note(&mut self, has_too_many: bool, now: u64) {
        self.since_ns = has_too_many.then_some(self.since_ns.unwrap_or(now));
    }

    /// Whether the file was too long for so long that the keeper acts unasked.
    fn is_due(&self, now: u64) -> bool {
        let wait_ns = WAIT_NS << self.vain.min(VAIN_MAX);
        !self.failed && self.since_ns.is_some_and(|since| now.saturating_sub(since) >= wait_ns)
    }
}

impl Goal {
    fn new(spare: Spare, end: usize, rounds: u32) -> Goal {
        Goal { spare, end, is_set: false, last: None, rounds, has_cut: false }
    }
}

impl Keeper {
    /// Has the files grow ahead of need, and notes whether the data file is too long.
    pub(super) fn look_at_length(&mut self, now: u64) {
        let fit = self.engine.core.store.fit();
        if fit.is_too_short {
            // An error is ignored: an operation that needs the space and cannot have it gets its own.
            let _ = self.engine.core.store.grow();
        }
        self.shortening.note(fit.is_too_long, now);
    }

    /// Does one step of giving space back, if there is one to do. If not, it takes no lock.
    pub(super) fn give_space_back(&mut self, now: u64) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        if !engine.may_shorten.load(Ordering::Relaxed) || engine.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let elapsed_ns = now.saturating_sub(std::mem::replace(&mut self.shortening.last_ns, now));
        let asked = match engine.is_compacted.load(Ordering::Relaxed) {
            true => engine.compaction.lock().as_ref().map(|asked| (asked.bytes_per_s, asked.stage.clone())),
            false => None,
        };
        self.look_for_goal(now, asked.as_ref().map(|(_, stage)| stage));
        let Some(mut goal) = self.shortening.goal else {
            // What an ended goal left behind its end is made available again.
            if self.shortening.is_end_moved {
                self.shortening.is_end_moved = !engine.core.store.move_end(usize::MAX, END_STEP);
                engine.bell.ring();
            }
            return Ok(());
        };
        let by_itself = engine.write_capacity().checked_div(RATE_PART).filter(|rate| *rate > 0).unwrap_or(RATE_UNKNOWN);
        let rate = asked.map_or(by_itself, |(rate, _)| rate);
        let at_most = (float(rate) * ALLOWED_S).max(float(to_u64(2 * ZONE_BYTES)));
        self.shortening.allowance = (self.shortening.allowance + float(rate) * seconds(elapsed_ns)).min(at_most);
        let is_done = self.shorten(now, elapsed_ns, &mut goal)?;
        self.shortening.goal = (!is_done).then_some(goal);
        if is_done {
            self.end_goal(goal);
        }
        Ok(())
    }

    /// Begins what is asked for, or what the rule says, and forgets a goal that no thread wants any more.
    fn look_for_goal(&mut self, now: u64, asked: Option<&Stage>) {
        let engine = Arc::clone(&self.engine);
        let store = &engine.core.store;
        match (asked, self.shortening.goal) {
            // A goal of the keeper's own, or of an earlier request, may have just ended.
            (Some(Stage::Asked), _) | (Some(Stage::UnderWay { .. }), None) => {
                let (_, end) = store.zones_now_and_with(Spare::Lean);
                store.stay_lean();
                (self.shortening.failed, self.shortening.vain) = (false, 0);
                self.begin_goal(Goal::new(Spare::Lean, end, 0));
                self.tell_compaction(Spare::Lean, Stage::UnderWay { left: u64::MAX });
            }
            (None, Some(goal)) if goal.spare == Spare::Lean => self.shortening.goal = None,
            (None, None) if self.shortening.is_due(now) => {
                let (_, end) = store.zones_now_and_with(Spare::Usual);
                self.begin_goal(Goal::new(Spare::Usual, end, 0));
            }
            _ => {}
        }
    }

    /// Tells the thread that asked, if there is one, how far its request is: unless the goal is the keeper's own.
    fn tell_compaction(&self, spare: Spare, stage: Stage) {
        if spare == Spare::Lean
            && let Some(asked) = self.engine.compaction.lock().as_mut()
        {
            asked.stage = stage;
        }
    }

    fn begin_goal(&mut self, goal: Goal) {
        self.shortening.goal = Some(goal);
        self.shortening.since_ns = None;
        self.shortening.is_end_moved = true;
        self.retry_zones();
        self.engine.bell.ring();
    }

    /// Goes on with a goal. True: it is reached.
    fn shorten(&mut self, now: u64, elapsed_ns: u64, goal: &mut Goal) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let store = &engine.core.store;
        self.take_left()?;
        let (_, least) = store.zones_now_and_with(goal.spare);
        if least > goal.end {
            // Pages have come meanwhile.
            (goal.end, goal.is_set) = (least, false);
        }
        if !goal.is_set {
            goal.is_set = store.move_end(goal.end, END_STEP);
            engine.bell.ring();
            return Ok(false);
        }
        goal.end = goal.end.max(store.wanted_end());
        if store.has_pins() {
            goal.last = None;
            return Ok(false);
        }
        if goal.spare == Spare::Lean {
            // Otherwise the file would grow ahead of need meanwhile.
            store.stay_lean();
        }
        match store.cut(goal.spare, CUT_ZONES / 4) {
            Ok(Cut::Nothing) => {}
            Ok(Cut::Zones(_)) => {
                goal.has_cut = true;
                self.forget_zones_from(store.zones_now_and_with(goal.spare).0);
                engine.bell.ring();
                return Ok(false);
            }
            Ok(Cut::AfterCheckpoint) => {
                if self.syncer.busy() {
                    // The job's end rings the bell, and a checkpoint is next.
                    self.next_checkpoint_ns = 0;
                } else {
                    self.begin_checkpoint();
                }
                return Ok(false);
            }
            Err(error) => {
                self.shortening.failed = true;
                self.tell_compaction(goal.spare, Stage::Failed(Arc::new(error)));
                return Ok(true);
            }
        }
        let zone = store.last_used_zone();
        let behind = zone.map_or(0, |zone| (zone + 1).saturating_sub(goal.end));
        self.tell_compaction(goal.spare, Stage::UnderWay { left: to_u64(behind * ZONE_BYTES) });
        let Some(zone) = zone else { return Ok(store.zones_now_and_with(goal.spare).0 <= goal.end) };
        if self.must_wait(goal.spare == Spare::Usual) {
            if let Some(last) = &mut goal.last {
                last.since_ns += elapsed_ns;
            }
            return Ok(false);
        }
        if self.shortening.allowance <= 0.0 {
            return Ok(false);
        }
        let known = goal.last.filter(|last| last.zone == zone);
        let mut last = known.unwrap_or(Last { zone, since_ns: now, tries: 0 });
        let is_under_way = self.shortening.emptying.iter().any(|(other, ..)| *other == zone);
        if last.tries > STUCK_TRIES && now.saturating_sub(last.since_ns) > STUCK_NS {
            (goal.end, goal.is_set, goal.last) = (zone + 1, false, None);
            return Ok(false);
        }
        let is_tried = self.leave_zones()?;
        last.tries += u32::from(is_tried && !is_under_way);
        goal.last = Some(last);
        Ok(false)
    }

    /// Whether others need the device more.
    fn must_wait(&self, gives_way_to_all: bool) -> bool {
        let engine = &self.engine;
        let (pool, log, pacing) = (&engine.core.pool, &engine.core.log, &engine.pacing);
        let others = gives_way_to_all && pacing.owed() > 0;
        others || pool.frames_short() > 0 || log.is_full_for_some() || pacing.is_urgent()
    }

    /// Moves the images of some zones behind the wanted end. False: not now.
    fn leave_zones(&mut self) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let store = &engine.core.store;
        if store.free_before_end() < SLOTS_LEFT + to_u64(ZONE_BYTES) / to_u64(store.page_size()) {
            // Slots of replaced images come free. If they do not suffice, the end rises.
            self.begin_publishing();
            let durable = engine.core.log.flush_all()?;
            store.release_slots(durable);
        }
        let under_way: Vec<usize> = self.shortening.emptying.iter().map(|(zone, ..)| *zone).collect();
        let next = |skip: &dyn Fn(usize) -> bool| store.zone_to_leave(|zone| skip(zone) || under_way.contains(&zone));
        let moved = self.move_zones(next, false)?;
        self.shortening.allowance -= float(to_u64(moved.pages * store.page_size()));
        if !moved.zones.is_empty() {
            engine.bell.ring();
        }
        self.shortening.emptying.extend(moved.zones.iter().map(|zone| (*zone, moved.turn, None)));
        Ok(moved.is_tried)
    }

    /// Frees the slots of images that have moved, and forgets their zones. If a zone is still in use then, it is moved
    /// once more.
    fn take_left(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        if self.shortening.emptying.is_empty() {
            engine.core.store.release_slots(engine.core.log.positions().durable);
            return Ok(());
        }
        let (_, named) = engine.core.store.turns();
        let mut positions = engine.core.log.positions();
        for (_, turn, free_at) in &mut self.shortening.emptying {
            if free_at.is_none() && *turn <= named {
                *free_at = Some(positions.next);
            }
        }
        let is_asked = self.shortening.goal.is_some_and(|goal| goal.spare == Spare::Lean);
        if is_asked && self.shortening.emptying.iter().any(|(_, _, at)| at.is_some_and(|at| at > positions.durable)) {
            // Otherwise the next checkpoint flushes the log.
            engine.core.log.flush_all()?;
            positions = engine.core.log.positions();
        }
        engine.core.store.release_slots(positions.durable);
        self.shortening.emptying.retain(|(_, _, at)| at.is_none_or(|at| at > positions.durable));
        Ok(())
    }

    /// Ends a goal, or begins the next round of one that was asked for.
    fn end_goal(&mut self, goal: Goal) {
        let engine = Arc::clone(&self.engine);
        self.shortening.since_ns = None;
        if goal.spare == Spare::Usual || self.shortening.failed {
            self.shortening.vain = if goal.has_cut { 0 } else { self.shortening.vain + 1 };
            self.engine.bell.ring();
            return;
        }
        let (zones, least) = engine.core.store.zones_now_and_with(Spare::Lean);
        // Pages were given back meanwhile: it goes on, if there is a good deal to win.
        if goal.rounds < ROUNDS_MAX && least + (zones / 16).max(1) <= zones && least + 1 < goal.end {
            engine.core.store.stay_lean();
            self.begin_goal(Goal::new(Spare::Lean, least, goal.rounds + 1));
            return;
        }
        engine.core.store.stay_lean();
        self.tell_compaction(Spare::Lean, Stage::Done);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact byte")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_in_vain_come_less_and_less_often() {
        let mut shortening = Shortening::default();
        let due_after_s = |shortening: &Shortening| (1..20_000u64).find(|s| shortening.is_due(s * 1_000_000_000));
        assert_eq!(due_after_s(&shortening), None);
        shortening.note(true, 0);
        for (vain, seconds) in [(0, 5), (1, 10), (4, 80), (10, 5120), (99, 5120)] {
            shortening.vain = vain;
            assert_eq!(due_after_s(&shortening), Some(seconds));
        }
        shortening.note(false, 7);
        assert_eq!(due_after_s(&shortening), None);
    }
}
