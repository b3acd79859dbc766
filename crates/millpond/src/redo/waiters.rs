//! Threads that wait for the log: for a step of it, or for room in it; and calls that wait in their place.

use std::sync::Arc;

use crate::base::error::Error;
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

/// The call that tells the outcome: the log is durable, or why it may never be.
pub(crate) type Notice = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Calls to make once the log is durable up to some place.
#[derive(Default)]
pub(super) struct Notices {
    pub(super) waiting: Vec<(Lsn, Notice)>,
    /// The database is closed, or the log has failed: no thread is left that would make a call.
    pub(super) is_over: bool,
}
