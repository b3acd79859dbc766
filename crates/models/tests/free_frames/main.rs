//! The queue for free frames, `pool/free_frames.rs` with `base/handoff.rs`, under loom.
//!
//! Loom, because a giver and a waiter see each other (FREE-2) by fences, and only loom takes fences seriously: the
//! model's ring may hide a pushed frame from a thread that has no fence in between.
//!
//! | shown | by |
//! |---|---|
//! | every waiter is served, or cancelled | loom reports threads none of which can go on |
//! | no frame is lost, whichever waiter is cancelled meanwhile, and none is given twice | [`Frames`] counts them |
//! | waiters are served in the order of their arrival | [`served_in_order`] |
//!
//! Bugs that were planted, and found: fences that order nothing (below); `frames_lost_on_cancel` and
//! `ticket_not_looked_for` (`make planted`).

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

#[path = "../../../millpond/src/pool/free_frames.rs"]
#[expect(dead_code, reason = "the pool uses more of it than the model")]
mod free_frames;
#[path = "../../../millpond/src/base/handoff.rs"]
#[expect(dead_code, reason = "no thread of the model waits for a while only")]
mod handoff;
#[path = "../../../millpond/src/base/ids.rs"]
#[expect(dead_code, reason = "the engine has more ids than the model")]
mod ids;
mod primitives;
#[path = "../../../millpond/src/base/rank.rs"]
#[expect(dead_code, reason = "the engine has more mutexes than the model")]
mod rank;
#[path = "../stand_ins/sync.rs"]
#[expect(dead_code, reason = "no thread of the model waits for a clock")]
mod sync;

/// The primitives of `sync`.
mod threads {
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use loom::thread::yield_now;
}

/// The engine's own tests check the laws.
mod laws {
    pub(crate) fn check_park() {}
}

/// Waits without clocks.
mod waits {
    #[derive(Clone, Copy)]
    pub(crate) enum WaitClass {
        FreeFrame,
    }

    impl WaitClass {
        pub(crate) fn name(self) -> &'static str {
            "a hand-off"
        }
    }

    pub(crate) struct Waits;

    impl Waits {
        pub(crate) fn timed<T>(&self, _class: WaitClass, wait: impl FnOnce() -> T) -> T {
            wait()
        }
    }
}

use std::sync::{Arc, Mutex};

use free_frames::{FreeFrames, Taken, Ticket};
use ids::FrameId;
use loom::thread::{self, JoinHandle};
use primitives::Flaw;
use waits::{WaitClass, Waits};

/// Switches away from a thread that could go on.
fn preemptions() -> usize {
    if std::env::var_os("MILLPOND_FULL").is_some() { 4 } else { 3 }
}

/// The queue, and the frames that are taken.
struct Frames {
    free: FreeFrames,
    /// Frames that a thread holds. Not a part of the model: the test looks at it between the model's steps.
    held: Mutex<Vec<FrameId>>,
}

impl Frames {
    /// A queue with `free` frames in the ring.
    fn new(free: u32) -> Arc<Frames> {
        let frames = Arc::new(Frames { free: FreeFrames::new(), held: Mutex::default() });
        (0..free).map(FrameId).for_each(|frame| frames.free.give(frame));
        frames
    }

    fn hold(&self, frames: &[FrameId]) {
        let mut held = self.held.lock().expect("no thread panicked with it");
        for frame in frames {
            assert!(!held.contains(frame), "frame {frame:?} was given twice");
            held.push(*frame);
        }
    }

    fn give(&self, frame: FrameId) {
        self.held.lock().expect("no thread panicked with it").retain(|held| *held != frame);
        self.free.give(frame);
    }

    fn wait(&self, ticket: &Ticket) -> Vec<FrameId> {
        let frames = ticket.handoff.take_wait(WaitClass::FreeFrame, &Waits);
        self.hold(&frames);
        frames
    }

    /// Takes `count` frames, waiting for them if need be. No frames: cancelled.
    fn take(&self, count: usize) -> Vec<FrameId> {
        self.take_for(count, None)
    }

    /// The same for a batch.
    fn take_for(&self, count: usize, batch: Option<u64>) -> Vec<FrameId> {
        match self.free.take_or_wait(count, batch) {
            Taken::Frames(frames) => {
                self.hold(&frames);
                frames
            }
            Taken::Wait(ticket) => self.wait(&ticket),
            Taken::Stopped => Vec::new(),
        }
    }

    /// At rest: `count` frames are in the ring or held, and no waiter is in the queue.
    fn assert_all_there(&self, count: usize) {
        let held = self.held.lock().expect("no thread panicked with it").len();
        assert_eq!(self.free.len() + held, count, "a frame is lost, or there twice");
        assert!(!self.free.awaited() && self.free.wanted() == 0, "a waiter that is gone is counted");
    }
}

fn explore(flaw: Flaw, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions());
    builder.check(move || {
        primitives::begin(flaw);
        model();
    });
}

fn start<T: 'static>(frames: &Arc<Frames>, work: impl FnOnce(&Frames) -> T + 'static) -> JoinHandle<T> {
    let frames = Arc::clone(frames);
    thread::spawn(move || work(&frames))
}

/// One thread waits for a frame, or comes just in time; the other gives it.
fn giver_and_waiter(flaw: Flaw) {
    explore(flaw, || {
        let frames = Frames::new(0);
        let taker = start(&frames, |frames| frames.take(1));
        frames.give(FrameId(0));
        assert_eq!(taker.join().expect("no panic"), [FrameId(0)]);
        frames.assert_all_there(1);
    });
}

