//! Threads that work until the database is closed: those of the classic policies, `mp-log`, and the thread that makes
//! files for a large log. Each thread of a classic policy sleeps by its own clock, as in the server that it models.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::sync::{self, Condvar, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;
use crate::engine::Engine;

/// Threads that end together, at the latest on drop, which waits for them.
pub(crate) struct Threads {
    end: Arc<End>,
    /// Bells that some of the threads wait for. They are rung when the end is near.
    bells: Vec<Arc<Bell>>,
    threads: Vec<(&'static str, JoinHandle<()>)>,
}

/// Whether the database is being closed.
pub(crate) struct End {
    is_near: Mutex<bool>,
    news: Condvar,
}

impl End {
    /// Whether the end is near.
    pub(super) fn is_near(&self) -> bool {
        *self.is_near.lock()
    }

    /// Sleeps until `deadline_ns`, or the end. Returns whether the end is near.
    pub(super) fn wait_until(&self, deadline_ns: u64) -> bool {
        let mut is_near = self.is_near.lock();
        while !*is_near && clock::now_ns() < deadline_ns {
            (is_near, _) = self.news.wait_until(is_near, deadline_ns, "the end, or a tick");
        }
        *is_near
    }

    /// Sleeps as long as a piece of work took, so that other threads get half of the device's time. Returns whether
    /// the end is near.
    pub(super) fn rest(&self, took_ns: u64) -> bool {
        self.wait_until(clock::now_ns() + took_ns)
    }

    /// Sleeps until `is_so`, or the end. Returns whether the end is near. A thread that changes the result of `is_so`
    /// calls [`look_again`](Threads::look_again).
    pub(super) fn wait_for(&self, is_so: impl Fn() -> bool) -> bool {
        let mut is_near = self.is_near.lock();
        while !*is_near && !is_so() {
            is_near = self.news.wait(is_near, "the end, or work");
        }
        *is_near
    }
}

impl Threads {
    /// No threads yet.
    pub(crate) fn new() -> Threads {
        let end = Arc::new(End { is_near: Mutex::new(Rank::Background, false), news: Condvar::new() });
        Threads { end, bells: Vec::new(), threads: Vec::new() }
    }

    /// Starts one more thread. If its work fails or panics, the log stops, and all waiters get the reason.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        engine: &Arc<Engine>,
        work: impl FnOnce(&Engine, &End) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let (engine, end) = (Arc::clone(engine), Arc::clone(&self.end));
        let thread = sync::spawn(name, move || {
            enter_background();
            let worked = catch_unwind(AssertUnwindSafe(|| work(&engine, &end)));
            let error = match worked {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => Error::Bug(format!("the thread {name} panicked: reopen the database").into()),
            };
            engine.core.log.stop(&error);
            engine.bell.ring();
        });
        self.threads.push((name, thread.map_err(|e| Error::thread(name, e))?));
        Ok(())
    }

    /// Registers a bell that a thread waits for: it is rung when the end is near.
    pub(super) fn ring_at_end(&mut self, bell: &Arc<Bell>) {
        self.bells.push(Arc::clone(bell));
    }

    /// The number of threads with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.threads.iter().filter(|(of, _)| *of == name).count()
    }
}

impl Threads {
    /// Announces the end: sets the flag, wakes the sleeping threads, and rings the bells.
    pub(crate) fn announce_end(&self) {
        *self.end.is_near.lock() = true;
        self.end.news.notify_all();
        self.bells.iter().for_each(|bell| bell.ring());
    }

    /// Wakes the threads in [`wait_for`](End::wait_for): their condition may have changed.
    pub(crate) fn look_again(&self) {
        // A thread that looked before the change is waiting by the time that the mutex is taken here.
        drop(self.end.is_near.lock());
        self.end.news.notify_all();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.announce_end();
        for (_, thread) in self.threads.drain(..) {
            // The log already has the reason of a panic.
            let _ = thread.join();
        }
    }
}
