//! The reasons why pages are written, each with InnoDB's name for that kind of flushing.
//!
//! Writes are counted by reason in [`PageWrites`](crate::engine::page_writer::PageWrites). The reason also gives the
//! wait class of a thread that writes pages itself.

use crate::base::waits::WaitClass;

/// The reason why pages are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushReason {
    /// Their frames are wanted, now or soon (InnoDB: LRU flushing).
    Frames,
    /// The log needs them clean later; they are written at a rate that is in time (adaptive flushing).
    Pace,
    /// Nothing needs them clean, and the device is idle (background flushing).
    Background,
    /// The log is full, or a checkpoint was requested (sync flushing).
    AtOnce,
    /// An operation found no free frame (single page flush).
    SinglePage,
}

impl FlushReason {
    /// The wait class of a thread that writes pages itself for this reason.
    pub(crate) fn waits_on(self) -> WaitClass {
        match self {
            FlushReason::Frames | FlushReason::SinglePage => WaitClass::FreeFrame,
            FlushReason::Pace | FlushReason::Background | FlushReason::AtOnce => WaitClass::LogSpace,
        }
    }
}
