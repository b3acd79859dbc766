//! The supply of frames: a thread takes free frames. If none is free, it evicts pages itself or waits in the line.

use std::sync::atomic::Ordering;

use super::backoff::Slept;
use super::buffer_pool::{Empty, Pool};
use super::classic::Classic;
use super::frame_ticket::FrameTicket;
use super::free_frames::Taken;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// Frames that a foreground thread without a free frame scans for a clean page, which goes to the oldest waiter.
const STEAL_STEPS: usize = 16;

/// The same when the keeper has made no progress for `ALONE_AFTER_NS`, since it waits for the device. Until it is back
/// it frees no frames.
const STEAL_STEPS_ALONE: usize = 1024;
const ALONE_AFTER_NS: u64 = 20_000_000;

/// Consecutive pages of a space that are read into one instance, so that neighbours are together.
const PAGES_TOGETHER: u32 = 64;

/// The result for a thread that needs frames.
enum Got {
    Frames(Vec<FrameId>),
    /// No frame can be had by the thread's own work: it is to take a place in the line.
    PlaceInLine,
    /// All page writes have stopped.
    Stopped,
}

impl Pool {
    /// Takes a free frame. May wait on `free_frame`; callers hold no latch.
    pub(crate) fn take_frame(&self) -> Result<FrameTicket<'_>, Error> {
        one(self.take_frames(1)?)
    }

    /// Takes a free frame to read page `id` into. May wait on `free_frame`; callers hold no latch.
    pub(super) fn take_frame_for(&self, id: PageId) -> Result<FrameTicket<'_>, Error> {
        one(self.take_from(self.instance_for(id), 1, None)?)
    }

    /// The same for a caller that keeps other pages pinned: a free frame, or with `legacy` one that the caller frees by
    /// its own work. `None`: another thread has to free one, and may be waiting for pages that the caller has.
    pub(super) fn take_frame_holding(&self, id: PageId) -> Result<Option<FrameTicket<'_>>, Error> {
        let at = self.instance_for(id);
        if let Some(tickets) = self.take_free_from(at, 1) {
            return one(tickets).map(Some);
        }
        let Some(legacy) = self.classic().filter(|classic| !classic.is_backoff()).map(|classic| &classic.legacy) else {
            return Ok(None);
        };
        let taken = self.timed_taking(|waited| self.take_legacy(legacy, at, 1, waited))?;
        taken.map(|frames| one(self.tickets(frames))).transpose()
    }

    /// Takes `count` free frames, all or none. May wait on `free_frame`; callers hold no latch and no frame.
    pub(crate) fn take_frames(&self, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        self.take_from(self.any_instance(), count, None)
    }

    /// The same for a batch with this number, which is larger for a younger batch: of several batches that wait, the
    /// oldest is first.
    pub(super) fn take_frames_for_batch(&self, count: usize, batch: u64) -> Result<Vec<FrameTicket<'_>>, Error> {
        self.take_from(self.any_instance(), count, Some(batch))
    }

    /// Takes `count` frames, if they are free and no thread waits.
    pub(super) fn take_free(&self, count: usize) -> Option<Vec<FrameTicket<'_>>> {
        self.take_free_from(self.any_instance(), count)
    }

    fn take_from(&self, at: usize, count: usize, batch: Option<u64>) -> Result<Vec<FrameTicket<'_>>, Error> {
        if let Some(tickets) = self.take_free_from(at, count) {
            return Ok(tickets);
        }
        if self.line().stopped() {
            return self.take_last(count);
        }
        self.timed_taking(|waited| self.take_or_wait(at, count, batch, waited))
    }

    fn take_free_from(&self, at: usize, count: usize) -> Option<Vec<FrameTicket<'_>>> {
        let frames = self.instances[at].free.take(count)?;
        if self.free_frames() <= self.low() {
            self.ask_keeper();
        }
        Some(self.tickets(frames))
    }

    /// Runs `take`, and counts it as one wait for a frame if it says that it waited.
    fn timed_taking<T>(&self, take: impl FnOnce(&mut bool) -> T) -> T {
        let began = clock::now_ns();
        let (waited, taken) = self.waits.timed_if(WaitClass::FreeFrame, || {
            let mut waited = false;
            let taken = take(&mut waited);
            (waited, (waited, taken))
        });
        if waited {
            self.counters.waited(clock::now_ns() - began);
        }
        taken
    }

    /// Takes frames when none is free; says in `waited` whether there was a wait.
    fn take_or_wait(
        &self,
        at: usize,
        count: usize,
        batch: Option<u64>,
        waited: &mut bool,
    ) -> Result<Vec<FrameTicket<'_>>, Error> {
        match &self.empty {
            Empty::Handoff => self.steal_some(at, count),
            Empty::Classic(classic) => match self.take_classic(classic, at, count, waited)? {
                Got::Frames(frames) => return Ok(self.tickets(frames)),
                Got::PlaceInLine => {}
                Got::Stopped => return self.take_last(count),
            },
        }
        let ticket = match self.line().take_or_wait(count, batch) {
            Taken::Frames(frames) => return Ok(self.tickets(frames)),
            Taken::Wait(ticket) => ticket,
            Taken::Stopped => return Err(self.no_frame()),
        };
        *waited = true;
        self.bell.ring();
        let frames = ticket.handoff.take_wait(WaitClass::FreeFrame, &self.waits);
        if frames.is_empty() { Err(self.no_frame()) } else { Ok(self.tickets(frames)) }
    }

    /// Takes `count` frames by the policy in force. May wait on `free_frame`, and then sets `waited`; callers hold no
    /// latch.
    fn take_classic(&self, classic: &Classic, at: usize, count: usize, waited: &mut bool) -> Result<Got, Error> {
        if classic.is_backoff() {
            match self.take_backoff(classic, at, count, waited) {
                Slept::Frames(frames) => return Ok(Got::Frames(frames)),
                Slept::Stopped => return Ok(Got::Stopped),
                Slept::Deserted => {}
            }
        }
        // If all pages of one instance are pinned, try another.
        let several = self.instances.len();
        for other in 0..several {
            if let Some(frames) = self.take_legacy(&classic.legacy, (at + other) % several, count, waited)? {
                return Ok(Got::Frames(frames));
            }
        }
        Ok(Got::PlaceInLine)
    }

    /// Evicts clean pages: `count`, with few looks each. If the keeper waits for a stalled device, evicts also for the
    /// waiters in the line, with many looks each. Otherwise these would wait as long as the keeper, although pages are
    /// clean.
    fn steal_some(&self, at: usize, count: usize) {
        // Relaxed: a guess.
        let busy_since_ns = self.keeper_busy_since_ns.load(Ordering::Relaxed);
        let is_alone = busy_since_ns > 0 && clock::now_ns() >= busy_since_ns + ALONE_AFTER_NS;
        let (count, steps) =
            if is_alone { (count + self.line().wanted(), STEAL_STEPS_ALONE) } else { (count, STEAL_STEPS) };
        for _ in 0..count {
            match self.steal(at, steps) {
                Some(frame) => self.give(frame),
                None if is_alone => return,
                None => {}
            }
        }
    }

    /// Takes frames when no page is cleaned any more: the last clean page is worth a search.
    fn take_last(&self, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        let any = |_| {
            let free = self.take_anywhere(1).and_then(|mut frames| frames.pop());
            free.or_else(|| (0..self.instances.len()).find_map(|at| self.steal(at, 4 * self.len())))
        };
        let tickets = self.tickets((0..count).map_while(any).collect());
        if tickets.len() == count { Ok(tickets) } else { Err(self.no_frame()) }
    }

    fn tickets(&self, frames: Vec<FrameId>) -> Vec<FrameTicket<'_>> {
        self.counters.taken.fetch_add(to_u64(frames.len()), Ordering::Relaxed);
        // Each frame counts: no early exit, since `reach` notes how far the taken frames go.
        if frames.iter().filter(|frame| self.frames.reach(**frame, self.len())).count() > 0 {
            self.bell.ring();
        }
        frames.into_iter().map(|frame| FrameTicket::new(self, frame)).collect()
    }

    fn no_frame(&self) -> Error {
        let message = "no frame of the buffer pool can be freed, because an earlier failure stopped all page writes; reopen the database";
        Error::ReadOnly(message.into())
    }

    /// Has pages read into their own instances from now on. During redo they go wherever there is room: more pages of
    /// one instance may be pinned together than it has frames.
    pub(crate) fn keep_pages_together(&self) {
        self.spread.store(false, Ordering::Relaxed);
    }

    /// The instance that page `id` is read into.
    fn instance_for(&self, id: PageId) -> usize {
        match self.instances.len() {
            1 => 0,
            _ if self.spread.load(Ordering::Relaxed) => self.any_instance(),
            several => to_usize((u64::from(id.space().0) + u64::from(id.number() / PAGES_TOGETHER)) % to_u64(several)),
        }
    }

    /// Any instance, in round-robin order.
    fn any_instance(&self) -> usize {
        match self.instances.len() {
            1 => 0,
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        }
    }

    /// For the keeper: notes that it is busy and made progress at `now_ns`.
    pub(crate) fn keeper_is_busy(&self, now_ns: u64) {
        self.keeper_busy_since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// For the keeper: notes that it waits for its bell.
    pub(crate) fn keeper_rests(&self) {
        self.keeper_busy_since_ns.store(0, Ordering::Relaxed);
    }
}

fn one<T>(mut of: Vec<T>) -> Result<T, Error> {
    of.pop().ok_or_else(|| Error::Bug("POOL-2: a waiter got no frame".into()))
}
