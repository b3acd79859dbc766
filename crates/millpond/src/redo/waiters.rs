//! Threads that wait for the log: for a step of it, or for room in it.

use std::sync::Arc;

use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::waits::WaitClass;

/// A step of the log that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The device has it.
    Written,
    /// It is durable.
    Flushed,
}

impl Stage {
    /// The wait class of this stage.
    pub(super) fn waits_on(self) -> WaitClass {
        match self {
            Stage::Written => WaitClass::LogWrite,
            Stage::Flushed => WaitClass::LogFlush,
        }
    }
}

/// The signal that ends a wait for the log.
pub(super) enum FlushSignal {
    Reached,
    /// The log has failed, or no thread leads.
    LookAgain,
}

/// A thread that waits until the log has reached `stage` at `lsn`.
pub(super) struct FlushWaiter {
    pub(super) lsn: Lsn,
    pub(super) stage: Stage,
    pub(super) handoff: Arc<Handoff<FlushSignal>>,
}

/// A thread that waits for room.
pub(super) struct SpaceWaiter {
    pub(super) bytes: u64,
    pub(super) handoff: Arc<Handoff<bool>>,
}
