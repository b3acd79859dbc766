//! The seam for waiting, over shuttle or loom, whichever `threads` is. Who panicked with a mutex held does not spoil it
//! for the others.

use std::sync::PoisonError;

pub(crate) use super::rank::Rank;
use super::threads as real;

pub(crate) struct Mutex<T> {
    inner: real::Mutex<T>,
    /// Others go first: who copies into the log's buffer is to be late more often than chance would have it.
    is_last: bool,
}

/// The engine's is one that is held over I/O.
pub(crate) type Turn<T> = Mutex<T>;

pub(crate) type MutexGuard<'a, T> = real::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// The order of mutexes is looked at by the engine's own tests.
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Mutex { inner: real::Mutex::new(value), is_last: matches!(rank, Rank::LogBlock) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if self.is_last {
            real::yield_now();
        }
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex { inner: real::Mutex::new(T::default()), is_last: false }
    }
}

pub(crate) struct Condvar(real::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar(real::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, _what: &'static str) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// No time ever runs out: a wait that nobody else ends is a bug.
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _deadline_ns: u64,
        what: &'static str,
    ) -> (MutexGuard<'a, T>, bool) {
        (self.wait(guard, what), false)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Others go on meanwhile.
pub(crate) fn nap(_ns: u64) {
    real::yield_now();
}

/// The same.
pub(crate) fn nap_latched(ns: u64) {
    nap(ns);
}

/// It is, in its way.
pub(crate) fn is_simulated() -> bool {
    true
}
