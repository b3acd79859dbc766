//! Free frames, and the line (FIFO) of threads that wait for them.
//!
//! FREE-1  Frames go to waiters in arrival order. Newcomers take from the ring only while no thread waits. Batches that
//!         wait for many frames exchange their places: among them the oldest batch is first. So batches end one after
//!         the other, and no other thread loses its place by that.
//! FREE-2  A giver pushes the frame, then looks for waiters. A waiter is counted, then looks for frames. A full fence
//!         stands between the two steps of each. So either the giver sees the waiter, or the waiter sees the frame.
//! FREE-3  A ticket ends once, by compare-and-swap: granted or cancelled. Frames that came too late go on to the next
//!         ticket.
//!
//! A wait ends when a thread frees a frame (mostly the keeper), on [`FreeFrames::stop`], or when the ticket is
//! cancelled.

use std::collections::VecDeque;
use std::sync::Arc;

use super::primitives::{AtomicBool, AtomicU8, AtomicUsize, FrameId, Handoff, Mutex, Ordering, Rank, Ring, fence};

pub(super) const WAITING: u8 = 0;
pub(super) const GRANTED: u8 = 1;
pub(super) const CANCELLED: u8 = 2;

/// A place in the line.
pub(super) struct Ticket {
    count: usize,
    /// For a batch: a number that is larger for a younger one.
    batch: Option<u64>,
    pub(super) state: AtomicU8,
    /// The frames; empty: cancelled, or no frame is freed any more.
    pub(super) handoff: Arc<Handoff<Vec<FrameId>>>,
}

/// Frames with no page in them.
pub(super) struct FreeFrames {
    ring: Ring<FrameId>,
    /// Number of tickets in the line.
    waiting: AtomicUsize,
    line: Mutex<VecDeque<Arc<Ticket>>>,
    stopped: AtomicBool,
}

/// FREE-1: moves the last ticket before the tickets of younger batches, each of which takes the next one's place.
fn exchange_places(line: &mut VecDeque<Arc<Ticket>>) {
    let Some(batch) = line.back().and_then(|last| last.batch) else { return };
    let mut at = line.len() - 1;
    for before in (0..at).rev() {
        if line[before].batch.is_some_and(|other| other > batch) {
            line.swap(before, at);
            at = before;
        }
    }
}

/// The result of a request for frames.
pub(super) enum Taken {
    Frames(Vec<FrameId>),
    /// A place in the line.
    Wait(Arc<Ticket>),
    /// No frame is freed any more.
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

    /// Number of frames that the waiters want together.
    pub(super) fn wanted(&self) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let waits = |ticket: &&Arc<Ticket>| ticket.state.load(Ordering::Relaxed) == WAITING;
        self.line.lock().iter().filter(waits).map(|ticket| ticket.count).sum()
    }

    /// Whether any thread waits.
    pub(super) fn awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes `count` frames if no thread waits and that many are free.
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
                    // Other threads were quicker. A thread may wait for the frames popped so far: they go back as any
                    // other.
                    frames.drain(..).for_each(|frame| self.give(frame));
                    return None;
                }
            }
        }
        Some(frames)
    }

    /// Takes `count` frames, or a place in the line for them. `batch`: the number of the batch that takes them.
    pub(super) fn take_or_wait(&self, count: usize, batch: Option<u64>) -> Taken {
        if let Some(frames) = self.take(count) {
            return Taken::Frames(frames);
        }
        if self.stopped.load(Ordering::Acquire) {
            return Taken::Stopped;
        }
        let ticket = Arc::new(Ticket { count, batch, state: AtomicU8::new(WAITING), handoff: Handoff::new() });
        {
            let mut line = self.line.lock();
            // Before the ticket can be granted, which lowers the count.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            line.push_back(Arc::clone(&ticket));
            exchange_places(&mut line);
        }
        fence(Ordering::SeqCst);
        // FREE-2: a frame may have been pushed before this ticket was counted.
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

    /// Grants the ring's frames to the waiters, oldest first.
    fn grant(&self) {
        let mut granted = Vec::new();
        {
            let mut line = self.line.lock();
            while let Some(front) = line.front() {
                if front.state.load(Ordering::Acquire) == WAITING {
                    if self.ring.len() < front.count {
                        break;
                    }
                    let mut frames = Vec::with_capacity(front.count);
                    while frames.len() < front.count
                        && let Some(frame) = self.ring.pop()
                    {
                        frames.push(frame);
                    }
                    let enough = frames.len() == front.count;
                    let state = (WAITING, GRANTED);
                    // FREE-3: the ticket may be cancelled at this moment.
                    if enough
                        && front.state.compare_exchange(state.0, state.1, Ordering::AcqRel, Ordering::Acquire).is_ok()
                    {
                        granted.push((Arc::clone(front), frames));
                    } else {
                        // Back into the ring, for the next ticket.
                        if !(enough && planted!("frames_lost_on_cancel")) {
                            frames.into_iter().for_each(|frame| self.ring.push(frame));
                        }
                        if !enough {
                            // The thread that gives the next frame grants again.
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

    /// Cancels a ticket, unless it was granted already: then the frames are in its hand-off.
    pub(super) fn cancel(&self, ticket: &Ticket) {
        if ticket.state.compare_exchange(WAITING, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            ticket.handoff.give(Vec::new());
            // The tickets behind it may be next.
            self.grant();
        }
    }

    /// Ends the waits of batches for more than `most` frames: a pool that is made smaller may never have them free.
    pub(super) fn cancel_batches(&self, most: usize) {
        let line: Vec<_> = self.line.lock().iter().cloned().collect();
        line.iter()
            .filter(|ticket| ticket.batch.is_some() && ticket.count > most)
            .for_each(|ticket| self.cancel(ticket));
    }

    /// Ends all waits, and later ones at once: no frame is freed any more.
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
