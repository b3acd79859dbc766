//! The building blocks of the line for free frames, gathered here so that a checked model can replace them all at once.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};

pub(super) use crate::base::handoff::Handoff;
pub(super) use crate::base::ids::FrameId;
pub(super) use crate::base::sync::{Mutex, Rank};
pub(super) use crossbeam_queue::SegQueue as Ring;
