//! What the line for free frames is made of, in one place: so that a checked model can replace it as a whole.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};

pub(super) use crate::base::handoff::Handoff;
pub(super) use crate::base::ids::FrameId;
pub(super) use crate::base::sync::{Mutex, Rank};
pub(super) use crossbeam_queue::SegQueue as Ring;
