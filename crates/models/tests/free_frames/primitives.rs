//! Primitives of the model's queue for frames: loom's atomics and mutexes.

use std::cell::Cell;

pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

pub(super) use crate::handoff::Handoff;
pub(super) use crate::ids::FrameId;
pub(super) use crate::sync::{Mutex, Rank};

/// A flaw of these primitives, to see whether the model notices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Fences order nothing.
    NoFences,
}

thread_local! {
    // A model's threads all run on the thread of its test.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

/// Begins an execution.
pub(crate) fn begin(flaw: Flaw) {
    FLAW.set(flaw);
}

pub(super) fn fence(order: Ordering) {
    if FLAW.get() != Flaw::NoFences {
        loom::sync::atomic::fence(order);
    }
}

/// Most frames of the model.
const PLACES: usize = 2;

/// Stands for the ring of `crossbeam_queue`. No frame comes out twice, and a thread that has seen a push finds the
/// frame.
///
/// Weaker than the real ring: it has no order, and a thread may miss a frame just pushed, unless a fence makes the push
/// visible to it.
pub(super) struct Ring<T> {
    places: [AtomicUsize; PLACES],
    of: std::marker::PhantomData<fn(T)>,
}

const EMPTY: usize = usize::MAX;

impl Ring<FrameId> {
    pub(super) fn new() -> Self {
        Ring { places: std::array::from_fn(|_| AtomicUsize::new(EMPTY)), of: std::marker::PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.places.iter().filter(|place| place.load(Ordering::Relaxed) != EMPTY).count()
    }

    pub(super) fn push(&self, frame: FrameId) {
        let swap = |place: &AtomicUsize| {
            place.compare_exchange(EMPTY, frame.index(), Ordering::Release, Ordering::Relaxed).is_ok()
        };
        assert!(self.places.iter().any(swap), "the ring has a place for each frame");
    }

    pub(super) fn pop(&self) -> Option<FrameId> {
        self.places.iter().find_map(|place| {
            let mut frame = place.load(Ordering::Relaxed);
            while frame != EMPTY {
                match place.compare_exchange(frame, EMPTY, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(FrameId(u32::try_from(frame).expect("a frame id has 32 bits"))),
                    Err(now) => frame = now,
                }
            }
            None
        })
    }
}