#[test]
fn giver_and_waiter_see_each_other() {
    giver_and_waiter(Flaw::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn fences_that_order_nothing_are_noticed() {
    giver_and_waiter(Flaw::NoFences);
}

#[test]
fn two_takers_pass_one_frame_on() {
    explore(Flaw::None, || {
        let frames = Frames::new(1);
        let pass = |frames: &Frames| frames.take(1).into_iter().for_each(|frame| frames.give(frame));
        let others = [start(&frames, pass), start(&frames, pass)];
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        frames.assert_all_there(1);
    });
}

#[test]
fn waiter_for_two_gets_both_of_two_givers() {
    explore(Flaw::None, || {
        let frames = Frames::new(0);
        let taker = start(&frames, |frames| frames.take(2));
        let giver = start(&frames, |frames| frames.give(FrameId(1)));
        frames.give(FrameId(0));
        giver.join().expect("no panic");
        assert_eq!(taker.join().expect("no panic").len(), 2);
        frames.assert_all_there(2);
    });
}

/// One thread wants two frames, the other one, and both give theirs back: neither holds a frame that the other waits
/// for.
#[test]
fn waiters_for_two_and_for_one_do_not_block_each_other() {
    explore(Flaw::None, || {
        let frames = Frames::new(1);
        let pass = |count| {
            move |frames: &Frames| frames.take(count).into_iter().map(|frame| frames.give(frame)).count() == count
        };
        let others = [start(&frames, pass(2)), start(&frames, pass(1))];
        frames.give(FrameId(1));
        others.into_iter().for_each(|other| assert!(other.join().expect("no panic")));
        frames.assert_all_there(2);
    });
}

/// Two batches come in any order, each for both frames: neither waits for ever, whichever is first in the line.
#[test]
fn batches_that_exchange_places_get_their_frames() {
    explore(Flaw::None, || {
        let frames = Frames::new(1);
        let pass = |batch| {
            move |frames: &Frames| {
                let all = frames.take_for(2, Some(batch));
                all.into_iter().map(|frame| frames.give(frame)).count() == 2
            }
        };
        let others = [start(&frames, pass(2)), start(&frames, pass(1))];
        frames.give(FrameId(1));
        others.into_iter().for_each(|other| assert!(other.join().expect("no panic")));
        frames.assert_all_there(2);
    });
}

fn in_line(frames: &Frames, count: usize) -> Arc<Ticket> {
    match frames.free.take_or_wait(count, None) {
        Taken::Wait(ticket) => ticket,
        _ => unreachable!("nothing is free"),
    }
}

/// The first waiter leaves while a frame is being given: the first or the second gets the frame.
#[test]
fn frame_given_to_a_waiter_that_just_left_goes_to_the_next() {
    explore(Flaw::None, || {
        let frames = Frames::new(0);
        let (first, second) = (in_line(&frames, 1), in_line(&frames, 1));
        let giver = start(&frames, |frames| frames.give(FrameId(0)));
        let leaver = start(&frames, move |frames| {
            frames.free.cancel(&first);
            frames.wait(&first)
        });
        let mut got = leaver.join().expect("no panic");
        giver.join().expect("no panic");
        if got.is_empty() {
            got = frames.wait(&second);
        } else {
            frames.free.cancel(&second);
            assert!(frames.wait(&second).is_empty());
        }
        assert_eq!(got, [FrameId(0)]);
        frames.assert_all_there(1);
    });
}

/// The first waiter wants two frames, and leaves when there is one: the second gets that one.
#[test]
fn waiter_behind_a_larger_one_is_served_when_that_one_leaves() {
    explore(Flaw::None, || {
        let frames = Frames::new(0);
        let (first, second) = (in_line(&frames, 2), in_line(&frames, 1));
        let giver = start(&frames, |frames| frames.give(FrameId(0)));
        frames.free.cancel(&first);
        assert!(frames.wait(&first).is_empty());
        assert_eq!(frames.wait(&second), [FrameId(0)]);
        giver.join().expect("no panic");
        frames.assert_all_there(1);
    });
}

#[test]
fn served_in_order() {
    explore(Flaw::None, || {
        let frames = Frames::new(0);
        let (first, second) = (in_line(&frames, 1), in_line(&frames, 1));
        let late = start(&frames, |frames| frames.free.take(1).is_none());
        let giver = start(&frames, |frames| frames.give(FrameId(0)));
        // No other thread gives a frame: the second waiter gets one only after the first has passed its frame on.
        let got = frames.wait(&first);
        assert!(late.join().expect("no panic"), "a newcomer passed a waiter");
        giver.join().expect("no panic");
        got.into_iter().for_each(|frame| frames.give(frame));
        assert_eq!(frames.wait(&second), [FrameId(0)]);
        frames.assert_all_there(1);
    });
}

/// No frame is freed any more: present and later takers learn of it, and a frame on its way is not lost.
#[test]
fn end_of_the_pool_leaves_no_waiter() {
    explore(Flaw::None, || {
        let frames = Frames::new(0);
        let taker = start(&frames, |frames| frames.take(1));
        let giver = start(&frames, |frames| frames.give(FrameId(0)));
        frames.free.stop();
        giver.join().expect("no panic");
        let got = taker.join().expect("no panic");
        assert!(got.len() <= 1);
        frames.assert_all_there(1);
    });
}
