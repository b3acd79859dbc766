//! Primitives of the queue for frames.

use std::collections::VecDeque;

pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};

pub(super) use crate::base::handoff::Handoff;
pub(super) use crate::base::ids::FrameId;
pub(super) use crate::base::sync::{Mutex, Rank};

/// Stands for the ring of `crossbeam_queue`.
pub(super) struct Ring<T>(Mutex<VecDeque<T>>);

impl<T> Ring<T> {
    pub(super) fn new() -> Self {
        Ring(Mutex::default())
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn push(&self, frame: T) {
        self.0.lock().push_back(frame);
    }

    pub(super) fn pop(&self) -> Option<T> {
        self.0.lock().pop_front()
    }
}
