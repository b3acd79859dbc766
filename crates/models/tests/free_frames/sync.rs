//! The seam for waiting, over loom.

use loom::sync as real;

use crate::waits::WaitClass;

pub(crate) struct Mutex<T>(real::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = real::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(real::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no thread panicked with it")
    }
}

pub(crate) struct Condvar(real::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar(real::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, _class: WaitClass) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect("no thread panicked with it")
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}
