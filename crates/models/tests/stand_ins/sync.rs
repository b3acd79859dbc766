//! The seam for waiting, over shuttle or loom, as `threads` says. A thread that panics with a mutex held does not
//! poison it for the others.

use std::sync::PoisonError;

pub(crate) use super::rank::Rank;
use super::threads as real;

pub(crate) struct Mutex<T> {
    inner: real::Mutex<T>,
    /// Other threads go first: a thread that copies into the log's buffer is to be late more often than by chance.
    is_last: bool,
}

/// The engine's is held over I/O.
pub(crate) type Turn<T> = Mutex<T>;

pub(crate) type MutexGuard<'a, T> = real::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// The engine's own tests check the order of mutexes.
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

    /// The deadline never comes: a wait that no other thread ends is a bug.
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

/// Other threads go on meanwhile.
pub(crate) fn nap(_ns: u64) {
    real::yield_now();
}

/// As [`nap`].
pub(crate) fn nap_latched(ns: u64) {
    nap(ns);
}

/// True: the model's schedule is a simulation.
pub(crate) fn is_simulated() -> bool {
    true
}
