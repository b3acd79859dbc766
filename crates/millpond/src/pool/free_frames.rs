//! Free frames, and who waits for them.
//!
//! FREE-1  Frames go to waiters in the order in which they came. Newcomers take from the ring only while nobody waits.
//! FREE-2  Who gives a frame pushes it first and looks for waiters then; who waits is counted first and looks for
//!         frames then; between each pair is a full fence. So either the giver sees the waiter or the waiter the frame.
//! FREE-3  A ticket is ended once, by compare-and-swap: granted or cancelled. Frames that came too late go on to the
//!         next.
//!
//! Who ends the wait: whoever frees a frame, mostly the keeper; [`FreeFrames::stop`]; whoever cancels the ticket.

use std::collections::VecDeque;
use std::sync::Arc;

use super::primitives::{AtomicBool, AtomicU8, AtomicUsize, FrameId, Handoff, Mutex, Ordering, Rank, Ring, fence};

pub(super) const WAITING: u8 = 0;
pub(super) const GRANTED: u8 = 1;
pub(super) const CANCELLED: u8 = 2;

/// A place in the line.
pub(super) struct Ticket {
    count: usize,
    pub(super) state: AtomicU8,
    /// The frames; none: cancelled, or nothing is freed any more.
    pub(super) handoff: Arc<Handoff<Vec<FrameId>>>,
}

/// Frames with no page in them.
pub(super) struct FreeFrames {
    ring: Ring<FrameId>,
    /// Tickets in the line.
    waiting: AtomicUsize,
    line: Mutex<VecDeque<Arc<Ticket>>>,
    stopped: AtomicBool,
}

/// What a request for frames got.
pub(super) enum Taken {
    Frames(Vec<FrameId>),
    /// A place in the line.
    Wait(Arc<Ticket>),
    /// Nothing is freed any more.
    Stopped,
}

impl FreeFrames {
    pub(super) fn new() -> FreeFrames {
        FreeFrames {
            ring: Ring::new(),
            waiting: AtomicUsize::new(0),
            line: Mutex::new(Rank::FreeFrames, VecDeque::new()),
            stopped: AtomicBool::new(false),
        }
    }

    /// Frames in the ring.
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Frames that are waited for.
    pub(super) fn wanted(&self) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let waits = |ticket: &&Arc<Ticket>| ticket.state.load(Ordering::Relaxed) == WAITING;
        self.line.lock().iter().filter(waits).map(|ticket| ticket.count).sum()
    }

    /// Whether anybody waits.
    pub(super) fn awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes `count` frames if nobody waits and they are there.
    pub(super) fn take(&self, count: usize) -> Option<Vec<FrameId>> {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        self.pop(count)
    }

    fn pop(&self, count: usize) -> Option<Vec<FrameId>> {
        if self.ring.len() < count {
            return None;
        }
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            match self.ring.pop() {
                Some(frame) => frames.push(frame),
                None => {
                    // Others were quicker. What was taken may be what somebody waits for: it goes back like any other.
                    frames.drain(..).for_each(|frame| self.give(frame));
                    return None;
                }
            }
        }
        Some(frames)
    }

    /// Takes `count` frames, or a place in the line for them.
    pub(super) fn take_or_wait(&self, count: usize) -> Taken {
        if let Some(frames) = self.take(count) {
            return Taken::Frames(frames);
        }
        if self.stopped.load(Ordering::Acquire) {
            return Taken::Stopped;
        }
        let ticket = Arc::new(Ticket { count, state: AtomicU8::new(WAITING), handoff: Handoff::new() });
        {
            let mut line = self.line.lock();
            // Before it can be granted, which counts it out again.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            line.push_back(Arc::clone(&ticket));
        }
        fence(Ordering::SeqCst);
        // FREE-2: a frame that was pushed before we were counted.
        if !planted!("ticket_not_looked_for") {
            self.grant();
        }
        if self.stopped.load(Ordering::SeqCst) {
            self.cancel(&ticket);
        }
        Taken::Wait(ticket)
    }

    /// Gives a frame: to the oldest waiter, or to the ring.
    pub(super) fn give(&self, frame: FrameId) {
        self.ring.push(frame);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.grant();
        }
    }

    /// Grants what the ring has to those who wait, oldest first.
    fn grant(&self) {
        let mut granted = Vec::new();
        {
            let mut line = self.line.lock();
            while let Some(front) = line.front() {
                if front.state.load(Ordering::Acquire) == WAITING {
                    let mut frames = Vec::with_capacity(front.count);
                    while frames.len() < front.count
                        && let Some(frame) = self.ring.pop()
                    {
                        frames.push(frame);
                    }
                    let enough = frames.len() == front.count;
                    let state = (WAITING, GRANTED);
                    // FREE-3: it may be cancelled at this moment.
                    if enough
                        && front.state.compare_exchange(state.0, state.1, Ordering::AcqRel, Ordering::Acquire).is_ok()
                    {
                        granted.push((Arc::clone(front), frames));
                    } else {
                        // Into the ring, for the next.
                        if !(enough && planted!("frames_lost_on_cancel")) {
                            frames.into_iter().for_each(|frame| self.ring.push(frame));
                        }
                        if !enough {
                            // Whoever gives the next one comes here again.
                            break;
                        }
                    }
                }
                line.pop_front();
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
        for (ticket, frames) in granted {
            ticket.handoff.give(frames);
        }
    }

    /// Takes a ticket out of the line, unless it was granted already: then the frames are in its hand-off.
    pub(super) fn cancel(&self, ticket: &Ticket) {
        if ticket.state.compare_exchange(WAITING, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            ticket.handoff.give(Vec::new());
            // Those behind it may be next.
            self.grant();
        }
    }

    /// Ends all waits, and those to come: nothing is freed any more.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let line: Vec<_> = self.line.lock().iter().cloned().collect();
        for ticket in line {
            self.cancel(&ticket);
        }
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
