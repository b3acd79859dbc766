//! A piece of a load's work that another thread does, while the load's own thread prepares the next piece.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::{JoinHandle, Mutex, Rank, spawn};
use crate::base::waits::{WaitClass, Waits, enter_background};

/// The name of the threads.
const NAME: &str = "mp-load";

/// A piece of work on its way. Dropping it waits for its end.
pub(super) struct Aside<T> {
    waits: Arc<Waits>,
    /// The process that the thread is in: a forked child has none to wait for.
    pid: u32,
    /// `None` once the result is taken.
    running: Option<Running<T>>,
}

enum Running<T> {
    There(JoinHandle<Result<T, Error>>),
    Ended(Result<T, Error>),
}

impl<T: Send + 'static> Aside<T> {
    /// Begins the work. If the system cannot start a thread, the caller does the work here and now.
    pub(super) fn begin(waits: &Arc<Waits>, work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Aside<T> {
        // A thread that does not start takes its closure with it, so the work is kept here, too.
        let work: Arc<Mutex<_>> = Arc::new(Mutex::new(Rank::Handoff, Some(work)));
        let take = Arc::clone(&work);
        let thread = spawn(NAME, move || {
            enter_background();
            let work = take.lock().take();
            work.map_or_else(|| Err(Error::Bug("a piece of a load was begun twice".into())), |work| work())
        });
        let running = match thread {
            Ok(thread) => Running::There(thread),
            Err(error) => {
                let work = work.lock().take();
                Running::Ended(work.map_or_else(|| Err(Error::thread(NAME, error)), |work| work()))
            }
        };
        Aside { waits: Arc::clone(waits), pid: std::process::id(), running: Some(running) }
    }

    /// A piece of work that has ended.
    pub(super) fn ended(waits: &Arc<Waits>, result: T) -> Aside<T> {
        Aside { waits: Arc::clone(waits), pid: std::process::id(), running: Some(Running::Ended(Ok(result))) }
    }
}

impl<T> Aside<T> {
    /// Waits for the end of the work, and returns its result.
    ///
    /// # Errors
    /// An error of the work; its thread panicked.
    pub(super) fn end_wait(mut self) -> Result<T, Error> {
        self.wait().unwrap_or_else(|| Err(Error::Bug("the result of a load's work was taken twice".into())))
    }

    fn wait(&mut self) -> Option<Result<T, Error>> {
        match self.running.take()? {
            Running::Ended(result) => Some(result),
            Running::There(thread) => {
                let joined = self.waits.timed(WaitClass::Checkpoint, || thread.join());
                Some(joined.unwrap_or_else(|_| Err(Error::Bug(format!("a thread {NAME} panicked").into()))))
            }
        }
    }
}

impl<T> Drop for Aside<T> {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // The load has failed already, or is given up.
            let _ = self.wait();
        } else {
            std::mem::forget(self.running.take());
        }
    }
}
