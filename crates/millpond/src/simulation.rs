//! For tests: the deterministic scheduler and the simulated disk (feature `simulation`).
//!
//! [`run`] runs a closure, and all threads that it and the engine start, with one baton and virtual time. A seed
//! decides which thread has the baton when. A [`SimulatedDisk`] keeps every write and sync, so that its [`History`] can
//! produce the disk after a crash at any I/O boundary.

mod decoders;
mod log_decoders;
mod row_decoders;

pub use decoders::Decoder;

pub use crate::base::scheduler::{Trace, run};
pub use crate::io::simulated::{History, Image, SECTOR, ServiceTime, SimulatedDisk, Unsynced};

use crate::base::sync::{self, JoinHandle};

/// A thread of a simulation.
#[must_use]
pub struct Thread<T>(JoinHandle<T>);

impl<T> Thread<T> {
    /// Waits for the thread's end; `Err` holds its panic.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(self) -> std::thread::Result<T> {
        self.0.join()
    }
}

/// Starts a thread in the caller's simulation, or a real one outside of any.
///
/// # Errors
/// The operating system could not start a thread.
pub fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<Thread<T>> {
    sync::spawn(name, work).map(Thread)
}

/// Waits for `ns` nanoseconds of virtual time; outside of a simulation, returns at once.
pub fn sleep_ns(ns: u64) {
    if let Some(task) = crate::base::scheduler::current() {
        task.sleep_ns(ns);
    }
}

/// Virtual time, in nanoseconds; outside of a simulation, real time.
pub fn now_ns() -> u64 {
    crate::base::clock::now_ns()
}
pub(crate) mod same;
